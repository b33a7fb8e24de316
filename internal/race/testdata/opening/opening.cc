// What initialisers of libraries do that threads open: one source for the program (-DDIR, where the libraries are) and each library (-DLIBRARY=...).
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>
#include <string>

// No mov at any level of optimization: a race is certain.
#define ADD(x) __asm__ volatile("addl $1, %0" : "+m"(x))

extern "C" int serial, by_object, by_dependency, by_thread_of_initialiser; // the program's
extern "C" void *opened(const char *name, int flags);
extern "C" void is_in(void);

#if defined LIBRARY

#define SLOW 1   // its initialiser lets others come
#define QUICK 2
#define NESTS 3  // its initialiser opens another one
#define NEEDS 4  // it is linked with BASE
#define BASE 5
#define THREAD 6 // its initialiser makes a thread
#define LACKS 7  // a symbol of it is nowhere
#define TEXT 8   // its code is relocated
#define SHOWN 9  // everybody finds it
#define LASTS 10 // it is there when the program ends

#if LIBRARY == SLOW
struct Made {
	std::string name = std::string(64, 'x');
	Made()
	{
		is_in();
		for (int i = 0; i < 4; i++) {
			ADD(serial);
			usleep(5000);
		}
		ADD(by_object); // race by_object
	}
	~Made() { ADD(serial); }
};
static Made made;
extern "C" unsigned long opened_size(void) { return made.name.size(); }
#elif LIBRARY == QUICK
__attribute__((constructor)) static void begins(void) { ADD(serial); }
__attribute__((destructor)) static void ends(void) { ADD(serial); }
#elif LIBRARY == NESTS
static void *inner;
__attribute__((constructor)) static void begins(void)
{
	ADD(serial);
	inner = opened("quick", RTLD_LAZY);
	ADD(serial);
}
__attribute__((destructor)) static void ends(void)
{
	ADD(serial);
	dlclose(inner);
}
#elif LIBRARY == NEEDS
extern "C" int base(void);
__attribute__((constructor)) static void begins(void) { base(); }
#elif LIBRARY == BASE
static int value;
extern "C" int base(void) { return value; }
__attribute__((constructor)) static void begins(void)
{
	value = 1;
	ADD(by_dependency); // race by_dependency
}
#elif LIBRARY == THREAD
static int own, joined;
static void *runs(void *p)
{
	ADD(own); // race own_of_thread
	ADD(joined);
	ADD(by_thread_of_initialiser); // race by_thread_of_initialiser
	return p;
}
__attribute__((constructor)) static void begins(void)
{
	pthread_t t;
	ADD(joined);
	pthread_create(&t, 0, runs, 0);
	ADD(own); // race own_of_thread
	pthread_join(t, 0);
	ADD(joined);
}
#elif LIBRARY == LACKS
extern "C" void nowhere(void);
__attribute__((constructor)) static void begins(void) { nowhere(); }
#elif LIBRARY == TEXT
extern "C" int *const in_text __attribute__((visibility("hidden")));
__asm__(".text\n.p2align 3\n.globl in_text\nin_text:\t.quad serial\n");
__attribute__((constructor)) static void begins(void) { ADD(*in_text); }
#elif LIBRARY == SHOWN
static int value;
__attribute__((constructor)) static void begins(void) { ADD(value); }
extern "C" void shown_adds(void) { ADD(value); }
#elif LIBRARY == LASTS
static int value, counted, forks;
static void before_fork(void) { ADD(forks); }
static struct Counted {
	Counted() { ADD(counted); }
	~Counted() { ADD(counted); ADD(value); }
} object;
__attribute__((constructor)) static void begins(void)
{
	ADD(value);
	ADD(counted);
	ADD(forks);
	pthread_atfork(before_fork, nullptr, nullptr);
}
__attribute__((destructor)) static void ends(void) { ADD(value); ADD(counted); }
#endif

#else

#include "../run.h"
#define MUST(x) do { if (!(x)) abort(); } while (0)

int serial, by_object, by_dependency, by_thread_of_initialiser;

void *opened(const char *name, int flags)
{
	char path[256];
	snprintf(path, sizeof path, DIR "/lib%s.so", name);
	return dlopen(path, flags);
}

static void *must(const char *name)
{
	void *lib = opened(name, RTLD_NOW);
	MUST(lib);
	return lib;
}

// Three threads of which two wait for ld.so, which lets one in at a time: serial is in order.
void is_in(void) { unseen_done(); }
static void *opens_slow(void *p)
{
	void *lib = must("slow");
	MUST(((unsigned long (*)(void))dlsym(lib, "opened_size"))() == 64);
	MUST(dlclose(lib) == 0);
	return p;
}
static void *opens_quick(void *name)
{
	unseen_wait();
	MUST(dlclose(must((const char *)name)) == 0);
	return 0;
}
static void *closes(void *lib)
{
	unseen_wait();
	MUST(dlclose(lib) == 0);
	return 0;
}
static void three(const char *name, const char *closed)
{
	pthread_t t[3];
	unseen_begin();
	void *lib = must(closed);
	pthread_create(&t[0], 0, opens_slow, 0);
	pthread_create(&t[1], 0, opens_quick, (void *)name);
	pthread_create(&t[2], 0, closes, lib);
	for (pthread_t x : t)
		pthread_join(x, 0);
}

// Nothing orders these with the initialisers.
static void *opens(void *name)
{
	dlclose(must((const char *)name));
	unseen_done();
	return 0;
}
static void *adds(void *p)
{
	unseen_wait();
	ADD(by_object); // race by_object
	ADD(by_dependency); // race by_dependency
	ADD(by_thread_of_initialiser); // race by_thread_of_initialiser
	return p;
}
static void apart(const char *name)
{
	pthread_t t[2];
	unseen_begin();
	pthread_create(&t[0], 0, opens, (void *)name);
	pthread_create(&t[1], 0, adds, 0);
	pthread_join(t[0], 0);
	pthread_join(t[1], 0);
}

// A library that cannot be opened was there for a moment; others come to lie in its place.
static void *fails(void *p)
{
	for (int i = 0; i < 4; i++) {
		MUST(!opened("lacks", RTLD_NOW) && strstr(dlerror(), "nowhere"));
		MUST(dlclose(must(i % 2 ? "quick" : "text")) == 0);
	}
	return p;
}

// Who finds its function has waited for ld.so, of which dlsym does not tell.
static void *shows(void *p)
{
	MUST(opened("shown", RTLD_NOW | RTLD_GLOBAL));
	return p;
}
static void *finds(void *p)
{
	void *f;
	while (!(f = dlsym(RTLD_DEFAULT, "shown_adds")))
		sched_yield();
	((void (*)(void))f)();
	return p;
}

// Nobody waits for the thread: the main thread runs finishers of what it has opened, and what an initialiser registered for forks.
static void *lasts(void *)
{
	must("lasts");
	unseen_done();
	for (;;)
		pause();
}

int main(void)
{
	pthread_t t;
	three("quick", "nests");
	three("nests", "text");
	three("text", "quick");
	apart("slow");
	apart("needs");
	apart("thread");
	pthread_create(&t, 0, fails, 0);
	pthread_join(t, 0);
	puts(serial > 40 / 2 ? "opened" : "not");
	both(shows, finds);
	unseen_begin();
	pthread_create(&t, 0, lasts, 0);
	unseen_wait();
	pid_t pid = fork();
	if (pid == 0)
		_exit(0);
	MUST(waitpid(pid, nullptr, 0) == pid);
	return 0;
}
#endif
