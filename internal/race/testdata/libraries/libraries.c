// Variables of libraries, one that the program is linked with and one that it opens: their globals, those that only their own code knows, what their initialisers and finishers do. One source for the three (-DLINKED, -DOPENED).
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>

// No mov at any level of optimization: a race is certain.
#define ADD(x) __asm__ volatile("addl $1, %0" : "+m"(x))

#if defined LINKED

int linked_global, linked_exported, linked_locked, linked_made;
static int own;
static _Thread_local int each;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
__attribute__((constructor)) static void begins(void) { linked_made = 1; } // before main
void linked_adds(void)
{
	pthread_mutex_lock(&mutex);
	ADD(linked_locked);
	pthread_mutex_unlock(&mutex);
	ADD(each);
	ADD(linked_global); // race linked_global
	ADD(own); // race linked_own
}
void linked_adds_exported(void) { ADD(linked_exported); } // race linked_exported

#elif defined OPENED

extern int before_opening, in_initialiser, in_initialiser_handed, in_initialiser_asked, in_finisher, in_finisher_handed;
int opened_global, opened_locked, opened_made;
static int own;
static _Thread_local int each;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
__attribute__((constructor)) static void begins(void)
{
	opened_made = 1;
	ADD(before_opening); // race before_opening
	ADD(in_initialiser); // race in_initialiser
	ADD(in_initialiser_handed);
	ADD(in_initialiser_asked);
}
__attribute__((destructor)) static void ends(void)
{
	ADD(in_finisher); // race in_finisher
	ADD(in_finisher_handed);
}
void opened_adds(void)
{
	pthread_mutex_lock(&mutex);
	ADD(opened_locked);
	pthread_mutex_unlock(&mutex);
	ADD(each);
	ADD(opened_global); // race opened_global
	ADD(own); // race opened_own
}
int opened_is_made(void) { return opened_made; }
int *opened_at(void) { return &opened_locked; }

#else

#include "../run.h"
#define MUST(x) do { if (!(x)) abort(); } while (0)

extern int linked_exported, linked_made;
void linked_adds(void), linked_adds_exported(void);
static void *adds_linked(void *p)
{
	use(linked_made);
	linked_adds();
	return p;
}
static void *adds_there(void *p) { linked_adds_exported(); return p; }
static void *adds_here(void *p) { ADD(linked_exported); return p; } // race linked_exported

// What the program asks a library for, by name.
static void *ask(void *lib, const char *name)
{
	void *f = dlsym(lib, name);
	MUST(f);
	return f;
}

// Opened by main: threads come afterwards.
static void (*adds)(void);
static void *adds_opened(void *p) { adds(); return p; }

// Opened by a thread. What its initialisers do comes after nothing of another thread's, and before what is done by who asks for it.
int before_opening, in_initialiser, in_initialiser_handed, in_initialiser_asked, behind_opening;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static void *handed;
static void *opens(void *p)
{
	if (p)
		unseen_wait();
	void *lib = dlopen(NAME, RTLD_NOW);
	MUST(lib);
	pthread_mutex_lock(&mutex);
	handed = lib;
	pthread_mutex_unlock(&mutex);
	ADD(behind_opening); // race behind_opening
	unseen_done();
	return 0;
}
static void *is_before(void *p)
{
	ADD(before_opening); // race before_opening
	unseen_done();
	return p;
}
static void *opens_later(void *p)
{
	unseen_wait();
	void *lib = dlopen(NAME, RTLD_NOW);
	MUST(lib && dlclose(lib) == 0);
	return p;
}
static void *is_behind(void *p)
{
	unseen_wait();
	ADD(behind_opening); // race behind_opening
	ADD(in_initialiser); // race in_initialiser
	return p;
}
// Who takes the handle from the one who opened it, or asks for what is open already.
static void *is_handed(void *p)
{
	unseen_wait();
	pthread_mutex_lock(&mutex);
	void *lib = handed;
	pthread_mutex_unlock(&mutex);
	MUST(((int (*)(void))ask(lib, "opened_is_made"))() == 1);
	ADD(in_initialiser_handed);
	return p;
}
static void *asks(void *p)
{
	unseen_wait();
	void *lib = dlopen(NAME, RTLD_NOW | RTLD_NOLOAD);
	MUST(lib && ((int (*)(void))ask(lib, "opened_is_made"))() == 1);
	ADD(in_initialiser_asked);
	MUST(dlclose(lib) == 0);
	return p;
}

// Closed by a thread: its finishers run there, after nothing of another's that is not handed over.
int in_finisher, in_finisher_handed;
static void *closes(void *p)
{
	unseen_wait();
	pthread_mutex_lock(&mutex);
	void *lib = handed;
	pthread_mutex_unlock(&mutex);
	MUST(dlclose(lib) == 0);
	return p;
}
static void *is_before_closing(void *p)
{
	ADD(in_finisher_handed);
	pthread_mutex_lock(&mutex);
	pthread_mutex_unlock(&mutex);
	ADD(in_finisher); // race in_finisher
	unseen_done();
	return p;
}

// Opened again: the same place perhaps, other variables.
static void *uses_and_closes(void *p)
{
	void *lib = dlopen(NAME, RTLD_NOW);
	MUST(lib);
	ADD(*((int *(*)(void))ask(lib, "opened_at"))());
	MUST(dlclose(lib) == 0);
	unseen_done();
	return p;
}
static void *uses_again(void *p)
{
	unseen_wait();
	void *lib = dlopen(NAME, RTLD_NOW);
	MUST(lib);
	ADD(*((int *(*)(void))ask(lib, "opened_at"))());
	MUST(dlclose(lib) == 0);
	return p;
}

int main(void)
{
	both(adds_linked, adds_linked);
	both(adds_there, adds_here);
	void *lib = dlopen(NAME, RTLD_NOW);
	MUST(lib);
	adds = (void (*)(void))ask(lib, "opened_adds");
	both(adds_opened, adds_opened);
	MUST(dlclose(lib) == 0);
	unseen(is_before, opens_later);
	void *(*const behind[])(void *) = {is_behind, is_handed, asks};
	for (int i = 0; i < 3; i++) {
		unseen(opens, behind[i]);
		if (i < 2)
			MUST(dlclose(handed) == 0);
	}
	unseen(is_before_closing, closes);
	unseen(uses_and_closes, uses_again);
	puts("done");
	return 0;
}
#endif
