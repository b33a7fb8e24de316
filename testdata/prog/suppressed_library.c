// The inversion of a library that a suppression names: nothing is reported.
// ripstop: verdict none
// ripstop: flags --suppressions {src}/suppressed_library.supp
// ripstop: library
// ripstop: args {lib}
#ifdef LIBRARY
#include <pthread.h>
static pthread_mutex_t lib_a = PTHREAD_MUTEX_INITIALIZER, lib_b = PTHREAD_MUTEX_INITIALIZER;

void lib_forth(void)
{
	pthread_mutex_lock(&lib_a);
	pthread_mutex_lock(&lib_b);
	pthread_mutex_unlock(&lib_b);
	pthread_mutex_unlock(&lib_a);
}

void lib_back(void)
{
	pthread_mutex_lock(&lib_b);
	pthread_mutex_lock(&lib_a);
	pthread_mutex_unlock(&lib_a);
	pthread_mutex_unlock(&lib_b);
}
#else
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include "order.h"

static void (*forth)(void), (*back)(void);

static void *one(void *arg)
{
	forth();
	reach(1);
	return arg;
}

static void *two(void *arg)
{
	await(1);
	back();
	return arg;
}

int main(int argc, char **argv)
{
	pthread_t t1, t2;
	void *lib = argc > 1 ? dlopen(argv[1], RTLD_NOW) : NULL;
	if (!lib)
		return 1;
	forth = (void (*)(void))dlsym(lib, "lib_forth");
	back = (void (*)(void))dlsym(lib, "lib_back");
	pthread_create(&t1, NULL, one, NULL);
	pthread_create(&t2, NULL, two, NULL);
	pthread_join(t1, NULL);
	pthread_join(t2, NULL);
	dlclose(lib);
	puts("done");
	return 0;
}
#endif
