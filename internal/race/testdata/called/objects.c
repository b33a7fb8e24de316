// Objects of synchronisation are memory: to initialise or destroy one while another uses it is a race (ThreadSanitizer's "data race on a mutex"), unless something orders the two, the object itself included.
#include "../run.h"
#include <semaphore.h>

static pthread_mutex_t made_late, gone_early, joined, in_turn = PTHREAD_MUTEX_INITIALIZER;

static void *makes(void *p)
{
	pthread_mutex_init(&made_late, 0); // race init_and_lock
	unseen_done();
	return p;
}
static void *locks(void *p)
{
	unseen_wait();
	pthread_mutex_lock(&made_late); // race init_and_lock
	pthread_mutex_unlock(&made_late); // race init_and_lock
	return p;
}

static void *unlocks(void *p)
{
	pthread_mutex_lock(&gone_early); // race unlock_and_destroy
	pthread_mutex_unlock(&gone_early); // race unlock_and_destroy
	unseen_done();
	return p;
}
static void *destroys(void *p)
{
	unseen_wait();
	pthread_mutex_destroy(&gone_early); // race unlock_and_destroy
	return p;
}

// Rightly: two that lock it, and who made them destroys it.
static void *uses(void *p)
{
	pthread_mutex_lock(&joined);
	pthread_mutex_unlock(&joined);
	return p;
}

// Rightly: the last user, which the mutex itself tells, destroys it with its block.
struct counted { pthread_mutex_t mutex; pthread_cond_t cond; int users; };
static struct counted *shared;
static void *drops(void *p)
{
	pthread_mutex_lock(&shared->mutex);
	int last = --shared->users == 0;
	pthread_mutex_unlock(&shared->mutex);
	if (last) {
		pthread_mutex_destroy(&shared->mutex);
		free(shared);
	}
	return p;
}

// Wrongly: a block with a mutex is freed behind the back of who uses it.
static pthread_mutex_t *in_block;
static void *locks_in_block(void *p)
{
	pthread_mutex_lock(in_block); // race freed_with_its_block
	pthread_mutex_unlock(in_block); // race freed_with_its_block
	unseen_done();
	return p;
}
static void *frees(void *p)
{
	unseen_wait();
	free(in_block); // race freed_with_its_block
	return p;
}

// A condition may be destroyed as soon as all who wait are woken (POSIX), and so may its mutex when they have given it back.
static struct counted *woken;
static int waiting, go;
static void *waits(void *p)
{
	pthread_mutex_lock(&woken->mutex);
	waiting = 1;
	while (!go)
		pthread_cond_wait(&woken->cond, &woken->mutex);
	pthread_mutex_unlock(&woken->mutex);
	return p;
}
static void *wakes(void *p)
{
	for (int ready = 0; !ready;) {
		pthread_mutex_lock(&woken->mutex);
		if ((ready = waiting)) {
			go = 1;
			pthread_cond_broadcast(&woken->cond);
			pthread_cond_destroy(&woken->cond);
		}
		pthread_mutex_unlock(&woken->mutex);
		sched_yield();
	}
	return p;
}

static pthread_cond_t late_cond;
static void *makes_cond(void *p)
{
	pthread_cond_init(&late_cond, 0); // race init_and_signal
	unseen_done();
	return p;
}
static void *signals(void *p)
{
	unseen_wait();
	pthread_cond_signal(&late_cond); // race init_and_signal
	return p;
}

static pthread_rwlock_t rwlock;
static void *reads(void *p)
{
	pthread_rwlock_rdlock(&rwlock); // race reader_and_destroy
	pthread_rwlock_unlock(&rwlock); // race reader_and_destroy
	unseen_done();
	return p;
}
static void *destroys_rwlock(void *p)
{
	unseen_wait();
	pthread_rwlock_destroy(&rwlock); // race reader_and_destroy
	return p;
}

// A semaphore tells by itself when it is used no more; and does not if nobody waits for it.
static sem_t handed, left;
static void *posts(void *p) { sem_post(&handed); return p; }
static void *takes(void *p)
{
	sem_wait(&handed);
	sem_destroy(&handed);
	return p;
}
static void *posts_unheard(void *p)
{
	sem_post(&left); // race post_and_destroy
	unseen_done();
	return p;
}
static void *does_not_wait(void *p)
{
	unseen_wait();
	sem_destroy(&left); // race post_and_destroy
	return p;
}

static pthread_spinlock_t spin;
static void *makes_spin(void *p)
{
	pthread_spin_init(&spin, 0); // race spin_init
	unseen_done();
	return p;
}
static void *spins(void *p)
{
	unseen_wait();
	pthread_spin_lock(&spin); // race spin_init
	pthread_spin_unlock(&spin); // race spin_init
	return p;
}

// All are through the barrier before one destroys it: the arrivals order that.
static pthread_barrier_t barrier, unordered;
static void *meets(void *p)
{
	if (pthread_barrier_wait(&barrier) == PTHREAD_BARRIER_SERIAL_THREAD)
		pthread_barrier_destroy(&barrier);
	return p;
}
static void *passes_alone(void *p)
{
	pthread_barrier_wait(&unordered); // race barrier_and_destroy
	unseen_done();
	return p;
}
static void *destroys_barrier(void *p)
{
	unseen_wait();
	pthread_barrier_destroy(&unordered); // race barrier_and_destroy
	return p;
}

// A plain write over a mutex, and one beside it.
static struct { pthread_mutex_t mutex; int beside; } overwritten = {PTHREAD_MUTEX_INITIALIZER, 0};
static void *locks_overwritten(void *p)
{
	pthread_mutex_lock(&overwritten.mutex); // race overwritten
	pthread_mutex_unlock(&overwritten.mutex); // race overwritten
	unseen_done();
	return p;
}
static void *overwrites(void *p)
{
	unseen_wait();
	overwritten.beside = 1;
	memset(&overwritten.mutex, 0, sizeof overwritten.mutex); // race overwritten
	return p;
}

// Made again and again, in the same place, by whoever holds another lock.
static pthread_mutex_t remade;
static void *remakes(void *p)
{
	pthread_mutex_lock(&in_turn);
	pthread_mutex_init(&remade, 0);
	pthread_mutex_lock(&remade);
	pthread_mutex_unlock(&remade);
	pthread_mutex_destroy(&remade);
	pthread_mutex_unlock(&in_turn);
	return p;
}

int main(void)
{
	unseen(makes, locks);
	pthread_mutex_init(&gone_early, 0);
	unseen(unlocks, destroys);
	pthread_mutex_init(&joined, 0);
	both(uses, uses);
	pthread_mutex_destroy(&joined);
	shared = calloc(1, sizeof *shared);
	pthread_mutex_init(&shared->mutex, 0);
	shared->users = 2;
	both(drops, drops);
	in_block = calloc(1, sizeof *in_block);
	pthread_mutex_init(in_block, 0);
	unseen(locks_in_block, frees);
	woken = calloc(1, sizeof *woken);
	pthread_mutex_init(&woken->mutex, 0);
	pthread_cond_init(&woken->cond, 0);
	both(waits, wakes);
	pthread_mutex_destroy(&woken->mutex);
	free(woken);
	unseen(makes_cond, signals);
	pthread_rwlock_init(&rwlock, 0);
	unseen(reads, destroys_rwlock);
	sem_init(&handed, 0, 0);
	sem_init(&left, 0, 0);
	both(posts, takes);
	unseen(posts_unheard, does_not_wait);
	unseen(makes_spin, spins);
	pthread_barrier_init(&barrier, 0, 2);
	both(meets, meets);
	pthread_barrier_init(&unordered, 0, 1);
	unseen(passes_alone, destroys_barrier);
	unseen(locks_overwritten, overwrites);
	both(remakes, remakes);
	return 0;
}
