// Races in variables of the program between two threads, each found where accesses to what is shared alone are judged: variables are shared from before the second thread. Main touches them only while it is
// alone. The class is that of movs, as in racy.c.
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static long zero;
static long given = 5;
static volatile size_t length = 30;
static char text[100], buffer[4096], numbers[64];
static long after_call, table[4096];
static int pipes[2];

#define AT(x) (*(volatile __typeof__(x) *)&(x))

static void once(int me) { AT(zero) = me; } // race-mov once

static void initialized(int me) { AT(given) += me; } // race-mov initialized

static void local(int me)
{
	static int kept;
	AT(kept) = me; // race-mov local
}

static void far(int me) { AT(table[3000 + 0 * me]) = me; } // race-mov far

static void copied(int me)
{
	if (me) {
		memcpy(text + 10, "0123456789012345678901234567890123456789", length); // race-mov copied
		__asm__ volatile("" ::: "memory"); // no tail call: it would be told of another line
	} else
		AT(text[20]) = 1; // race-mov copied
}

// What the kernel writes.
static void from_pipe(int me)
{
	if (me) {
		if (write(pipes[1], "0123456789", 10) != 10 || read(pipes[0], buffer + 1000, 10) != 10) // race-mov pipe
			abort();
	} else
		AT(buffer[1005]) = 1; // race-mov pipe
}

// Behind a function that reads variables itself: its accesses must not hide the thread's next ones.
static void behind_call(int me)
{
	if (me)
		(void)strtol(numbers, NULL, 10);
	AT(after_call) = me; // race-mov call
}

static void *run(void *arg)
{
	static void (*const all[])(int) = {once, initialized, local, far, copied, from_pipe, behind_call};
	for (unsigned i = 0; i < sizeof all / sizeof *all; i++)
		all[i]((int)(intptr_t)arg);
	return NULL;
}

int main(void)
{
	pthread_t t[2];
	strcpy(numbers, "12345");
	if (pipe(pipes) < 0)
		return 1;
	for (int i = 0; i < 2; i++)
		pthread_create(&t[i], NULL, run, (void *)(intptr_t)i);
	for (int i = 0; i < 2; i++)
		pthread_join(t[i], NULL);
	puts("done");
	return 0;
}
