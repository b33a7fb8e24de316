/* vfork.c: a child of vfork runs a function in a loop of which an instruction was displaced for another one's sake, while the parent has that changed. Not PIE, as step.c, which says why. vfork [killed]. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

__asm__(".text\n.skip 0x8000, 0x90\n.globl walk\n.type walk, @function\n"
	"callee:	ret\n.skip 119, 0x90\n"
	"walk:	push %rbx\n	mov %rdi, %rbx\n	mov $20, %ecx\n	xor %eax, %eax\n"
	"site:	mov %eax, (%rbx)\n	call callee\n"
	"neighbour:	lea 3(%rax,%rax,2), %eax\n	xor $0x55, %al\n	add $0x30, %al\n	add %ecx, %eax\n	dec %ecx\n	jne site\n"
	"	pop %rbx\n	ret\n.size walk, .-walk\n");
unsigned walk(unsigned *);

static volatile int stop, ended;
static volatile unsigned long rounds, bad;
static unsigned right;
static int status;

static void *parent(void *arg)
{
	(void)arg;
	pid_t pid = vfork();
	if (pid == 0) {
		while (!stop) {
			unsigned room;
			bad += walk(&room) != right;
			rounds++;
		}
		_exit(7);
	}
	waitpid(pid, &status, 0);
	ended = 1;
	return NULL;
}

int main(int argc, char **argv)
{
	int (*ask)(uintptr_t) = (int (*)(uintptr_t))dlsym(RTLD_DEFAULT, "ripstop_patch_test");
	int killed = argc > 1 && strcmp(argv[1], "killed") == 0;
	unsigned room;
	pthread_t t;
	right = walk(&room);
	pthread_create(&t, NULL, parent, NULL);
	while (rounds < 10)
		usleep(1000);
	int r = ask ? ask((uintptr_t)walk) : 0;
	unsigned long since = rounds;
	while (!ended && rounds < since + 10)
		usleep(1000);
	stop = 1;
	pthread_join(t, NULL);
	printf("%d, bad %lu, %u, child %s\n", r, bad, walk(&room) == right, killed ? "" : WIFEXITED(status) && WEXITSTATUS(status) == 7 ? "well" : "not well");
	return 0;
}
