// Races in large blocks of malloc's between two threads that main makes, found where accesses to what is shared alone are judged. Main allocates and does not touch them afterwards: so nothing is
// lost of what the two do. The class is that of movs, since what is not watched may order (docs/decisions.md, 36).
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BYTES = 1 << 20 };

static char *block[16];

#define LONG(i) (*(volatile long *)(block[i] + 4096 * 3 + 8))

// Once each, and the second access to the block is the one that races.
static void once(int me) { LONG(0) = me; } // race-mov once

static void counter(int me)
{
	for (int i = 0; i < 1000; i++)
		LONG(1) += me; // race-mov counter
}

static void bytes(int me) { ((volatile char *)block[2])[5000 + me * 0] = (char)me; } // race-mov bytes

// The whole of 16 bytes against one of them.
static void wide(int me)
{
	if (me)
		__asm__ volatile("movdqu %%xmm0, (%0)" : : "r"(block[3] + 100) : "memory"); // race-mov wide
	else
		((volatile char *)block[3])[115] = 1; // race-mov wide
}

// Neither string instructions nor calls through memory can go by the mirror.
static void strings(int me)
{
	if (me) {
		void *to = block[4] + 64;
		long n = 100;
		__asm__ volatile("rep stosb" : "+D"(to), "+c"(n) : "a"(7) : "memory"); // race-mov strings
	} else
		((volatile char *)block[4])[120] = 1; // race-mov strings
}

static void nothing(void) {}

static void call(int me)
{
	if (me)
		__asm__ volatile("sub $128, %%rsp\n\tcall *(%0)\n\tadd $128, %%rsp" : : "r"(block[5] + 8) : "memory", "cc"); // race-mov call
	else
		*(void (*volatile *)(void))(block[5] + 8) = nothing; // race-mov call
}

static void push(int me)
{
	if (me)
		__asm__ volatile("sub $128, %%rsp\n\tpush (%0)\n\tpop %%rax\n\tadd $128, %%rsp" : : "r"(block[6] + 8) : "memory", "rax", "cc"); // race-mov push
	else
		*(volatile long *)(block[6] + 8) = 1; // race-mov push
}

// From one page to the next.
static void across(int me)
{
	if (me)
		*(volatile uint32_t *)(block[7] + 4096 - 2) = 1; // race-mov across
	else
		((volatile char *)block[7])[4096] = 1; // race-mov across
}

// An atomic instruction against a plain one.
static void locked(int me)
{
	if (me)
		__atomic_fetch_add((int *)(block[8] + 12), 1, __ATOMIC_SEQ_CST);
	else
		((volatile char *)block[8])[40] = 1; // race-mov beside
	((volatile char *)block[8])[40] = 2; // race-mov beside
}

static void copied(int me)
{
	if (me)
		memcpy(block[9] + 10, "0123456789012345678901234567890123456789", (size_t)(30 + (block[9][0] & 1))); // race-mov copied
	else
		((volatile char *)block[9])[20] = 1; // race-mov copied
}

static void (*const all[])(int) = {once, counter, bytes, wide, strings, call, push, across, locked, copied};

static void *run(void *arg)
{
	for (unsigned i = 0; i < sizeof all / sizeof *all; i++)
		all[i]((int)(intptr_t)arg);
	return NULL;
}

int main(void)
{
	pthread_t t[2];
	for (unsigned i = 0; i < sizeof all / sizeof *all; i++)
		block[i] = i & 1 ? calloc(1, BYTES) : malloc(BYTES);
	*(void (**)(void))(block[5] + 8) = nothing;
	for (int i = 0; i < 2; i++)
		pthread_create(&t[i], NULL, run, (void *)(intptr_t)i);
	for (int i = 0; i < 2; i++)
		pthread_join(t[i], NULL);
	puts("done");
	return 0;
}
