/* guardsysfollow.c: system calls in a re-execution: what they gave in the recording is given back, or they are made again. See guardsys.c, whose ground rules these are. */
#include "guardhash.h"
#include "guardkept.h"
#include "guardnote.h"
#include "guardpage.h"
#include "guardrace.h"
#include "guardread.h"
#include "guardstack.h"
#include "guardthread.h"
#include "guardwatch.h"
#include "zz_guardclass.h"
#include <sys/mman.h>

/* REPLAY. False: its turn does not come. */
static bool in_order(struct rs_guard_log *t, const struct rs_guard_noted *e)
{
	uint32_t ticket = (uint32_t)e->offset;
	if (e->order & RS_GUARD_GIVES) {
		if (!rs_guard_turn(t, RS_GUARD_WAKES, ticket))
			return false;
		RS_GUARD_GIVES(RS_GUARD_WAKES, false);
		rs_guard_next_turn(RS_GUARD_WAKES, ticket);
	}
	if (!(e->order & RS_GUARD_TAKES))
		return true;
	if (!rs_guard_behind(t, RS_GUARD_WAKES, (uint32_t)(e->offset >> 32)))
		return false;
	RS_GUARD_TAKES(RS_GUARD_WAKES, false);
	return true;
}

static bool give(const struct rs_call *c, const struct rs_guard_noted *e, uint32_t bytes)
{
	const char *p = (const char *)(e + 1), *end = (const char *)e + bytes;
	for (uint32_t i = 0; i < e->pieces; i++) {
		const struct rs_guard_piece *m = (const struct rs_guard_piece *)p;
		if ((size_t)(end - p) < sizeof *m || m->bytes > (size_t)(end - p) - sizeof *m)
			return false;
		rs_guard_watch_put(c, (void *)m->at, p + sizeof *m, m->bytes);
		p += sizeof *m + ((m->bytes + 7) & ~7ul);
	}
	return true;
}

/* Private mappings are where they were. */
static void same_place(struct rs_call *c, const struct rs_guard_noted *e, long result)
{
	if (result < 0 && result > -4096)
		return;
	if (c->number == SYS_mmap || c->number == SYS_mremap)
		rs_guard_race_place((uint64_t)result, c->number == SYS_mmap ? c->arg[1] : c->arg[2]);
	if (c->number == SYS_mmap) {
		c->arg[0] = (uint64_t)result;
		if (!(c->arg[3] & (MAP_FIXED | 0x100000 /* MAP_FIXED_NOREPLACE */)))
			c->arg[3] |= 0x100000;
		if (e->file)
			c->arg[4] = (uint64_t)rs_guard_reads->file[e->file].fd;
	} else if (c->number == SYS_mremap && (uint64_t)result != c->arg[0] && !(c->arg[3] & MREMAP_FIXED)) {
		c->arg[3] |= MREMAP_FIXED | MREMAP_MAYMOVE;
		c->arg[4] = (uint64_t)result;
	}
}

/* What is below a thread that lives. The recording has not taken it away, as the kernel, which writes to the thread's rseq area whenever it has been away, ends a process where it cannot; and its handlers find nothing of theirs. */
static bool takes_away(const struct rs_guard_log *t, const struct rs_call *c)
{
	bool takes = c->number == SYS_munmap || (c->number == SYS_mprotect && !(c->arg[2] & PROT_WRITE)) || (c->number == SYS_mmap && c->arg[3] & MAP_FIXED);
	return takes && rs_guard_thread_lives(t, c->arg[0], c->arg[1]);
}

long rs_guard_sys_follow(struct rs_guard_log *t, struct rs_call *c)
{
	long result, got;
	uint32_t bytes;
	uint64_t hash;
	if (c->number < RS_GUARD_NUMBERS && rs_guard_rows[c->number].class == RS_GUARD_LOOSE)
		return 1;
	const struct rs_guard_noted *e = rs_guard_call_take(t, (uint16_t)c->number, &result, &bytes);
	if (!e) {
		rs_guard_replay_end(t, (uint16_t)c->number);
		return -1;
	}
	rs_guard_sys_replayed();
	if (bytes < sizeof *e || e->check != rs_guard_check(c)) {
		rs_guard_diverged(t, RS_GUARD_CALL_ARGUMENT, e->check, rs_guard_check(c));
	} else if (c->number == SYS_sigaltstack) {
		bool watched = !rs_guard_stack_taken() && rs_guard_watch_altstack(c, result);
		c->result = watched ? result : rs_guard_stack_call(c, result == 0);
		if (watched && result == 0 && c->arg[0])
			rs_guard_stack_is((const stack_t *)c->arg[0]);
		if (c->result != result)
			rs_guard_diverged(t, RS_GUARD_CALL_RESULT, (uint64_t)result, (uint64_t)c->result);
		return 0;
	} else if (e->class == RS_GUARD_REPEATABLE) {
		c->guard_room = (uint32_t)e->offset;
		if (rs_guard_of_map((unsigned)c->number) && !rs_guard_turn(t, RS_GUARD_PLACES, c->guard_room))
			return -1;
		if (RS_UNLIKELY(takes_away(t, c))) {
			rs_guard_diverged(t, RS_GUARD_CALL_ARGUMENT, c->arg[0], c->arg[1]);
			c->result = result;
			return 0;
		}
		same_place(c, e, result);
		if (c->number == SYS_madvise && c->arg[2] == MADV_FREE)
			c->arg[2] = MADV_DONTNEED;
		c->guard_offset = (uint64_t)result;
		c->guard_state = RS_GUARD_CALL_AGAIN;
		rs_guard_page_before(c);
		if (c->number != SYS_mmap || !rs_guard_reads->file[e->file].kept)
			return 1;
		c->result = rs_guard_kept_call(c);
		rs_guard_sys_over(c);
		return 0;
	} else if (e->class == RS_GUARD_REVOCABLE) {
		if (!rs_guard_read_again(c, e, result, &got, &hash))
			rs_guard_diverged(t, got == result ? RS_GUARD_CALL_BYTES : RS_GUARD_CALL_RESULT, got == result ? e->data : (uint64_t)result, got == result ? hash : (uint64_t)got);
	} else if (!in_order(t, e)) {
		rs_guard_replay_end(t, (uint16_t)c->number);
		return -1;
	} else if ((hash = rs_guard_data_of(c, result)) != e->data || !give(c, e, bytes)) {
		rs_guard_diverged(t, RS_GUARD_CALL_BYTES, e->data, hash);
	}
	c->result = result;
	return 0;
}
