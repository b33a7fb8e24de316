// Races in memory that the program maps for itself, found where accesses to what is shared alone are judged: as it was mapped, and once it was moved, grown, cut, discarded or mapped anew. Main touches none of it
// once the threads are there. The class is that of movs, as in racy.c.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { PAGE = 4096, BYTES = 64 * PAGE };

static char *block[16], *volatile given, *volatile taken;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t meeting;

#define LONG(i, page) (*(volatile long *)(block[i] + PAGE * (page) + 8))

static char *map(size_t n)
{
	char *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED)
		abort();
	return p;
}

static void once(int me) { LONG(0, 3) = me; } // race-mov once

static void counter(int me)
{
	for (int i = 0; i < 1000; i++)
		LONG(1, 0) += me; // race-mov counter
}

static void copied(int me)
{
	if (me) {
		memcpy(block[2] + 10, "0123456789012345678901234567890123456789", (size_t)(30 + (block[2][0] & 1))); // race-mov copied
		__asm__ volatile("" ::: "memory"); // no tail call: it would be told of another line
	} else
		((volatile char *)block[2])[20] = 1; // race-mov copied
}

// What main has touched, and moved.
static void moved(int me) { LONG(3, 5) = me; } // race-mov moved

// What it has grown by.
static void grown(int me) { LONG(3, 100) = me; } // race-mov grown

// Where another mapping was, which main had touched.
static void anew(int me) { LONG(4, 1) = me; } // race-mov anew

// Beside a hole.
static void beside(int me) { LONG(5, 41) = me; } // race-mov beside

// Over a reservation.
static void committed(int me) { LONG(6, 7) = me; } // race-mov committed

static void discarded(int me) { LONG(7, 2) = me; } // race-mov discarded

// Before a page that is guarded.
static void guarded(int me) { LONG(8, 62) = me; } // race-mov guarded

// By the program's own system call, and by syscall().
static void raw(int me) { LONG(9, 1) = me; } // race-mov raw
static void called(int me) { LONG(10, 1) = me; } // race-mov called

// One maps it, the other is the first to touch it.
static void handed(int me)
{
	if (!me) {
		pthread_mutex_lock(&lock);
		given = map(BYTES);
		pthread_mutex_unlock(&lock);
	}
	pthread_barrier_wait(&meeting);
	if (me) {
		pthread_mutex_lock(&lock);
		given[5] = 1;
		pthread_mutex_unlock(&lock);
	}
	pthread_barrier_wait(&meeting);
	((volatile char *)given)[3 * PAGE] = (char)me; // race-mov handed
}

// One has it for its own before, and moves it.
static void owned(int me)
{
	if (!me) {
		char *p = map(BYTES);
		memset(p, 1, BYTES);
		taken = mremap(p, BYTES, 2 * BYTES, MREMAP_MAYMOVE);
	}
	pthread_barrier_wait(&meeting);
	if (me)
		taken[5] = 1;
	pthread_barrier_wait(&meeting);
	((volatile char *)taken)[2 * PAGE] = (char)me; // race-mov owned
}

static void (*const all[])(int) = {once, counter, copied, moved, grown, anew, beside, committed, discarded, guarded, raw, called, handed, owned};

static void *run(void *arg)
{
	for (unsigned i = 0; i < sizeof all / sizeof *all; i++)
		all[i]((int)(intptr_t)arg);
	return NULL;
}

static void prepare(void)
{
	for (unsigned i = 0; i < 9; i++)
		block[i] = map(BYTES);
	memset(block[3], 1, BYTES);
	block[3] = mremap(block[3], BYTES, 2 * BYTES, MREMAP_MAYMOVE);
	memset(block[4], 1, BYTES);
	munmap(block[4], BYTES);
	if (mmap(block[4], BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != block[4])
		abort();
	munmap(block[5] + 10 * PAGE, 30 * PAGE);
	mmap(block[6], BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
	mmap(block[6] + 4 * PAGE, 8 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	memset(block[7], 1, BYTES);
	madvise(block[7], BYTES, MADV_DONTNEED);
	mprotect(block[8] + 63 * PAGE, PAGE, PROT_NONE);
	register long flags __asm__("r10") = MAP_PRIVATE | MAP_ANONYMOUS, fd __asm__("r8") = -1, offset __asm__("r9") = 0;
	__asm__ volatile("syscall" : "=a"(block[9]) : "a"((long)SYS_mmap), "D"(0l), "S"((long)BYTES), "d"((long)(PROT_READ | PROT_WRITE)), "r"(flags), "r"(fd), "r"(offset) : "rcx", "r11", "memory");
	block[10] = (char *)syscall(SYS_mmap, 0l, (long)BYTES, (long)(PROT_READ | PROT_WRITE), (long)(MAP_PRIVATE | MAP_ANONYMOUS), -1l, 0l);
}

int main(void)
{
	pthread_t t[2];
	prepare();
	pthread_barrier_init(&meeting, NULL, 2);
	for (int i = 0; i < 2; i++)
		pthread_create(&t[i], NULL, run, (void *)(intptr_t)i);
	for (int i = 0; i < 2; i++)
		pthread_join(t[i], NULL);
	puts("done");
	return 0;
}
