/* seccomp: strict mode, and filters that kill whatever is not listed. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static pthread_mutex_t m[3] = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER};

static void work(void)
{
	for (int r = 0; r < 3; r++)
		for (int i = 0; i < 3; i++) {
			pthread_mutex_lock(&m[i]);
			pthread_mutex_lock(&m[(i + 1) % 3]);
			pthread_mutex_unlock(&m[(i + 1) % 3]);
			pthread_mutex_unlock(&m[i]);
		}
}

static void filter(int how)
{
	struct sock_filter f[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_write, 4, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_futex, 3, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 2, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_rt_sigprocmask, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	if (how & 2) /* a thread that is alone needs neither futexes nor masks */
		f[2].k = f[4].k = SYS_write;
	struct sock_fprog p = {sizeof f / sizeof *f, f};
	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	long r = how & 1 ? syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &p) : prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &p, 0, 0);
	if (r)
		write(1, "failed\n", 7);
}

/* syscall() of three arguments by a caller that keeps a word of its own where a seventh would lie, as Chromium's keeps its filter there:
 * the filter's first instruction was changed, and the sandbox killed the renderer. */
static unsigned long kept(long n, long a, long b, long c)
{
	unsigned long word = 0x1122334455667788, seen;
	__asm__ volatile("mov %%rsp, %%rbx\n\tsub $256, %%rsp\n\tand $-16, %%rsp\n\tmov %[word], (%%rsp)\n\t"
			 "call syscall@PLT\n\tmov (%%rsp), %[seen]\n\tmov %%rbx, %%rsp"
			 : [seen] "=r"(seen), "+D"(n), "+S"(a), "+d"(b), "+c"(c)
			 : [word] "r"(word)
			 : "rax", "rbx", "r8", "r9", "r10", "r11", "memory", "cc");
	return seen;
}

int main(void)
{
	setvbuf(stdout, NULL, _IONBF, 0);
	errno = 0;
	printf("bad %d", prctl(PR_SET_SECCOMP, 77, 0, 0, 0));
	printf(" %d\n", errno);
	char name[16] = "";
	prctl(PR_SET_NAME, "renamed");
	prctl(PR_GET_NAME, name);
	printf("name %s %d\n", name, prctl(PR_GET_SECCOMP));
	int word = 0;
	printf("kept %lx", kept(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, 0));
	printf(" %lx", kept(SYS_prctl, PR_GET_DUMPABLE, 0, 0));
	printf(" %lx", kept(SYS_kill, getpid(), 0, 0));
	printf(" %lx", kept(SYS_tgkill, getpid(), getpid(), 0));
	printf(" %lx", kept(SYS_futex, (long)&word, 1, 1));
	printf(" %lx", kept(SYS_execve, (long)"/nothing/here", 0, 0));
	printf(" %lx\n", kept(SYS_clone, 0x10000 /* CLONE_THREAD alone: EINVAL */, 0, 0));
	for (int i = 0; i < 6; i++) {
		pid_t pid = fork();
		if (pid == 0) {
			if (i == 0)
				prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT);
			else if (i == 1)
				syscall(SYS_seccomp, SECCOMP_SET_MODE_STRICT, 0, NULL);
			else
				filter(i - 2);
			for (int n = i == 5 ? 5000 : 1; n; n--) /* the sixth fills its ring */
				work();
			write(1, "in the box\n", 11);
			if (i < 2)
				syscall(SYS_exit, 5);
			_exit(5);
		}
		int st;
		waitpid(pid, &st, 0);
		printf("%d: %x\n", i, st & 0xff7f);
	}
	return 0;
}
