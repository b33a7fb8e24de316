/* dl_deepbind.c: blocks go from hand to hand between the program and a library that may have been loaded with RTLD_DEEPBIND; all rightly, but for
 * "wrong". */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#ifdef LIBRARY
void unlock(pthread_mutex_t *m) { pthread_mutex_unlock(m); }
void *get(size_t n) { return malloc(n); }
void drop(void *p) { free(p); }
#else
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

enum { BLOCKS = 64 };

int main(int argc, char **argv)
{
	const char *how = argc > 1 ? argv[1] : "";
	void *lib = dlopen("libdeep.so", RTLD_NOW | (strcmp(how, "deep") == 0 ? RTLD_DEEPBIND : 0));
	if (!lib)
		return 1;
	void *(*get)(size_t) = (void *(*)(size_t))dlsym(lib, "get");
	void (*drop)(void *) = (void (*)(void *))dlsym(lib, "drop");
	for (int round = 0; round < 3; round++) {
		for (size_t n = 24; n < 100000; n *= 4) {
			free(malloc(n));
			free(get(n)); /* at the same place, as a rule */
		}
		void *large = malloc(60000), *all[BLOCKS];
		drop(large);
		for (int i = 0; i < BLOCKS; i++)
			all[i] = get(700); /* where the large block was */
		for (int i = 0; i < BLOCKS; i++)
			free(all[i]);
	}
	void (*unlock)(pthread_mutex_t *) = (void (*)(pthread_mutex_t *))dlsym(lib, "unlock");
	static pthread_mutex_t a = PTHREAD_MUTEX_INITIALIZER, b = PTHREAD_MUTEX_INITIALIZER;
	for (int i = 0; i < 2; i++) { /* a and b are never held both but in the order b, a */
		pthread_mutex_lock(&a);
		unlock(&a);
		pthread_mutex_lock(&b);
		pthread_mutex_lock(&a);
		pthread_mutex_unlock(&a);
		pthread_mutex_unlock(&b);
	}
	if (strcmp(how, "wrong") == 0) {
		char *volatile p = malloc(1000);
		memset(p, 0, 1000);
		((size_t *)p)[15] = 32; /* a head that glibc believes: it does not notice */
		((size_t *)p)[19] = 32;
		free(p + 128);
	}
	puts("done");
	return 0;
}
#endif
