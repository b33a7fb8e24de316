// A library is closed and opened again: its locks are others than before, though at the same addresses.
// ripstop: verdict none
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

static void (*step[2])(void);

static void *one(void *arg)
{
	await(1);
	step[0]();
	reach(2);
	return arg;
}

static void *two(void *arg)
{
	await(3);
	step[1]();
	return arg;
}

int main(int argc, char **argv)
{
	static const char *const names[] = {"lib_forth", "lib_back"};
	pthread_t t1, t2;
	if (argc < 2)
		return 1;
	pthread_create(&t1, NULL, one, NULL);
	pthread_create(&t2, NULL, two, NULL);
	for (int i = 0; i < 2; i++) {
		void *lib = dlopen(argv[1], RTLD_NOW);
		if (!lib)
			return 1;
		step[i] = (void (*)(void))dlsym(lib, names[i]);
		reach(2 * i + 1);
		if (i == 0)
			await(2);
		else
			pthread_join(t2, NULL);
		dlclose(lib);
	}
	pthread_join(t1, NULL);
	puts("done");
	return 0;
}
#endif
