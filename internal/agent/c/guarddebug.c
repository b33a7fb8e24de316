/* guarddebug.c: debug registers by ptrace, which only another process can do. See guarddebug.h, guard.h for the ground rules.
 *
 * A tracer sets them while a thread stands, and lets it go: they stay, and what they meet is a plain SIGTRAP (TRAP_HWBKPT), as nobody traces the thread then. Other than a breakpoint of perf it is forced on the thread: where SIGTRAP is blocked it kills. So
 * while some may be on, the agent does not block it either (rs_os_open), even where it blocks all others. */
#include "guarddebug.h"
#include "guardpage.h"
#include <errno.h>
#include <linux/futex.h>

#ifndef TRAP_HWBKPT
#define TRAP_HWBKPT 4
#endif

enum { ASKED = 1, TAKEN_UP, ANSWERED };
/* Go may be busy with a report. Who has taken it up is done within a second, or will never be. */
enum { LOOK_MS = 50, UNHEARD_MS = 3000, UNDONE_MS = 10000 };
enum { WRITE = 1, LOCAL_0 = 1, KIND_0 = 16, LENGTH_0 = 18 };

static struct debug { uint32_t number, set, ever, gone; } *debug; /* in the arena; gone: who would answer */

long rs_guard_debug_begin(void)
{
	struct debug *d = rs_guard_map(RS_ARENA_OWN, sizeof *d);
	if (!d)
		return -ENOMEM;
	debug = d;
	return 0;
}

static uint64_t now_ms(void)
{
	struct timespec ts = {0};
	RS_SYS2(SYS_clock_gettime, CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000u + (uint64_t)ts.tv_nsec / 1000000u;
}

static long ask(uint64_t address, uint64_t control)
{
	struct rs_guard_debug *q = rs_config.guard & 1 && !debug->gone ? &rs_counters->guard[0].debug[0] : NULL;
	uint32_t beat = 0, since = 0;
	if (!q)
		return -ESRCH;
	uint32_t number = debug->number = (debug->number + 1) & (UINT32_MAX >> 2), asked = number << 2 | ASKED, answered = number << 2 | ANSWERED, word = asked;
	q->except = rs_os_tid();
	q->address[0] = address;
	q->control = control;
	__atomic_store_n(&q->word, asked, __ATOMIC_SEQ_CST);
	rs_doorbell();
	for (uint64_t begun = now_ms(); word != answered; word = __atomic_load_n(&q->word, __ATOMIC_ACQUIRE)) {
		struct timespec ts = {0, LOOK_MS * 1000000};
		RS_SYS4(SYS_futex, &q->word, FUTEX_WAIT, word, &ts);
		uint64_t waited = now_ms() - begun;
		if (rs_go_gone(&beat, &since)) {
			debug->gone = 1;
			return -ESRCH;
		}
		if (waited > UNHEARD_MS && __atomic_compare_exchange_n(&q->word, &asked, 0, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
			return -ETIMEDOUT;
		if (waited > UNDONE_MS && __atomic_load_n(&q->word, __ATOMIC_ACQUIRE) != answered)
			return -ETIMEDOUT;
		asked = number << 2 | ASKED;
	}
	return q->result;
}

void rs_guard_debug_again(void) { rs_os_open = (debug && debug->set ? 1ull << (SIGTRAP - 1) : 0) | rs_guard_pages_signals(); }

long rs_guard_debug_set(uint64_t address, uint32_t bytes)
{
	static const uint8_t length[] = {[1] = 0, [2] = 1, [4] = 3, [8] = 2};
	debug->set = debug->ever = 1;
	rs_guard_debug_again();
	long r = ask(address, LOCAL_0 | WRITE << KIND_0 | (uint64_t)length[bytes] << LENGTH_0);
	if (r < 0)
		rs_guard_debug_clear();
	return r;
}

void rs_guard_debug_clear(void)
{
	if (!debug || !debug->set)
		return;
	debug->set = ask(0, 0) < 0;
	rs_guard_debug_again();
}

bool rs_guard_debug_trap(const siginfo_t *info, bool *now)
{
	if (info->si_code != TRAP_HWBKPT || !debug || !debug->ever)
		return false;
	*now = debug->set;
	return true;
}
