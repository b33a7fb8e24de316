/* reload.c: loads libraries and lets them go, and has the engine's client look in between. A child that was forked meanwhile goes on in what its parent has let go.
 * reload ROUNDS FORK-IN all|turns LIBRARY...: all of them in each round, or by turns. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST = 8, BEGUN = 1, LOADED, GONE };
static int none(uintptr_t at) { (void)at; return 0; }

int main(int argc, char **argv)
{
	(void)argc;
	int (*look)(uintptr_t) = (int (*)(uintptr_t))dlsym(RTLD_DEFAULT, "ripstop_patch_test");
	if (!look)
		look = none;
	int rounds = atoi(argv[1]), fork_in = atoi(argv[2]), turns = !strcmp(argv[3], "turns"), n = 0, pipes[2];
	char **libs = argv + 4;
	while (libs[n] && n < MOST)
		n++;
	unsigned sum = 0;
	pid_t child = 0;
	if (pipe(pipes))
		return 1;
	look(BEGUN);
	for (int i = 0; i < rounds; i++) {
		void *h[MOST];
		int (*f[MOST])(int), first = turns ? i % n : 0, last = turns ? first : n - 1;
		for (int k = first; k <= last; k++) {
			h[k] = dlopen(libs[k], RTLD_NOW | RTLD_LOCAL);
			if (!h[k])
				return printf("%s\n", dlerror()), 1;
			f[k] = (int (*)(int))dlsym(h[k], "parts");
			for (int x = 0; x < 20; x++)
				sum = sum * 31 + (unsigned)f[k](i + x);
		}
		look(LOADED);
		if (i == fork_in) {
			fflush(stdout);
			child = fork();
			if (child == 0) {
				char c;
				unsigned s = 0;
				close(pipes[1]);
				do
					for (int k = first; k <= last; k++)
						s = s * 31 + (unsigned)f[k](i);
				while (read(pipes[0], &c, 1) == 1);
				printf("child %u\n", s);
				return 0;
			}
		}
		for (int k = first; k <= last; k++)
			dlclose(h[k]);
		look(GONE);
		if (child && write(pipes[1], "x", 1) != 1)
			return 1;
	}
	close(pipes[1]);
	int status = 0;
	if (child && (waitpid(child, &status, 0) != child || status))
		return printf("the child ended with %#x\n", status), 1;
	printf("parent %u\n", sum);
	return 0;
}
