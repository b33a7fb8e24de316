// What is recorded from a process's second thread on (guard --epochs-from=thread), which is made by what the first argument says:
// "opened": the initialiser of a library that is opened (the second argument; -DLIBRARY), in the middle of dlopen. "crash": main, which then crashes of a pointer that the thread has written; verdict: crash. "alone": nobody, before the crash. "stack": main, when there are handlers and an alternate stack.
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ROUNDS = 150, MS = 1000000 };

#ifdef LIBRARY

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_t thread;
static long sum;

long add(long n)
{
	pthread_mutex_lock(&lock);
	long is = sum += n;
	pthread_mutex_unlock(&lock);
	return is;
}

static void *adds(void *arg)
{
	for (int i = 0; i < ROUNDS; i++) {
		add(1);
		nanosleep(&(struct timespec){0, MS}, NULL);
	}
	return arg;
}

__attribute__((constructor)) static void begins(void) { pthread_create(&thread, NULL, adds, NULL); }

long end(void)
{
	pthread_join(thread, NULL);
	return add(0);
}

#else

static int *volatile pointer;
static volatile int value = 4, on_stack[2];
static char stack[1 << 16];

__attribute__((noinline)) static void spoil(void) { pointer = (int *)0x1230; }

static void *thread(void *arg)
{
	spoil();
	return arg;
}

static void handler(int sig)
{
	char here;
	on_stack[sig == SIGUSR2] += (size_t)(&here - stack) < sizeof stack;
}

static void with_thread(void)
{
	pthread_t t;
	pthread_create(&t, NULL, thread, NULL);
	pthread_join(t, NULL);
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";
	pointer = (int *)&value;
	if (!strcmp(what, "opened")) {
		void *lib = dlopen(argv[2], RTLD_NOW);
		long (*add)(long) = lib ? (long (*)(long))dlsym(lib, "add") : NULL, (*end)(void) = lib ? (long (*)(void))dlsym(lib, "end") : NULL;
		if (!add || !end)
			return 9;
		for (int i = 0; i < ROUNDS; i++) {
			add(2);
			free(malloc((size_t)i));
			nanosleep(&(struct timespec){0, MS}, NULL);
		}
		printf("%ld\n", end());
		return 3;
	}
	if (!strcmp(what, "stack")) {
		sigaltstack(&(stack_t){.ss_sp = stack, .ss_size = sizeof stack}, NULL);
		sigaction(SIGUSR1, &(struct sigaction){.sa_handler = handler}, NULL);
		sigaction(SIGUSR2, &(struct sigaction){.sa_handler = handler, .sa_flags = SA_ONSTACK}, NULL);
		for (int i = 0; i < 2; i++) {
			raise(SIGUSR1);
			raise(SIGUSR2);
			stack_t is;
			sigaltstack(NULL, &is);
			printf("%d %d %d\n", on_stack[0], on_stack[1], is.ss_sp == stack && is.ss_size == sizeof stack);
			with_thread();
		}
		return 3;
	}
	if (!strcmp(what, "alone"))
		spoil();
	else
		with_thread();
	return *pointer;
}

#endif
