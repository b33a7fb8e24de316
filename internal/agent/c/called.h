/* called.h: functions of the C library access memory for whoever calls them. With all accesses told (--full) they count as the caller's, with the called function as the innermost frame
 * of its stack (called.c). libmem.c has those on memory and strings, libio.c those of stdio, libenv.c those on the environment, kernel.c what system calls read and write.
 *
 * What these files export is of protected visibility: such names are taken away from the library's symbols where not all accesses are told (internal/agent/embed.go), so that they cost nothing. */
#ifndef RS_CALLED_H
#define RS_CALLED_H
#include "opened.h"
#include <stdarg.h>
#include <stdio.h>

#define RS_TOLD __attribute__((visibility("protected")))

/* Who called which function, of which `function` is some instruction. t NULL: nothing is to be told. */
struct rs_called { struct rs_thread *t; uintptr_t function, pc, rsp, rbp; };

struct rs_called rs_called_by(uintptr_t function, uintptr_t pc, const uint64_t *fp) __attribute__((visibility("hidden")));
/* In the exported function itself, whose address by its name may be that of a stub of the program's. */
#define RS_CALLED() ({ \
	uintptr_t here_; \
	__asm__("leaq (%%rip), %0" : "=r"(here_)); \
	rs_called_by(here_, RS_CALLER(), __builtin_frame_address(0)); })

/* The caller's accesses to n bytes. Neither looks at them. Best before the function does it, or else after it: not between the function's access and an event that orders it. */
void rs_called_read(const struct rs_called *c, const void *p, size_t n) __attribute__((visibility("hidden")));
void rs_called_write(const struct rs_called *c, const void *p, size_t n) __attribute__((visibility("hidden")));
/* An atomic change of n aligned bytes, at most 8. */
void rs_called_change(const struct rs_called *c, const void *p, size_t n) __attribute__((visibility("hidden")));
void rs_called_copy(const struct rs_called *c, const void *to, const void *from, size_t n) __attribute__((visibility("hidden")));

/* Begins the definition of a function that is interposed only where all accesses are told; real_NAME is libc's, which RS_NEED finds. */
#define RS_TELLS(ret, name, params) \
	static ret(*real_##name) params; \
	static const struct rs_called_real real_row_##name = {#name, (void **)&real_##name}; \
	static const struct rs_called_real *const real_at_##name __attribute__((section("rs_called_reals"), used)) = &real_row_##name; \
	RS_TOLD ret name params; \
	RS_TOLD ret name params
struct rs_called_real { const char *name; void **to; };
#define RS_NEED(name) \
	if (RS_UNLIKELY(!real_##name)) \
		rs_called_find()
/* The first thing in such a definition: c is who calls. */
#define RS_CALL(name) \
	RS_NEED(name); \
	RS_OPENS(); \
	struct rs_called c = RS_CALLED()

static inline size_t rs_length(const char *s)
{
	const char *p = s;
	while (*p)
		p++;
	return (size_t)(p - s);
}
/* All accesses are told from now on. In the constructor. */
void rs_called_begin(void) __attribute__((visibility("hidden")));
/* They are, each for itself. */
bool rs_called_told(void) __attribute__((visibility("hidden")));
/* syscall.c: so syscall() tells them too. */
void rs_syscall_tells(void) __attribute__((visibility("hidden")));
/* Finds all of them: by rs_called_begin, or at the first call if that comes before it. */
void rs_called_find(void) __attribute__((visibility("hidden")));

/* descriptor.c: what a call does with a descriptor. use: before it is made and before an event that says what it orders; used: after it, failed if errno says why. close: before it. opened, replaced: after it,
 * pc and fp as rs_stack_from has them. unknown: something that was not seen may have closed it, or is free to do so. */
void rs_fd_use(const struct rs_called *c, int fd) __attribute__((visibility("hidden")));
void rs_fd_used(const struct rs_called *c, int fd, bool failed) __attribute__((visibility("hidden")));
void rs_fd_close(const struct rs_called *c, int fd) __attribute__((visibility("hidden")));
void rs_fd_close_range(const struct rs_called *c, unsigned lo, unsigned hi) __attribute__((visibility("hidden")));
void rs_fd_opened(int fd, uintptr_t pc, void *fp) __attribute__((visibility("hidden")));
void rs_fd_replaced(int fd, uintptr_t pc, void *fp) __attribute__((visibility("hidden")));
void rs_fd_unknown(int fd) __attribute__((visibility("hidden")));
/* A thread has descriptors of its own from here on. */
void rs_fd_shared_no_more(void) __attribute__((visibility("hidden")));

/* format.c: before printf with these arguments; after scanf, which returned `stored`. OLD: a name of scanf's in which %as allocates. The arguments are as they were before the call, and stay so. */
enum { RS_FORMAT_WIDE = 1, RS_FORMAT_OLD = 2 };
void rs_format_prints(const struct rs_called *c, const void *format, bool wide, va_list v) __attribute__((visibility("hidden")));
void rs_format_scanned(const struct rs_called *c, const void *format, unsigned how, va_list v, int stored) __attribute__((visibility("hidden")));
/* A string, with its end. */
void rs_format_reads(const struct rs_called *c, const void *s, bool wide) __attribute__((visibility("hidden")));

/* stream.c: before a call that may write what lies in the stream (NULL: in any), and after one that may have read into it. */
void rs_stream_writes(FILE *f) __attribute__((visibility("hidden")));
void rs_stream_reads(FILE *f) __attribute__((visibility("hidden")));

/* module.c: whether pc is in a module whose accesses are not told, so that none are told that are made for it. */
bool rs_left_out(uintptr_t pc) __attribute__((visibility("hidden")));
/* Of those, glibc's and the agent's own, whose instructions stay as they are. */
bool rs_not_patched(uintptr_t pc) __attribute__((visibility("hidden")));
bool rs_is_glibc(const char *path) __attribute__((visibility("hidden")));

/* kernel.c: whether the system call n reads or writes memory that is known. */
bool rs_kernel_has(unsigned n) __attribute__((visibility("hidden")));
/* What the system call n with these arguments reads, before it is made and before an event that says what it orders; what it wrote, after those that say what it follows. */
void rs_kernel_reads(const struct rs_called *c, unsigned n, const long a[6]) __attribute__((visibility("hidden")));
void rs_kernel_wrote(const struct rs_called *c, unsigned n, const long a[6], long result) __attribute__((visibility("hidden")));

/* Copies what is there of n bytes at p, which need not be mapped. */
size_t rs_kernel_peek(void *to, uintptr_t p, size_t n) __attribute__((visibility("hidden")));

/* For guardsys.c. All of them for general registers only.
 * room: of a call that takes a length and gives one back, what was there before the call. pieces: what the call wrote. data: the bytes that it took. */
typedef void rs_kernel_piece(void *arg, const void *p, size_t n);
uint32_t rs_kernel_room(unsigned n, const long a[6]) __attribute__((visibility("hidden")));
void rs_kernel_pieces(unsigned n, const long a[6], long result, uint32_t length, rs_kernel_piece *f, void *arg) __attribute__((visibility("hidden")));
void rs_kernel_data(unsigned n, const long a[6], size_t bytes, rs_kernel_piece *f, void *arg) __attribute__((visibility("hidden")));
#endif
