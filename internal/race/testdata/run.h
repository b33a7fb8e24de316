// Shared by the programs here.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

// both runs two functions, each in a thread of its own, and joins them.
static inline void both(void *(*one)(void *), void *(*two)(void *))
{
	pthread_t t[2];
	pthread_create(&t[0], 0, one, 0);
	pthread_create(&t[1], 0, two, 0);
	pthread_join(t[0], 0);
	pthread_join(t[1], 0);
}

// use reads a value.
#define use(x) __asm__ volatile("" : : "r"(x))
