// A library that programs of others are started with. PLANT says what it does wrong, a letter each, with blocks that it has had since the start: o writes behind one, u before one, f to one that it has freed. Without a letter it does the same in the
// block's bounds, or before it frees it. AT says when: "end", when the program ends; "work", some time after its start or at the latest when it ends, in a thread of the library's, which then frees the blocks.
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { SIZE = 100, WRITTEN = 8, BLOCKS = 24 };
static char *row[BLOCKS]; // a few apart, so that each has neighbours
static char **const over = &row[4], **const under = &row[12], **const freed = &row[20];
static char wrong[8];
static int at_work;
static pthread_t worker;
static pid_t process; // its children do nothing

static void plant_blocks(void)
{
	for (int i = 0; i < BLOCKS; i++)
		row[i] = calloc(1, SIZE);
}

__attribute__((noinline)) static void plant_over(volatile char *p, int by)
{
	for (int i = 0; i < WRITTEN; i++)
		p[SIZE - WRITTEN + by + i] = 'o'; // o
}

__attribute__((noinline)) static void plant_under(volatile char *p, int by)
{
	p[-by] = 'u'; // u
}

__attribute__((noinline)) static void plant_freed(volatile char *p)
{
	p[24] = 'f'; // f
}

__attribute__((noinline)) static void plant_free(char *p) { free(p); }

static int has(char letter) { return strchr(wrong, letter) != NULL; }

static void plant_work(void)
{
	plant_over(*over, has('o') ? 4 : 0);
	plant_free(*over);
	plant_under(*under, has('u') ? 1 : 0);
	plant_free(under[-1]);
	plant_free(*under);
}

static void *thread(void *arg)
{
	nanosleep(&(struct timespec){0, 300000000}, NULL);
	plant_work();
	return arg;
}

static void plant_end(void)
{
	volatile char *p = *freed;
	if (!has('f'))
		plant_freed(p);
	plant_free(*freed);
	if (has('f'))
		plant_freed(p);
	plant_over(*over, has('o') ? 4 : 0);
	plant_under(*under, has('u') ? 1 : 0);
}

__attribute__((constructor)) static void begin(void)
{
	const char *letters = getenv("PLANT"), *at = getenv("AT");
	process = getpid();
	strncpy(wrong, letters ? letters : "", sizeof wrong - 1);
	plant_blocks();
	at_work = at && !strcmp(at, "work") && pthread_create(&worker, NULL, thread, NULL) == 0;
	// What the program starts is not looked at.
	unsetenv("LD_PRELOAD");
	unsetenv("PLANT");
	unsetenv("AT");
}

__attribute__((destructor)) static void end(void)
{
	if (getpid() != process)
		return;
	if (at_work)
		pthread_join(worker, NULL);
	else
		plant_end();
}
