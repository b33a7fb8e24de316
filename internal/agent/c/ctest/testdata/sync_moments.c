/* Locks taken on many paths and held while other code runs; at times a second lock, never used before, is taken inside. Printed for each of these:
 * its address, how the outer lock was held, and the stack from which the outer lock was taken, as backtrace() told it then.
 *   nested    the frames that took it are there when the second is taken, but for those of wrappers
 *   left      many frames have been left since, and other code runs in their place */
#define _GNU_SOURCE
#include <alloca.h>
#include <execinfo.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 4000, DEPTH = 32 };
#define NOINLINE __attribute__((noinline, noclone))

struct thread {
	unsigned seed;
	int inner;               /* the next unused of `fresh` */
	pthread_mutex_t outer[2], *fresh;
	void *trace[2][DEPTH];   /* of the outer locks */
	int frames[2];
	volatile char sink;
};

static unsigned draw(struct thread *t, unsigned n)
{
	t->seed = t->seed * 1103515245 + 12345;
	return (t->seed >> 16) % n;
}

static void print(struct thread *t, pthread_mutex_t *m, int which, const char *how)
{
	char line[64 + DEPTH * 20], *p = line;
	p += sprintf(p, "%p %s", (void *)m, how);
	for (int i = 1; i < t->frames[which]; i++)
		p += sprintf(p, " %lx", (long)t->trace[which][i]);
	*p++ = '\n';
	fwrite(line, 1, (size_t)(p - line), stdout);
}

static NOINLINE void inside(struct thread *t, int which, const char *how)
{
	pthread_mutex_t *m = &t->fresh[t->inner++];
	pthread_mutex_lock(m);
	pthread_mutex_unlock(m);
	print(t, m, which, how);
	t->sink++;
}

/* backtrace and lock are called from one frame, so that all but the innermost address are the same. */
static NOINLINE void take(struct thread *t, int which)
{
	t->frames[which] = backtrace(t->trace[which], DEPTH);
	pthread_mutex_lock(&t->outer[which]);
	t->sink++;
}
static NOINLINE void give(struct thread *t, int which)
{
	pthread_mutex_unlock(&t->outer[which]);
	t->sink++;
}
static NOINLINE void enter(struct thread *t, int which) { take(t, which); t->sink++; }
static NOINLINE void enter_wide(struct thread *t, int which)
{
	volatile char wide[72];
	wide[draw(t, 72)] = 1;
	enter(t, which);
	t->sink++;
}

static NOINLINE void churn(struct thread *t, int depth)
{
	volatile long words[12];
	for (int i = 0; i < 12; i++)
		words[i] = depth;
	if (depth > 0)
		churn(t, depth - 1);
	t->sink += (char)words[depth % 12];
}

static NOINLINE void section(struct thread *t, int which)
{
	switch (draw(t, 3)) {
	case 0: take(t, which); break;
	case 1: enter(t, which); break;
	default: enter_wide(t, which);
	}
	churn(t, (int)draw(t, 6));
	if (draw(t, 16) == 0)
		inside(t, which, "nested");
	give(t, which);
}

static NOINLINE void path(struct thread *t, int depth);
static NOINLINE void path_small(struct thread *t, int depth) { path(t, depth); t->sink++; }
static NOINLINE void path_wide(struct thread *t, int depth)
{
	volatile char wide[300];
	wide[draw(t, 300)] = 1;
	path(t, depth);
	t->sink++;
}
static NOINLINE void path_alloca(struct thread *t, int depth)
{
	volatile char *some = alloca(16 + draw(t, 200));
	some[0] = 1;
	path(t, depth);
	t->sink += some[0];
}
static NOINLINE void path(struct thread *t, int depth)
{
	if (depth == 0) {
		section(t, 0);
		return;
	}
	switch (draw(t, 3)) {
	case 0: path_small(t, depth - 1); break;
	case 1: path_wide(t, depth - 1); break;
	default: path_alloca(t, depth - 1);
	}
	t->sink++;
}

/* The other lock, held while the frames that took it are left. */
static NOINLINE void take_below(struct thread *t, int depth)
{
	volatile char wide[40];
	wide[draw(t, 40)] = 1;
	if (depth > 0)
		take_below(t, depth - 1);
	else
		enter(t, 1);
	t->sink++;
}
static NOINLINE void leave(struct thread *t)
{
	take_below(t, (int)draw(t, 12));
	churn(t, (int)draw(t, 12));
	path_wide(t, 0);
	inside(t, 1, "left");
	give(t, 1);
}

static void *run(void *arg)
{
	struct thread *t = arg;
	int late = t->seed & 1; /* the sites have been trusted by then, or never */
	for (int i = 0; i < ROUNDS; i++) {
		path(t, (int)draw(t, 8));
		if (draw(t, 64) == 0 && (!late || i > ROUNDS / 2))
			leave(t);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	void *first[1];
	backtrace(first, 1); /* loads libgcc */
	pthread_t threads[2];
	struct thread *t[2];
	for (int i = 0; i < 2; i++) {
		t[i] = calloc(1, sizeof *t[i]);
		t[i]->fresh = calloc(2 * ROUNDS, sizeof(pthread_mutex_t));
		t[i]->seed = (unsigned)(2 * i + (argc > 1 ? atoi(argv[1]) : 0));
		pthread_create(&threads[i], NULL, run, t[i]);
	}
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	return 0;
}
