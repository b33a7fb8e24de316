// Small blocks that main hands to another thread under a lock, and writes to once more without it before that one has touched them: the owner's last access against the other's first. Of the first block of an
// allocation the write was told to nobody. Later blocks of an allocation whose blocks were found shared are shared from when they are handed out; before that was so none of these was found.
// Who reads waits a while first, so that the write is mostly earlier; if it is not, the race is found as well.
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ROUNDS = 6, KINDS = 8, APART = 20000 }; // nothing is near a block, or handed out twice, or it would be shared for what was there

struct item { long kind, late[7]; char apart[APART]; };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t moved = PTHREAD_COND_INITIALIZER;
static struct item *given; // under the lock, as the next
static int state;          // of it: given, taken, read
static long sum, taken;
static void *volatile none; // or the compiler calls malloc

__attribute__((noinline)) static struct item *make(int kind)
{
	struct item *p = NULL;
	void *aligned = NULL;
	switch (kind) {
	case 0:
		p = malloc(sizeof *p);
		break;
	case 1:
		p = calloc(1, sizeof *p);
		break;
	case 2:
		p = malloc(600000);
		break;
	case 3:
		p = realloc(none, sizeof *p);
		break;
	case 4:
		p = realloc(malloc(24), sizeof *p);
		break;
	case 5:
		p = realloc(malloc(30000), 600000);
		break;
	case 6:
		p = aligned_alloc(64, (sizeof *p + 63) & -64ul);
		break;
	case 7:
		p = posix_memalign(&aligned, 4096, sizeof *p) == 0 ? aligned : NULL;
	}
	p->kind = kind;
	return p;
}

#define KIND(n) \
	static __attribute__((noinline)) void late##n(struct item *p, int write) { volatile long *at = &p->late[n]; if (write) *at = 1; else sum += *at == 1; }

KIND(0) // race-mov malloc
KIND(1) // race-mov calloc
KIND(2) // race-mov large
KIND(3) // race-mov reallocated
KIND(4) // race-mov grown
KIND(5) // race-mov enlarged
KIND(6) // race-mov aligned_alloc
KIND(7) // race-mov posix_memalign

static void (*const late[KINDS])(struct item *, int) = {late0, late1, late2, late3, late4, late5, late6, late7};

static void *takes(void *arg)
{
	for (int i = 0; i < ROUNDS * KINDS; i++) {
		pthread_mutex_lock(&lock);
		while (state != 1)
			pthread_cond_wait(&moved, &lock);
		struct item *p = given;
		state = 2;
		pthread_cond_signal(&moved);
		pthread_mutex_unlock(&lock);
		usleep(3000);
		late[i % KINDS](p, 0);
		pthread_mutex_lock(&lock);
		state = 3;
		taken++;
		pthread_cond_signal(&moved);
		pthread_mutex_unlock(&lock);
	}
	return arg;
}

int main(void)
{
	pthread_t t;
	struct item *all[ROUNDS * KINDS];
	if (pthread_create(&t, NULL, takes, NULL) != 0)
		return 1;
	for (int i = 0; i < ROUNDS * KINDS; i++) {
		struct item *p = make(i % KINDS);
		pthread_mutex_lock(&lock);
		given = p;
		state = 1;
		pthread_cond_signal(&moved);
		while (state == 1)
			pthread_cond_wait(&moved, &lock);
		pthread_mutex_unlock(&lock);
		late[i % KINDS](p, 1);
		pthread_mutex_lock(&lock);
		while (state != 3)
			pthread_cond_wait(&moved, &lock);
		pthread_mutex_unlock(&lock);
		all[i] = p;
	}
	pthread_join(t, NULL);
	for (int i = 0; i < ROUNDS * KINDS; i++)
		free(all[i]);
	printf("%ld taken\n", taken);
	return 0;
}
