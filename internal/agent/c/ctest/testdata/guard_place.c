// A thread that takes a place, interrupted at each of its instructions by another that takes one: by the trap flag, in the signal's handler. Prints what went wrong, and then how many interruptions there were.
#define _GNU_SOURCE
#include "../../guardplace.h"
#include <signal.h>
#include <stdio.h>
#include <string.h>

enum { PLACES = 4, OWN = 7, OTHER = 9, SOMEBODY = 11 };
static struct { uint64_t before; uint32_t tid; char behind[52]; } place[PLACES];
static uint32_t used, others;
static unsigned steps, at;

static __attribute__((noinline)) uint32_t take(uint32_t own) { return rs_guard_take_place(&place->tid, sizeof *place, &used, PLACES, own); }

static void stepped(int sig)
{
	(void)sig;
	if (++steps == at)
		others = take(OTHER);
}

static void stepping(uint64_t flag) { __asm__ volatile("pushfq\n\tandq $~0x100, (%%rsp)\n\torq %0, (%%rsp)\n\tpopfq" : : "r"(flag) : "memory", "cc"); }

int main(void)
{
	static const struct { uint32_t used, free; } begin[] = {{0, PLACES}, {1, 0}, {2, PLACES}, {2, 1}, {PLACES - 1, PLACES}, {PLACES, 2}, {PLACES, PLACES}};
	struct sigaction sa = {.sa_handler = stepped};
	unsigned wrong = 0, times = 0;
	sigaction(SIGTRAP, &sa, NULL);
	for (unsigned b = 0; b < sizeof begin / sizeof *begin; b++)
		for (at = 1;; at++) {
			memset(place, 0, sizeof place);
			used = begin[b].used, others = PLACES, steps = 0;
			uint32_t room = PLACES - used;
			for (uint32_t i = 0; i < used; i++)
				place[i].tid = i == begin[b].free ? room++, 0 : SOMEBODY;
			stepping(0x100);
			uint32_t own = take(OWN);
			stepping(0);
			if (steps < at)
				break;
			times++;
			uint32_t had = (own < PLACES) + (others < PLACES), want = room < 2 ? room : 2;
			if (had == want && used <= PLACES && (own == PLACES || place[own].tid == OWN) && (others == PLACES || place[others].tid == OTHER))
				continue;
			wrong++;
			printf("%u used, interrupted at instruction %u: it has place %u (%u's), the other %u (%u's), of %u\n", begin[b].used, at, own, own < PLACES ? place[own].tid : 0, others, others < PLACES ? place[others].tid : 0, used);
		}
	printf("%u interruptions\n", times);
	return wrong != 0;
}
