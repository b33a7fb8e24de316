// Changes as its standard input says: t starts a thread, e ends the oldest, f makes a child, x executes the program anew. Each is answered by a line with a thread id; it ends, with the child, at the end
// of its input.
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static int begun[2], ends[16][2];
static pthread_t threads[16];
static pid_t child;

static void *stay(void *arg) {
	char c;
	int tid = gettid();
	if (write(begun[1], &tid, sizeof tid) != sizeof tid || read(ends[(long)arg][0], &c, 1) != 1)
		abort();
	return 0;
}

int main(int argc, char **argv) {
	long first = 0, next = 0;
	char c, number[16];
	int tid = gettid();
	if (argc > 1) {
		child = atoi(argv[1]);
		printf("%d\n", tid);
	}
	fflush(stdout);
	if (pipe(begun))
		abort();
	while (read(0, &c, 1) == 1) {
		tid = 0;
		switch (c) {
		case 't':
			if (pipe(ends[next]) || pthread_create(&threads[next], 0, stay, (void *)next) || read(begun[0], &tid, sizeof tid) != sizeof tid)
				abort();
			next++;
			break;
		case 'e':
			if (write(ends[first][1], &c, 1) != 1 || pthread_join(threads[first], 0))
				abort();
			first++;
			break;
		case 'f':
			tid = child = fork();
			if (!child)
				for (;;)
					pause();
			break;
		case 'x':
			snprintf(number, sizeof number, "%d", child);
			execl("/proc/self/exe", argv[0], number, (char *)0);
			abort();
		}
		printf("%d\n", tid);
		fflush(stdout);
	}
	if (child > 0)
		kill(child, SIGKILL);
	while (wait(0) > 0)
		;
	return 0;
}
