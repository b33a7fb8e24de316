// Crashes whose pointer, index, divisor or return address somebody else has spoiled: `spoil_KIND` always, called by main or by another thread. What `use_KIND` does with it is different ways for a value to come to an instruction.
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FUNCTION __attribute__((noinline, noclone)) static

struct node {
	struct node *next;
	long value;
};
struct thing {
	int *data;
	int index, divisor;
	void (*function)(int);
	char *text;
	struct thing *inner;
};
static struct node *list;
static struct thing *thing;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static sem_t done;
static volatile long sink;

// A null pointer in a heap block, read there.
FUNCTION void spoil_null(void) { thing->data = NULL; }
FUNCTION void use_null(struct thing *t) { sink = *t->data; }

// An index, in an array that is all right.
FUNCTION void spoil_index(void) { thing->index = 0x7fffff00; }
FUNCTION void use_index(struct thing *t) { sink = t->data[t->index]; }

// A link in the middle of a list, which was walked before.
FUNCTION long walk(const struct node *n)
{
	long sum = 0;
	for (; n; n = n->next)
		sum += n->value;
	return sum;
}
FUNCTION void spoil_link(void)
{
	struct node *n = list;
	sink = walk(n);
	for (int i = 0; i < 20; i++)
		n = n->next;
	n->next = (struct node *)0x4141414141;
}
FUNCTION void use_link(struct thing *t) { sink = walk(t ? list : NULL); }

// Read between two calls of functions that ripstop takes over, and used behind them.
FUNCTION void spoil_locked(void) { thing->data = (int *)0x1230; }
FUNCTION void use_locked(struct thing *t)
{
	pthread_mutex_lock(&lock);
	int *p = t->data;
	pthread_mutex_unlock(&lock);
	sink++;
	sink = *p;
}

// A null that something small is added to: both could be what is wrong with the sum.
static struct { char *at; size_t used; } buffer = {(char *)&sink, 0};
FUNCTION void spoil_sum(void) { buffer.at = NULL; }
FUNCTION void use_sum(struct thing *t)
{
	buffer.used += t ? 0x120 : 1;
	memcpy(buffer.at + buffer.used, "sum", 3);
}

// An index that is multiplied as it is read.
static struct { volatile long value[125]; } rows[2];
static long row;
FUNCTION void spoil_row(void) { row = 0x7fffff00; }
FUNCTION void use_row(struct thing *t) { sink = t ? rows[row].value[3] : 0; }

// Handed down five functions.
FUNCTION void spoil_deep(void) { thing->data = (int *)0x1238; }
FUNCTION int deep5(int *p, int k) { return sink += k, p[k]; }
FUNCTION int deep4(int *p, int k) { return deep5(p, k + 1) + 1; }
FUNCTION int deep3(int *p, int k) { return deep4(p, k + 1) + 1; }
FUNCTION int deep2(int *p, int k) { return deep3(p, k + 1) + 1; }
FUNCTION int deep1(int *p, int k) { return deep2(p, k + 1) + 1; }
FUNCTION void use_deep(struct thing *t)
{
	sink = deep1(t->data, 3);
	sink++;
}

// Handed down, by functions that do much else before.
FUNCTION void spoil_outer(void) { thing->data = (int *)0x1244; }
FUNCTION long outer3(int *p)
{
	sink += walk(list);
	return *p;
}
FUNCTION long outer2(int *p)
{
	sink += walk(list);
	return outer3(p) + 1;
}
FUNCTION long outer1(int *p)
{
	for (int i = 0; i < 3; i++)
		sink += walk(list);
	return outer2(p) + 1;
}
FUNCTION void use_outer(struct thing *t)
{
	int *p = t->data;
	sink += walk(list);
	sink += outer1(p);
}

// Read by a function that has returned since, after which others were called.
FUNCTION void spoil_returned(void) { thing->data = (int *)0x1240; }
FUNCTION int *data_of(struct thing *t) { return t->data; }
FUNCTION void use_returned(struct thing *t)
{
	int *p = data_of(t);
	for (int i = 0; i < 10; i++)
		sink += walk(list);
	sink = *p;
}

// A function that there is not.
FUNCTION void spoil_function(void) { thing->function = (void (*)(int))0x1234567; }
FUNCTION void use_function(struct thing *t)
{
	t->function(3);
	sink++;
}

// The function's own return address.
FUNCTION void spoil_return(char *bytes, int n)
{
	for (int i = 0; i < n; i++)
		bytes[i] = 0x42;
}
FUNCTION void use_return(struct thing *t)
{
	char bytes[16];
	spoil_return(bytes, t ? 64 : 0);
	sink = bytes[3];
}

// Used in a function of the C library.
FUNCTION void spoil_text(void) { thing->text = (char *)0x99; }
FUNCTION void use_text(struct thing *t) { sink = (long)strlen(t->text); }

// A divisor, from a heap block to a variable to a register.
FUNCTION void spoil_divisor(void) { thing->divisor = 0; }
FUNCTION void use_divisor(struct thing *t)
{
	int by = t->divisor;
	sink++;
	sink = 1000 / by;
}

// Copied twice before it was used.
FUNCTION void spoil_copied(void) { thing->data = (int *)0x1254; }
FUNCTION void copy_to_inner(struct thing *t)
{
	sink += walk(list);
	t->inner->data = t->data;
}
FUNCTION void copy_to_array(struct thing *t, int **array)
{
	for (int i = 0; i < 5; i++)
		array[i] = i < 4 ? &t->index : t->inner->data;
}
FUNCTION void use_copied(struct thing *t)
{
	int **array = calloc(5, sizeof *array);
	copy_to_inner(t);
	sink += walk(list);
	copy_to_array(t, array);
	t->data = NULL;
	sink = *array[4];
}

// Written by the kernel.
FUNCTION void spoil_kernel(void)
{
	int fd[2];
	unsigned long bad = 0x1250;
	if (pipe(fd) != 0 || write(fd[1], &bad, sizeof bad) != sizeof bad || read(fd[0], &thing->data, sizeof bad) != sizeof bad)
		abort();
}
FUNCTION void use_kernel(struct thing *t) { sink = *t->data; }

// By another thread, which lives on, or has ended and is joined.
FUNCTION void spoil_thread(void)
{
	pthread_mutex_lock(&lock);
	thing->data = (int *)0x1260;
	pthread_mutex_unlock(&lock);
}
static void *other(void *arg)
{
	spoil_thread();
	sem_post(&done);
	while (!arg)
		pause();
	return arg;
}
FUNCTION void use_thread(struct thing *t) { use_locked(t); }

// In functions that other threads call all the while, directly and by a pointer: what is there for the thread that crashes they meet, too.
FUNCTION void spoil_crowd(void) { thing->data = (int *)0x1264; }
FUNCTION int crowd3(const int *p, int k) { return k + *p; }
static int (*volatile by_pointer)(const int *, int) = crowd3;
FUNCTION int crowd2(const int *p, int k) { return by_pointer(p, k + 1) + 1; }
FUNCTION int crowd1(const struct thing *t, int k) { return crowd2(t->data, k) + 1; }
static pthread_barrier_t together;
FUNCTION long crowd(int n, const struct thing *last)
{
	pthread_mutex_t own = PTHREAD_MUTEX_INITIALIZER;
	int one = 1;
	struct thing good = {.data = &one};
	long sum = 0;
	pthread_barrier_wait(&together);
	for (int i = 0; i < n; i++) {
		pthread_mutex_lock(&own);
		sum += crowd1(last && i == n - 1 ? last : &good, i);
		pthread_mutex_unlock(&own);
	}
	return sum;
}
static void *in_crowd(void *arg)
{
	(void)arg;
	return (void *)crowd(2000, NULL);
}
FUNCTION void use_crowd(struct thing *t) { sink = crowd(500, t); }

// In a thread's first function, which no function of the program has called.
FUNCTION void spoil_first(void) { thing->data = (int *)0x1268; }
static void *first(void *arg)
{
	sink = *((struct thing *)arg)->data;
	return arg;
}
FUNCTION void use_first(struct thing *t)
{
	pthread_t p;
	pthread_create(&p, NULL, first, t);
	pthread_join(p, NULL);
}

// There, behind a wait; and in two threads at once.
static void *waits(void *arg)
{
	pthread_barrier_wait(&together);
	sink = *((struct thing *)arg)->data;
	return arg;
}
FUNCTION void wait_with(unsigned n, struct thing *t)
{
	pthread_t p[2];
	pthread_barrier_destroy(&together);
	pthread_barrier_init(&together, NULL, n + 1);
	for (unsigned i = 0; i < n; i++)
		pthread_create(&p[i], NULL, waits, t);
	pthread_barrier_wait(&together);
	for (unsigned i = 0; i < n; i++)
		pthread_join(p[i], NULL);
}
FUNCTION void spoil_waited(void) { thing->data = (int *)0x1270; }
FUNCTION void use_waited(struct thing *t) { wait_with(1, t); }
FUNCTION void spoil_both(void) { thing->data = (int *)0x1274; }
FUNCTION void use_both(struct thing *t) { wait_with(2, t); }

// Beside a thread that calls nothing from here on.
FUNCTION void spoil_busy(void) { thing->data = (int *)0x1278; }
FUNCTION void use_busy(struct thing *t)
{
	pthread_t p;
	pthread_create(&p, NULL, first, t);
	for (;;)
		sink++;
}

// Read from a variable that was spoiled long before, in a thread that has been in one function all the while.
static int *global;
FUNCTION void spoil_earlier(void) { global = (int *)0x1280; }
static void *waits_long(void *arg)
{
	for (int i = 0; i < 200; i++) {
		pthread_mutex_lock(&lock);
		usleep(3000);
		pthread_mutex_unlock(&lock);
	}
	sink = *global;
	return arg;
}
FUNCTION void use_earlier(struct thing *t)
{
	pthread_t p;
	pthread_create(&p, NULL, waits_long, t);
	pthread_join(p, NULL);
}

// Calls that have no end, by main and by another thread.
FUNCTION int deeper(int n)
{
	volatile char frame[2000];
	frame[n % 2000] = 1;
	return deeper(n + 1) + frame[n / 2 % 2000];
}
static void *deep_thread(void *arg)
{
	sink = deeper(0);
	return arg;
}
static void spoil_nothing(void) {}
FUNCTION void use_overflow(struct thing *t) { sink = deeper(t != NULL); }
FUNCTION void use_overflowed(struct thing *t)
{
	pthread_t p;
	pthread_create(&p, NULL, deep_thread, t);
	pthread_join(p, NULL);
}

// Read from a block that was freed.
FUNCTION void spoil_freed(void)
{
	thing->inner->data = thing->data;
	free(thing->inner);
	sink++;
}
FUNCTION void use_freed(struct thing *t)
{
	sink += walk(list);
	sink = *t->inner->data;
}

// Likewise, by way of a register that calls keep.
FUNCTION void spoil_kept(void) { spoil_freed(); }
FUNCTION void use_kept(struct thing *t)
{
	struct thing *inner = t->inner;
	__asm__ volatile("" : "+b"(inner)); // rbx
	sink += walk(list);
	sink = *inner->data;
	__asm__ volatile("" : "+b"(inner));
}

// Read from behind an array.
static int **array;
FUNCTION void spoil_behind(void)
{
	array = malloc(5 * sizeof *array);
	for (int i = 0; i < 5; i++)
		array[i] = thing->data;
}
FUNCTION void use_behind(struct thing *t)
{
	for (int i = t ? 0 : 1; i <= 5; i++)
		sink += *array[i];
}

// Read from a block that nobody has filled in: it was in use before.
FUNCTION void spoil_stale(void)
{
	for (int i = 0; i < 1000; i++) {
		array = malloc(200);
		memset(array, i, 200);
		free(array);
	}
	array = malloc(200);
	sink++;
}
FUNCTION void use_stale(struct thing *t) { sink = *array[t ? 3 : 4]; }

// Or not.
FUNCTION void spoil_unset(void)
{
	array = malloc(5000);
	sink++;
}
FUNCTION void use_unset(struct thing *t) { sink = *array[t ? 3 : 4]; }

static const struct kind {
	const char *name;
	void (*spoil)(void), (*use)(struct thing *);
} kinds[] = {
#define KIND(k) {#k, spoil_##k, use_##k}
	KIND(null), KIND(index), KIND(link), KIND(locked), KIND(sum), KIND(row), KIND(deep), KIND(outer), KIND(returned), KIND(function), KIND(text), KIND(copied), KIND(divisor), KIND(kernel), KIND(crowd), KIND(first), KIND(waited), KIND(both), KIND(busy), KIND(earlier), KIND(freed), KIND(kept), KIND(behind), KIND(stale), KIND(unset),
	{"overflow", spoil_nothing, use_overflow}, {"overflowed", spoil_nothing, use_overflowed}, {"return", spoil_nothing, use_return}, {"thread", spoil_nothing, use_thread}, {"dead", spoil_nothing, use_thread},
};

int main(int argc, char **argv)
{
	const char *name = argc > 1 ? argv[1] : "";
	for (int i = 0; i < 1000; i++) {
		struct node *n = malloc(sizeof *n);
		n->next = list;
		n->value = i;
		list = n;
	}
	thing = calloc(1, sizeof *thing);
	thing->data = malloc(40);
	thing->inner = calloc(1, sizeof *thing);
	sem_init(&done, 0, 0);
	puts("begun");
	fflush(stdout);
	if (!strcmp(name, "thread")) {
		pthread_t t;
		pthread_create(&t, NULL, other, NULL);
		sem_wait(&done);
	}
	if (!strcmp(name, "dead")) {
		pthread_t t;
		pthread_create(&t, NULL, other, thing);
		pthread_join(t, NULL);
	}
	pthread_barrier_init(&together, NULL, 4);
	for (int i = 0; i < 3 && !strcmp(name, "crowd"); i++) {
		pthread_t t;
		pthread_create(&t, NULL, in_crowd, NULL);
	}
	for (unsigned i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
		if (!strcmp(name, kinds[i].name)) {
			kinds[i].spoil();
			kinds[i].use(thing);
		}
	return 0;
}
