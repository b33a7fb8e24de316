// refusing WHAT,… COMMAND …: executes the command in narrow circumstances, which hold for all that it starts. WHAT is CALL=ERROR: this system call fails by this error, as in a container that does not allow it; or rRESOURCE=LIMIT (all in numbers).
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

static void check(int ok, const char *what)
{
	if (!ok) {
		perror(what);
		_exit(3);
	}
}

int main(int argc, char **argv)
{
	enum { MOST = 60 };
	struct sock_filter code[MOST + 4] = {{BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(struct seccomp_data, nr)}};
	unsigned short n = 1;
	check(argc > 2, "usage");
	for (char *p = argv[1]; *p && n < MOST; p += *p == ',') {
		int limit = *p == 'r';
		uint32_t which = (uint32_t)strtoul(p + limit, &p, 10);
		unsigned long value = strtoul(p + 1, &p, 10);
		if (limit) {
			struct rlimit r = {value, value};
			check(setrlimit((int)which, &r) == 0, "setrlimit");
			continue;
		}
		code[n++] = (struct sock_filter){BPF_JMP | BPF_JEQ | BPF_K, 0, 1, which};
		code[n++] = (struct sock_filter){BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ERRNO | (uint32_t)value};
	}
	code[n++] = (struct sock_filter){BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW};
	struct sock_fprog filter = {n, code};
	if (n > 2)
		check(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0, "seccomp");
	execvp(argv[2], argv + 2);
	check(0, argv[2]);
}
