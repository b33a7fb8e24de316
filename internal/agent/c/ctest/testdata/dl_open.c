/* dlopen sees its caller: RUNPATH, RPATH and $ORIGIN of the module that calls; dlsym(RTLD_NEXT); constructors; errors. Built in three parts:
 * the program, libcaller.so in its own directory with the search path, libfound.so beside it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef FOUND
__attribute__((constructor)) static void up(void)
{
	printf("found up, next malloc %d\n", dlsym(RTLD_NEXT, "malloc") != NULL);
	void *h = dlopen("libm.so.6", RTLD_LAZY);
	printf("nested dlopen %d\n", h != NULL);
}
__attribute__((destructor)) static void down(void) { printf("found down\n"); }
static void at_exit(void) { printf("found atexit\n"); }
int found(void) { atexit(at_exit); return 5; }
#elif defined(CALLER)
void *caller_open(const char *name) { return dlopen(name, RTLD_NOW | RTLD_LOCAL); }
#else
static const char *outcome(void *h)
{
	if (h)
		return "opened";
	static char buf[300];
	snprintf(buf, sizeof buf, "%s", dlerror());
	return buf;
}

int main(void)
{
	setvbuf(stdout, NULL, _IONBF, 0);
	static const char *callers[] = {"./runpath/libcaller.so", "./rpath/libcaller.so"};
	printf("self: %s\n", outcome(dlopen("libfound.so", RTLD_NOW)));
	for (int i = 0; i < 2; i++) {
		void *c = dlopen(callers[i], RTLD_NOW);
		printf("caller %s\n", outcome(c));
		void *(*open)(const char *) = (void *(*)(const char *))dlsym(c, "caller_open");
		void *f = open("libfound.so");
		printf("by name: %s\n", outcome(f));
		int (*found)(void) = f ? (int (*)(void))dlsym(f, "found") : NULL;
		printf("call %d\n", found ? found() : -1);
		void *again = open("$ORIGIN/libfound.so");
		printf("by origin: %s same %d\n", outcome(again), again == f);
		printf("by origin of ours: %s\n", outcome(dlopen("$ORIGIN/runpath/libfound.so", RTLD_NOW | RTLD_NOLOAD)) [0] == 'o' ? "loaded" : "not loaded");
		printf("missing: %s\n", outcome(open("./no/such.so")));
		if (f) {
			printf("close %d\n", dlclose(f));
			printf("close %d\n", dlclose(again));
		}
		printf("no such symbol: %s\n", outcome(dlsym(c, "nothing")));
		printf("close %d\n", dlclose(c));
	}
	void *self = dlopen(NULL, RTLD_NOW);
	printf("null %s main %d\n", outcome(self), dlsym(self, "printf") != NULL);
	printf("empty %s\n", outcome(dlopen("", RTLD_NOW)));
	printf("bad mode %s\n", outcome(dlopen("libm.so.6", 0)));
	printf("close bad %d\n", dlclose(self));
	for (int i = 0; i < 200; i++) {
		void *h = dlopen("./runpath/libcaller.so", RTLD_NOW);
		if (!h || dlclose(h))
			printf("lost %d\n", i);
	}
	dlopen("./runpath/libfound.so", RTLD_NOW);
	return 0;
}
#endif
