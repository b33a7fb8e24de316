/* A library in a namespace of its own, where it has a libc of its own: threads, locks, memory, children; and calls back. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef LIBRARY
static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t c = PTHREAD_COND_INITIALIZER;
static pthread_key_t keys[40];
static int arrived, gone, sum, foreign;
static int (*back)(int);

static void destroyed(void *p) { __atomic_add_fetch(&gone, (int)(long)p, __ATOMIC_SEQ_CST); }

/* On a thread that had no values of these keys before. */
static void values(void)
{
	for (int i = 0; i < 40; i++) {
		foreign += pthread_getspecific(keys[i]) != NULL;
		pthread_setspecific(keys[i], (void *)1);
	}
}

static void *thread(void *p)
{
	values();
	for (int i = 0; i < 100; i++) {
		char *s = malloc(100 + i);
		memset(s, 1, 100 + i);
		int r = back(i);
		pthread_mutex_lock(&m);
		sum += r;
		pthread_mutex_unlock(&m);
		free(s);
	}
	pthread_mutex_lock(&m);
	arrived++;
	pthread_cond_broadcast(&c);
	while (arrived < 4)
		pthread_cond_wait(&c, &m);
	pthread_mutex_unlock(&m);
	return p;
}

int run(int (*f)(int))
{
	pthread_t t[4];
	back = f;
	if (keys[39] == 0) {
		for (int i = 0; i < 40; i++)
			pthread_key_create(&keys[i], destroyed);
	}
	values();
	for (int i = 0; i < 4; i++)
		if (pthread_create(&t[i], NULL, thread, NULL))
			return -1;
	for (int i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
	int status = 0;
	pid_t pid = fork();
	if (pid == 0)
		_exit(back(5));
	waitpid(pid, &status, 0);
	int shell = system("exit 3");
	char line[20] = "";
	FILE *p = popen("echo hello", "r");
	if (!fgets(line, sizeof line, p))
		return -2;
	int end = pclose(p);
	char text[200];
	int n = snprintf(text, sizeof text, "in the namespace: sum %d, keys %d foreign %d, fork %x, system %x, popen %d %s", sum, gone, foreign, status, shell, end, line);
	return write(1, text, n) == n ? 0 : -3;
}
#else
static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
static __thread int mine;

static int called(int i)
{
	char *s = malloc(64 + i);
	strcpy(s, "called");
	pthread_mutex_lock(&m);
	mine++;
	pthread_mutex_unlock(&m);
	free(s);
	return i;
}

static void *nothing(void *p) { return p; }

static void *run_there(void *f)
{
	return (void *)(long)((int (*)(int (*)(int)))f)(called);
}

int main(int argc, char **argv)
{
	setvbuf(stdout, NULL, _IONBF, 0);
	printf("none: %d\n", dlmopen(LM_ID_NEWLM, "./libnone.so", RTLD_NOW) == NULL);
	void *here = dlmopen(LM_ID_BASE, "libm.so.6", RTLD_NOW);
	printf("base: %d\n", here != NULL && dlsym(here, "cos") != NULL);
	if (argc > 1)
		return 0;
	void *h = dlmopen(LM_ID_NEWLM, "./libspace.so", RTLD_NOW);
	if (!h) {
		printf("%s\n", dlerror());
		return 1;
	}
	Lmid_t id = -1;
	int r = dlinfo(h, RTLD_DI_LMID, &id);
	printf("dlinfo %d namespace %ld\n", r, id);
	void *f = dlsym(h, "run"), *there = NULL;
	/* This libc's locks are not atomic until it has made a thread itself, whatever the other one makes. */
	pthread_t t;
	pthread_create(&t, NULL, nothing, NULL);
	pthread_join(t, NULL);
	printf("run %d\n", (int)(long)run_there(f));
	pthread_create(&t, NULL, run_there, f); /* a thread of ours in there */
	pthread_join(t, &there);
	printf("run in a thread %d\n", (int)(long)there);
	void *more = dlmopen(id, "libm.so.6", RTLD_NOW);
	printf("more %d\n", more != NULL);
	void *own = dlmopen(LM_ID_NEWLM, "libspace.so", RTLD_NOW); /* by the program's own search path */
	printf("by name %d\n", own != NULL);
	printf("close %d %d\n", dlclose(more), dlclose(h));
	called(1);
	return 0;
}
#endif
