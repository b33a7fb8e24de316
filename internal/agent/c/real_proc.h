/* real_proc.h: real functions that proc.c, exec.c, spawn.c, popen.c, exit.c, wait.c and syscall.c interpose. */
#ifndef RS_REAL_PROC_H
#define RS_REAL_PROC_H
#include <spawn.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <wordexp.h>
struct termios;
struct winsize;
#define RS_REAL_PROC \
	R(long, syscall, "", (long, ...)) \
	R(int, prctl, "", (int, ...)) \
	R(pid_t, fork, "", (void)) \
	R(pid_t, _Fork, "", (void)) \
	R(int, forkpty, "", (int *, char *, const struct termios *, const struct winsize *)) \
	R(int, clone, "", (int (*)(void *), void *, int, void *, ...)) \
	R(int, execve, "", (const char *, char *const *, char *const *)) \
	R(int, execvpe, "", (const char *, char *const *, char *const *)) \
	R(int, fexecve, "", (int, char *const *, char *const *)) \
	R(int, execveat, "", (int, const char *, char *const *, char *const *, int)) \
	R(int, posix_spawn, "GLIBC_2.15", (pid_t *, const char *, const posix_spawn_file_actions_t *, const posix_spawnattr_t *, char *const *, char *const *)) \
	R(int, posix_spawnp, "GLIBC_2.15", (pid_t *, const char *, const posix_spawn_file_actions_t *, const posix_spawnattr_t *, char *const *, char *const *)) \
	R_AS(int, old_posix_spawn, posix_spawn, "GLIBC_2.2.5", (pid_t *, const char *, const posix_spawn_file_actions_t *, const posix_spawnattr_t *, char *const *, char *const *)) \
	R_AS(int, old_posix_spawnp, posix_spawnp, "GLIBC_2.2.5", (pid_t *, const char *, const posix_spawn_file_actions_t *, const posix_spawnattr_t *, char *const *, char *const *)) \
	R(int, system, "", (const char *)) \
	R(int, daemon, "", (int, int)) \
	R(int, wordexp, "", (const char *, wordexp_t *, int)) \
	R(FILE *, popen, "", (const char *, const char *)) \
	R(int, pclose, "", (FILE *)) \
	R(FILE *, fdopen, "", (int, const char *)) \
	R(int, fclose, "", (FILE *)) \
	R(void, _exit, "", (int)) \
	R(void, quick_exit, "GLIBC_2.24", (int)) \
	R_AS(void, old_quick_exit, quick_exit, "GLIBC_2.10", (int)) \
	R(void, abort, "", (void)) \
	R(int, on_exit, "", (void (*)(int, void *), void *)) \
	R(int, __cxa_atexit, "", (void (*)(void *), void *, void *)) \
	R(int, __cxa_at_quick_exit, "", (void (*)(void *), void *)) \
	R(int, __register_atfork, "", (void (*)(void), void (*)(void), void (*)(void), void *)) \
	R(pid_t, wait, "", (int *)) \
	R(pid_t, waitpid, "", (pid_t, int *, int)) \
	R(int, waitid, "", (idtype_t, id_t, siginfo_t *, int)) \
	R(pid_t, wait3, "", (int *, int, struct rusage *)) \
	R(pid_t, wait4, "", (pid_t, int *, int, struct rusage *))
#endif
