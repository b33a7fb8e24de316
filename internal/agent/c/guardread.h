/* guardread.h: files that are read in an epoch of `guard`: reads are made again, so what they read must stay until the epoch is over. See guardsys.c. */
#ifndef RS_GUARDREAD_H
#define RS_GUARDREAD_H
#include "calls.h"
#include "guardlog.h"
#include <sys/stat.h>

enum { RS_GUARD_FDS = 1 << 16, RS_GUARD_FILES = 1 << 10, RS_GUARD_CHANGING = 64 };
enum { RS_GUARD_FD_UNKNOWN, RS_GUARD_FD_OTHER, RS_GUARD_FD_READER, RS_GUARD_FD_WRITER, RS_GUARD_FD_BOTH };

struct rs_guard_fd { uint32_t epoch; uint16_t file; uint8_t kind; bool append, changes; };
/* What a file is known by: st_dev and st_ino. */
struct rs_guard_name { uint64_t device, inode; };
/* Read in this epoch, up to hi, through a descriptor that is now `fd`, the coordinator's if kept. */
struct rs_guard_file { struct rs_guard_name name; uint64_t hi; int32_t fd; bool kept, mapped; };
/* What is to be overwritten, from where on. */
struct rs_guard_over { struct rs_guard_name file; uint64_t from; };
enum { RS_GUARD_UNDONE = UINT32_MAX }; /* as a thread's `reads`: what it overwrites is kept (guardundo.h) */
/* In the arena. */
extern struct rs_guard_reads {
	uint32_t epoch;
	uint32_t files;            /* from 1 on */
	uint32_t looked;           /* descriptors from here on were never looked at */
	uint32_t reads;            /* raised when more of a file counts as read, before it is */
	uint32_t changing_at;      /* the next to be forgotten */
	uint64_t kept;
	struct rs_guard_name changing[RS_GUARD_CHANGING]; /* files that were overwritten in the epoch in which they were read */
	struct rs_guard_file file[RS_GUARD_FILES];
	struct rs_guard_fd fd[RS_GUARD_FDS];
} *rs_guard_reads RS_HIDDEN;

/* Before the first checkpoint. -ENOMEM. */
long rs_guard_reads_begin(void) RS_HIDDEN;

/* What is known of a descriptor. NULL: not one that is followed; its content is recorded. */
struct rs_guard_fd *rs_guard_fd_of(int32_t fd) RS_HIDDEN;
/* It is another one's, or nobody's, from now on. */
void rs_guard_fd_forget(int32_t fd) RS_HIDDEN;
void rs_guard_fd_forget_range(uint32_t first, uint32_t last) RS_HIDDEN;
void rs_guard_fd_append(int32_t fd, bool append) RS_HIDDEN;
/* The file of a descriptor that is read now; 0: there is no room, or it is none. */
uint16_t rs_guard_file_of(int32_t fd) RS_HIDDEN;
/* Before it is read: who overwrites looks at `reads` before and behind (rs_guard_overwritten). */
void rs_guard_read_to(uint16_t file, uint64_t hi) RS_HIDDEN;
/* Is about to overwrite what was read; or over: has written so many bytes there, or what its result says. what: that, if so. */
bool rs_guard_overwrites(const struct rs_call *c, bool over, struct rs_guard_over *what) RS_HIDDEN;
/* Others may have read between the look and the write what that was to overwrite; which of the two came first nobody knows. */
void rs_guard_overwritten(const struct rs_guard_log *t, const struct rs_call *c) RS_HIDDEN;
/* What is read of it from now on is recorded. */
void rs_guard_note_change(struct rs_guard_name file) RS_HIDDEN;
/* The file that is about to be closed is open for this epoch's reads still. Of one that could be written, too, only its place is kept, as somebody may wait for its close. False: it cannot be. */
bool rs_guard_keep_read(int32_t fd) RS_HIDDEN;
/* Likewise of all from first to last. */
bool rs_guard_keep_range(uint32_t first, uint32_t last) RS_HIDDEN;
#endif
