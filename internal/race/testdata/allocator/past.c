// Blocks that were freed are had again past malloc: of the program's allocator (allocator.c) by a function of its own, and, where the allocator is libc's, by a library that was loaded with RTLD_DEEPBIND
// (deep). -DLIBRARY: that which calls it, linked or loaded late. Nothing is wrong.
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef LIBRARY
#ifdef OTHER
void *other_alloc(size_t n);
void other_free(void *p);
void *get(size_t n) { return other_alloc(n); }
void drop(void *p) { other_free(p); }
#else
void *get(size_t n) { return malloc(n); }
void drop(void *p) { free(p); }
#endif
#else
static void *nothing(void *arg) { return arg; }

int main(void)
{
	pthread_t thread;
	pthread_create(&thread, NULL, nothing, NULL);
	pthread_join(thread, NULL);
	char *early = malloc(200), *p = malloc(300);
	early[0] = p[0] = 1;
	free(early);
#ifdef LATE
	void *lib = dlopen(LATE, RTLD_NOW | MODE);
	void *(*get)(size_t) = (void *(*)(size_t))dlsym(lib, "get");
	void (*drop)(void *) = (void (*)(void *))dlsym(lib, "drop");
#else
	extern void *get(size_t);
	extern void drop(void *);
#endif
	free(p);
	for (int i = 0; i < 3; i++) {
		volatile char *a = get(200), *b = get(300);
		a[100] = b[200] = (char)i;
		if (i == 1) {
			drop((void *)a);
			drop((void *)b);
		} else {
			free((void *)b);
			free((void *)a);
		}
	}
	puts("done");
	return 0;
}
#endif
