/* guardvdso.c: the vdso's functions while `guard` keeps a log: a clock is one event of 16 bytes, the others are calls. See guardsys.h; docs/decisions.md, 37, *System calls*.
 *
 * Ground rules: calls.h's of rs_call_before. General registers only. */
#include "guardsys.h"
#include "guardlog.h"
#include "guardquick.h"
#include "guardwatch.h"
#include <errno.h>
#include <time.h>

enum { CLOCK = RS_CALL_ROW_VDSO_CLOCK_GETTIME, TIMEOFDAY = RS_CALL_ROW_VDSO_GETTIMEOFDAY, TIME = RS_CALL_ROW_VDSO_TIME, FRACTION = 30 /* bits of ns */ };
/* Of the stack that a clock of the vdso may use: the hook and rs_guard_vdso have the rest. */
enum { VDSO_DEPTH = 104 };

static unsigned vdso_row(uint64_t offset) { return (unsigned)(offset / sizeof(struct rs_call_count)) - (RS_CALL_ROWS - 8); }

/* Clocks, by row, that are known to use little of the stack; in the arena. */
static uint32_t *shallow;

long rs_guard_vdso_begin(void)
{
	shallow = rs_guard_map(RS_ARENA_OWN, (TIME + 1) * sizeof *shallow);
	return shallow ? 0 : -ENOMEM;
}

/* A clock's event; 0: it is to be recorded as calls are. */
static inline uint64_t clock_event(unsigned row, uint64_t a, uint64_t b)
{
	uint64_t clock = row == CLOCK ? a : 0, to = row == CLOCK ? b : a;
	bool is = clock < 16 && to >> 48 == 0 && (row == TIME || (row <= TIMEOFDAY && to && (row == CLOCK || b == 0)));
	return is ? to | clock << 48 | (uint64_t)row << 52 | (uint64_t)RS_GUARD_CLOCK << 56 : 0;
}
_Static_assert(CLOCK == 0 && TIMEOFDAY == 1 && TIME == 2, "bits of clock_event");
static unsigned clock_of(uint64_t event) { return event >> 48 & 15; }

long rs_guard_vdso(long a, long b, long c, long d, long e, long f, uint64_t offset, void *function)
{
	long (*real)(long, long) = (long (*)(long, long))function;
	struct rs_guard_log *g = rs_guard_mine;
	unsigned row = vdso_row(offset);
	uint64_t event = clock_event(row, (uint64_t)a, (uint64_t)b);
	if (RS_UNLIKELY(!g || !event || !shallow || !(shallow[row] >> clock_of(event) & 1) || !rs_guard_begin_quickly(g)))
		return rs_guard_vdso_slowly(a, b, c, d, e, f, offset, function);
	long result = real(a, b);
	uint64_t value = (uint64_t)result;
	if (row != TIME) {
		const uint64_t *to = (const uint64_t *)(row == CLOCK ? b : a);
		value = to[0] << FRACTION | to[1];
		if (RS_UNLIKELY(result != 0 || to[0] >> (64 - FRACTION) || to[1] >> FRACTION))
			rs_guard_lost(RS_GUARD_LOST_CALL);
	}
	rs_guard_append_quickly(g, event, (uint32_t)value, (int32_t)(value >> 32));
	rs_guard_end_quickly(g);
	return result;
}

/* REPLAY: what rs_guard_vdso wrote down. */
static bool clock_again(struct rs_guard_log *t, struct rs_call *c, uint64_t event)
{
	uint64_t value;
	if (!event || !rs_guard_clock_take(t, event, &value))
		return false;
	const uint64_t time[2] = {value >> FRACTION, value & ((1u << FRACTION) - 1)};
	rs_guard_sys_replayed();
	if (c->number != SYS_time)
		rs_guard_watch_put(c, (void *)c->arg[c->number == SYS_clock_gettime], time, sizeof time);
	else if (c->arg[0])
		rs_guard_watch_put(c, (void *)c->arg[0], &value, sizeof value);
	c->result = c->number == SYS_time ? (long)value : 0;
	return true;
}

long rs_guard_vdso_kept(long a, long b, long c, long d, long e, long f, uint64_t offset, void *function, uintptr_t sp)
{
	static const uint16_t numbers[8] = {
		[CLOCK] = SYS_clock_gettime, [TIMEOFDAY] = SYS_gettimeofday, [TIME] = SYS_time, [RS_CALL_ROW_VDSO_GETCPU] = SYS_getcpu, [RS_CALL_ROW_VDSO_CLOCK_GETRES] = SYS_clock_getres,
	};
	/* Clocks that the vdso reads by itself; others are calls of the kernel's, as long as these may take. */
	enum { OWN = 1 << CLOCK_REALTIME | 1 << CLOCK_MONOTONIC | 1 << CLOCK_MONOTONIC_RAW | 1 << CLOCK_REALTIME_COARSE | 1 << CLOCK_MONOTONIC_COARSE | 1 << CLOCK_BOOTTIME | 1 << CLOCK_TAI };
	long (*real)(long, long, long, long, long, long) = (long (*)(long, long, long, long, long, long))function;
	unsigned row = vdso_row(offset), n = row < 8 ? numbers[row] : 0;
	struct rs_call call = {.number = n, .row = n, .arg = {(uint64_t)a, (uint64_t)b, (uint64_t)c, (uint64_t)d, (uint64_t)e, (uint64_t)f}};
	if (n == 0)
		return real(a, b, c, d, e, f);
	struct rs_guard_log *t = shallow ? rs_guard_self() : NULL;
	uint64_t event = clock_event(row, (uint64_t)a, (uint64_t)b), bytes = 0;
	if (t && rs_guard_mode() == RS_GUARD_REPLAY) {
		t->sp = sp;
		if (clock_again(t, &call, event))
			return call.result;
	}
	if (rs_guard_sys_begun(&call, sp) != 0) {
		bool measure = t && event && OWN >> clock_of(event) & 1;
		if (t)
			t->vdso_sp = sp, t->vdso_number = n;
		call.result = measure ? rs_vdso_measure(a, b, function, &bytes) : real(a, b, c, d, e, f);
		if (t)
			t->vdso_number = 0;
		if (measure && bytes <= VDSO_DEPTH)
			__atomic_fetch_or(&shallow[row], 1u << clock_of(event), __ATOMIC_RELAXED);
		rs_guard_sys_ended(&call, sp);
	} else
		rs_guard_sys_signals(&call, sp);
	return call.result;
}
