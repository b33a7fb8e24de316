// A library whose initialiser does what its first letter says (-DLIBRARY), and a program that opens it in a thread and then says what came of it.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern "C" sigjmp_buf out;
extern "C" const char *what, *path, *other;
extern "C" volatile sig_atomic_t handled;

#ifdef LIBRARY

static int made;
extern "C" int is_made(void) { return made; }
static void handler(int) { handled++; }
static void jumps(int) { siglongjmp(out, 2); }
static void *late(void *p) { return p; }

__attribute__((constructor)) static void begins(void)
{
	struct sigaction sa = {};
	pthread_t t;
	int status;
	pid_t child;
	made = 1;
	switch (*what) {
	case 'a': // dies
		abort();
	case 'c': // a null pointer
		*(volatile int *)nullptr = 1;
		break;
	case 'e':
		exit(3);
	case 'f': // forks: the child goes on, opens others, and ends
		if ((child = fork()) == 0) {
			void *again = dlopen(path, RTLD_NOW);
			_exit(again && dlclose(again) == 0 ? 7 : 8);
		}
		waitpid(child, &status, 0);
		printf("child %d\n", WEXITSTATUS(status));
		break;
	case 'h': // a handler
		sa.sa_handler = handler;
		sigaction(SIGUSR1, &sa, nullptr);
		raise(SIGUSR1);
		break;
	case 'j': // leaves dlopen, which keeps its lock
		siglongjmp(out, 1);
	case 'J': // a handler does
		sa.sa_handler = jumps;
		sigaction(SIGUSR1, &sa, nullptr);
		raise(SIGUSR1);
		break;
	case 'm': // all signals are blocked from here on
		sigset_t all;
		sigfillset(&all);
		pthread_sigmask(SIG_SETMASK, &all, nullptr);
		break;
	case 'o': // opens another one, which another thread is about to do
		handled = 1;
		usleep(20000);
		made += dlopen(other, RTLD_NOW) != nullptr;
		break;
	case 'p': // the thread ends
		pthread_exit(nullptr);
	case 's': // another program
		printf("system %d\n", system("exit 5") >> 8);
		break;
	case 't': // a thread that lives longer
		pthread_create(&t, nullptr, late, nullptr);
		pthread_detach(t);
		break;
	case 'x':
		throw 1;
	}
}

#else

sigjmp_buf out;
const char *what, *path, *other;
volatile sig_atomic_t handled;

static void *opens(void *)
{
	void *volatile lib = nullptr;
	int jumped = sigsetjmp(out, 1);
	try {
		if (jumped == 0)
			lib = dlopen(*what == 'o' ? strrchr(path, '/') + 1 : path, RTLD_NOW); // by a name it is looked for where the caller says
	} catch (int) {
		jumped = 3;
	}
	// Whose lock ld.so's is may open what it likes.
	void *again = dlopen(path, RTLD_NOW);
	printf("%s: jumped %d, opened %d, again %d, made %d, handled %d\n", what, jumped, lib != nullptr, again != nullptr, ((int (*)())dlsym(again, "is_made"))(), (int)handled);
	return again;
}

static void *waits(void *)
{
	void *lib = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
	printf("another thread %d\n", lib != nullptr);
	return nullptr;
}

static void *opens_other(void *)
{
	while (!handled)
		usleep(100);
	return dlopen(other, RTLD_NOW);
}

int main(int, char **argv)
{
	what = argv[1];
	path = argv[2];
	other = argv[3];
	setvbuf(stdout, nullptr, _IONBF, 0);
	pthread_t t, too;
	if (*what == 'o')
		pthread_create(&too, nullptr, opens_other, nullptr);
	pthread_create(&t, nullptr, opens, nullptr);
	pthread_join(t, nullptr);
	if (*what == 'o')
		pthread_join(too, nullptr);
	if (strchr("jJxp", *what)) // ld.so is locked
		_exit(4);
	pthread_create(&t, nullptr, waits, nullptr);
	pthread_join(t, nullptr);
	return 4;
}

#endif
