/* proc.h: what the files about processes share (proc.c, env.c, exec.c, spawn.c, popen.c, exit.c, syscall.c). */
#ifndef RS_PROC_H
#define RS_PROC_H
#include <elf.h>
#include "agent.h"
#include "os.h"

/* The real function, also for a call that comes before the constructor. */
#define RS_REAL(f) (RS_LIKELY(rs_real.f != NULL) ? rs_real.f : (rs_init(), rs_real.f))

/* Whether a pointer is NULL, where a header promises that it is not. */
static inline bool rs_null(const void *p)
{
	__asm__("" : "+r"(p));
	return !p;
}

/* A latch is a lock for rare paths: processes, not threads' hot paths. Not for signal handlers. A fork child sets it to zero. */
struct rs_latch { uint32_t word; };
void rs_latch_take(struct rs_latch *l);
void rs_latch_give(struct rs_latch *l);

/* --- env.c: what a child's environment must be, and whether it can load us --------------------------------------------- */

/* Above this many bytes a child's vector of variables comes from the kernel and not from the stack. */
#define RS_ENV_ON_STACK 2048

/* How an exec or spawn is to be done. why: 0 = with us in the environment; an RS_UNFOLLOWED_x = as the program says, and the event
 * `unfollowed`; -1 = as the program says, and nothing to tell. */
struct rs_plan {
	char *const *envp;  /* the program's */
	char *agent, *home; /* rs_env_preload, rs_env_session: another thread may detach and take them away */
	size_t count;       /* its entries */
	size_t preload;     /* index of the LD_PRELOAD that ld.so would use, count if there is none */
	size_t preload_len; /* bytes of that entry's value */
	size_t session;     /* index of RIPSTOP_SESSION, count if there is none */
	size_t need;        /* bytes for rs_plan_env; 0: no change */
	void *map;
	int why;
};
/* Decides for the file (dirfd, path), looked up in PATH as execvp does when search is set. Only raw system calls and the stack: also
 * for a vfork child. */
void rs_plan_make(struct rs_plan *p, int dirfd, const char *path, bool search, char *const *argv, char *const *envp);
/* Memory for a vector too big for the stack; NULL if there is none, and then the plan is not to follow. */
void *rs_plan_map(struct rs_plan *p);
void rs_plan_unmap(struct rs_plan *p);
/* Writes the vector to buf (need bytes). Returns the vector to pass. */
char **rs_plan_env(struct rs_plan *p, void *buf);
/* No longer part of a path goes into an event. */
#define MAX_PATH_TOLD 4096

/* Gives the vector for p in the calling function's frame, or in a mapping. */
#define RS_PLAN_ENV(p) ((p)->need == 0 ? (char **)(uintptr_t)(p)->envp : \
	rs_plan_env((p), (p)->need <= RS_ENV_ON_STACK ? __builtin_alloca((p)->need) : rs_plan_map(p)))

/* The value of a variable of the program's own environment, NULL if it is not there. */
const char *rs_env_get(const char *name);

/* As rs_enter, for as long as it takes, on whatever stack: not over after a longjmp, nor in a vfork child further up the stack. */
static inline void rs_hold(struct rs_thread *t)
{
	if (t->inside++ == 0)
		t->inside_sp = UINTPTR_MAX;
	__asm__ volatile("" ::: "memory");
}

/* --- proc.c ---------------------------------------------------------------------------------------------------------------- */

/* What a vfork child leaves for its parent; they share the memory, thread storage included. */
struct rs_vfork {
	uint32_t depth;   /* > 0: a vfork child runs on this thread's memory */
	int why;          /* the child became a program that we do not see: RS_UNFOLLOWED_x */
	void *map;        /* the child's environment, to be unmapped by the parent */
	size_t map_bytes;
};
extern __thread struct rs_vfork rs_vfork __attribute__((tls_model("initial-exec"), visibility("hidden")));

/* The pid, 0 before the constructor. Without a system call: a sandbox may forbid even that. */
extern uint32_t rs_own_pid __attribute__((visibility("hidden")));
/* Before and after a call of this thread that makes a child which shares our memory and thread storage while the thread waits. */
void rs_vfork_enter(void);
void rs_vfork_leave(void);
/* In a child that was made behind glibc's back (clone without CLONE_VM): emits nothing from now on. What it executes may still be
 * followed. */
void rs_proc_unseen(void);
/* Sends `fork` and, when due, `unfollowed`. */
void rs_emit_fork(struct rs_thread *t, pid_t pid, uint32_t stack);
void rs_emit_unfollowed(struct rs_thread *t, int why, pid_t pid, const char *path);
/* A clone that shares memory but neither waits nor has thread storage of its own would use this thread's state at the same time:
 * then we leave this process. Returns false if the clone is of that kind. */
bool rs_clone_is_safe(unsigned long flags);
/* True when the session takes no more children: the Go side has finished or died. */
bool rs_session_over(void);

/* --- sanitizer.c ------------------------------------------------------------------------------------------------------------ */

/* Does the program carry a sanitizer's runtime beside which we cannot live? */
bool rs_sanitizer_in(int fd, const Elf64_Ehdr *h);
/* tsan.c: this process has us for its sanitizer's runtime, and the file is its own. */
bool rs_tsan_again(int fd) __attribute__((visibility("hidden")));
/* Does a value of LD_PRELOAD name one? */
bool rs_sanitizer_preloaded(const char *list);

/* --- exec.c, exit.c, wait.c, popen.c, spawn.c, key.c ------------------------------------------------------------------------- */

void rs_emit_exec(struct rs_thread *t, const char *path);
/* To be called with errno as the failed call left it. */
void rs_exec_failed(struct rs_thread *t, struct rs_plan *p);
typedef int rs_spawn_fn(pid_t *, const char *, const posix_spawn_file_actions_t *, const posix_spawnattr_t *, char *const *, char *const *);
/* posix_spawn by `real` with us in the environment; pc and frame are the interposed function's, as for rs_stack_from. */
int rs_spawn(rs_spawn_fn *real, bool search, pid_t *pid, const char *path, const posix_spawn_file_actions_t *actions,
	const posix_spawnattr_t *attr, char *const *argv, char *const *envp, uintptr_t pc, void *frame);
void rs_exit_start(void);
void rs_emit_end(struct rs_thread *t, unsigned end, int status);
void rs_emit_wait(struct rs_thread *t, pid_t pid, int status);
void rs_waited_for(struct rs_thread *t, int pidfd);
void rs_popen_after_fork(void);
void rs_system_after_fork(void);
void rs_atexit_after_fork(void);
/* The kernel will kill or refuse system calls that the program has not listed: from now on no new mappings or sockets. */
void rs_sandbox(struct rs_thread *t, bool strict);
#endif
