/* A program as if linked with glibc 2.2.5: the older of each two versions of a function. With LIBRARY: a library without any versions. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef LIBRARY
int plain_signal(void *c) { return pthread_cond_signal(c); }
#else
/* All that there was of it in 2002. */
struct old_cond { void *inner; };
#define OLD(name, version) __asm__(".symver old_" #name ", " #name "@" version)
OLD(pthread_cond_init, "GLIBC_2.2.5");
OLD(pthread_cond_destroy, "GLIBC_2.2.5");
OLD(pthread_cond_wait, "GLIBC_2.2.5");
OLD(pthread_cond_timedwait, "GLIBC_2.2.5");
OLD(pthread_cond_signal, "GLIBC_2.2.5");
OLD(pthread_cond_broadcast, "GLIBC_2.2.5");
OLD(posix_spawn, "GLIBC_2.2.5");
OLD(posix_spawnp, "GLIBC_2.2.5");
OLD(pthread_kill, "GLIBC_2.2.5");
OLD(quick_exit, "GLIBC_2.10");
OLD(pthread_create, "GLIBC_2.2.5");
OLD(sem_init, "GLIBC_2.2.5");
int old_pthread_cond_init(struct old_cond *, const pthread_condattr_t *);
int old_pthread_cond_destroy(struct old_cond *);
int old_pthread_cond_wait(struct old_cond *, pthread_mutex_t *);
int old_pthread_cond_timedwait(struct old_cond *, pthread_mutex_t *, const struct timespec *);
int old_pthread_cond_signal(struct old_cond *);
int old_pthread_cond_broadcast(struct old_cond *);
int old_posix_spawn(pid_t *, const char *, void *, void *, char *const *, char *const *);
int old_posix_spawnp(pid_t *, const char *, void *, void *, char *const *, char *const *);
int old_pthread_kill(pthread_t, int);
void old_quick_exit(int) __attribute__((noreturn));
int old_pthread_create(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
int plain_signal(void *);
int __cxa_thread_atexit_impl(void (*)(void *), void *, void *);
extern char **environ;
extern void *__dso_handle;

static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
static struct { struct old_cond c; char beside[56]; } a, b;
static volatile int turn, ready;

static void *player(void *p)
{
	(void)p;
	pthread_mutex_lock(&m);
	ready++;
	for (int i = 0; i < 50; i++) {
		while (turn != 1)
			old_pthread_cond_wait(&a.c, &m);
		turn = 0;
		if (i % 3 == 0)
			plain_signal(&b.c);
		else if (i % 3 == 1)
			old_pthread_cond_signal(&b.c);
		else
			old_pthread_cond_broadcast(&b.c);
	}
	pthread_mutex_unlock(&m);
	return NULL;
}

static void *nothing(void *p) { return p; }
static void last(void *p) { printf("destructor %s\n", (char *)p); }

static int status_of(pid_t pid)
{
	int status = -1;
	waitpid(pid, &status, 0);
	return status;
}

int main(void)
{
	setvbuf(stdout, NULL, _IONBF, 0);
	pthread_t t;
	memset(a.beside, 'a', sizeof a.beside);
	memset(b.beside, 'b', sizeof b.beside);
	printf("init %d\n", old_pthread_cond_init(&a.c, NULL));
	printf("create %d\n", old_pthread_create(&t, NULL, player, NULL));
	pthread_mutex_lock(&m);
	for (int i = 0; i < 50; i++) {
		turn = 1;
		old_pthread_cond_signal(&a.c);
		while (turn != 0)
			old_pthread_cond_wait(&b.c, &m);
	}
	struct timespec past = {1, 0};
	printf("timed %d\n", old_pthread_cond_timedwait(&a.c, &m, &past));
	pthread_mutex_unlock(&m);
	printf("join %d\n", pthread_join(t, NULL));
	int kept = 0;
	for (size_t i = 0; i < sizeof a.beside; i++)
		kept += a.beside[i] == 'a' && b.beside[i] == 'b';
	printf("bytes beside the conditions kept: %d of %d\n", kept, (int)sizeof a.beside);
	printf("destroy %d %d\n", old_pthread_cond_destroy(&a.c), old_pthread_cond_destroy(&b.c));

	/* A text without a first line: given to the shell then, refused now. */
	FILE *f = fopen("text", "w");
	fputs("exit 7\n", f);
	fclose(f);
	chmod("text", 0755);
	char *argv[] = {"text", NULL};
	pid_t pid = 0;
	int r = old_posix_spawn(&pid, "./text", NULL, NULL, argv, environ);
	printf("old spawn %d status %x\n", r, r ? 0 : status_of(pid));
	r = old_posix_spawnp(&pid, "./text", NULL, NULL, argv, environ);
	printf("old spawnp %d status %x\n", r, r ? 0 : status_of(pid));
	r = posix_spawn(&pid, "./text", NULL, NULL, argv, environ);
	printf("new spawn %d\n", r);
	r = posix_spawnp(&pid, "./text", NULL, NULL, argv, environ);
	printf("new spawnp %d\n", r);

	pthread_create(&t, NULL, nothing, NULL);
	while (pthread_kill(t, 0) == 0 && old_pthread_kill(t, 0) == 0)
		; /* until it has ended */
	printf("kill old %d new %d\n", old_pthread_kill(t, 0), pthread_kill(t, 0));
	pthread_join(t, NULL);

	if ((pid = fork()) == 0) {
		__cxa_thread_atexit_impl(last, "old", &__dso_handle);
		old_quick_exit(3);
	}
	printf("old quick_exit %x\n", status_of(pid));
	if ((pid = fork()) == 0) {
		__cxa_thread_atexit_impl(last, "new", &__dso_handle);
		quick_exit(4);
	}
	printf("new quick_exit %x\n", status_of(pid));

	/* What the linker says there is. */
	static const char *const names[] = {"pthread_cond_wait", "pthread_cond_init", "posix_spawn", "quick_exit", "pthread_kill", "pthread_create",
		"cfree", "pthread_mutex_consistent_np", "__pthread_mutex_lock", "__pthread_rwlock_unlock", "__pthread_once", "__read", "creat64"};
	static const char *const versions[] = {"GLIBC_2.2.5", "GLIBC_2.3.2", "GLIBC_2.4", "GLIBC_2.10", "GLIBC_2.15", "GLIBC_2.24", "GLIBC_2.34"};
	for (unsigned i = 0; i < sizeof names / sizeof *names; i++) {
		void *now = dlsym(RTLD_DEFAULT, names[i]);
		printf("%s: default %d", names[i], now != NULL);
		for (unsigned k = 0; k < sizeof versions / sizeof *versions; k++) {
			if (dlvsym(RTLD_DEFAULT, names[i], versions[k]))
				printf(", %s", versions[k]);
		}
		printf("\n");
	}
	return 0;
}
#endif
