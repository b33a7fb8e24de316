/* guardsysquick.c: system calls that cost little in a recording. See guardsys.c, whose ground rules these are. */
#include "guardhash.h"
#include "guardnote.h"
#include "guardquick.h"
#include "guardread.h"
#include "guardtry.h"
#include "guardundo.h"
#include "zz_guardclass.h"
#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <sys/epoll.h>

/* Calls of which all is said here: recordable, of at most one piece of memory. What record, over and write_down do with them, without what is for others: most of what a call costs is code and tables that are in no cache, behind a kernel that has
 * used them. OTHERS: descriptor arg 0 is known to be no file that is followed. NAMELESS: arg 4 is NULL. POLLS: arg 1 is 1. WRITES, EVENTS: to arg 1, bytes or events as the result says. READS: likewise, from there.
 * FOLLOWED: revocable: arg 0 is a file that is followed, and was read in this epoch before; arg 3 is the offset, and what comes to arg 1 is hashed. */
enum { QUICK_CALLS = 256 };
enum { IS_QUICK = 1, OTHERS = 2, NAMELESS = 4, MAY_WAIT = 8, WRITES_BYTES = 16, WRITES_EVENTS = 32, READS_BYTES = 64, POLLS_ONE = 128, FOLLOWED = 256 };
static const uint16_t quick_calls[QUICK_CALLS] = {
	[SYS_pread64] = IS_QUICK | FOLLOWED,
	[SYS_read] = IS_QUICK | OTHERS | MAY_WAIT | WRITES_BYTES, [SYS_recvfrom] = IS_QUICK | NAMELESS | MAY_WAIT | WRITES_BYTES, [SYS_epoll_wait] = IS_QUICK | MAY_WAIT | WRITES_EVENTS, [SYS_poll] = IS_QUICK | MAY_WAIT | POLLS_ONE,
	[SYS_write] = IS_QUICK | OTHERS | READS_BYTES, [SYS_sendto] = IS_QUICK | READS_BYTES, [SYS_sendmsg] = IS_QUICK, [SYS_getppid] = IS_QUICK,
};

static inline unsigned quick_of(const struct rs_call *c) { return c->number < QUICK_CALLS && rs_guard_wakes ? quick_calls[c->number] : 0; }

static inline bool fits_quick(unsigned quick, const struct rs_call *c) { return !(quick & NAMELESS && c->arg[4]) && !(quick & POLLS_ONE && (c->arg[1] != 1 || !c->arg[0])); }

/* What `record` makes of a read of a file that it has seen in this epoch. Between the events of t, so that the epoch stays. */
static bool follows_quickly(struct rs_guard_log *t, struct rs_call *c)
{
	const struct rs_guard_fd *f = c->arg[0] < RS_GUARD_FDS ? &rs_guard_reads->fd[c->arg[0]] : NULL;
	if (!f || f->epoch != rs_guard_reads->epoch || !f->file || (f->changes && rs_guard_keeps_data(t, c)) || (int64_t)c->arg[3] < 0 || (int64_t)(c->arg[2] | (c->arg[2] + c->arg[3])) < 0) {
		rs_guard_end_quickly(t);
		return false;
	}
	c->guard_file = f->file;
	c->guard_offset = c->arg[3];
	c->guard_class = RS_GUARD_REVOCABLE;
	rs_guard_read_to(f->file, c->arg[3] + c->arg[2]);
	return true;
}

bool rs_guard_sys_quick(struct rs_call *c)
{
	struct rs_guard_log *t = rs_guard_mine;
	unsigned quick = quick_of(c);
	if (!quick || !t || t->outside || c->see || t->bytes_at >= RS_GUARD_NEARLY_BYTES || !fits_quick(quick, c))
		return false;
	if (quick & OTHERS) {
		const struct rs_guard_fd *f = c->arg[0] < RS_GUARD_FDS ? &rs_guard_reads->fd[c->arg[0]] : NULL;
		if (!f || f->epoch != rs_guard_reads->epoch || f->kind != RS_GUARD_FD_OTHER)
			return false;
	}
	if (!rs_guard_begin_quickly(t))
		return false;
	if (quick & FOLLOWED && !follows_quickly(t, c))
		return false;
	__atomic_store_n(&t->inner, RS_GUARD_AT_CALL, __ATOMIC_RELEASE);
	t->sp = (uintptr_t)c + RS_CALL_FRAME;
	c->start = 1;
	c->guard_check = rs_guard_check(c);
	c->guard_room = quick & FOLLOWED ? rs_guard_undo_now() : 0;
	if (!(quick & FOLLOWED)) {
		c->guard_file = 0;
		c->guard_offset = rs_guard_rows[c->number].order & RS_GUARD_GIVES ? (uint64_t)rs_guard_reads->epoch << 32 | rs_guard_ticket_shared(rs_guard_wakes) : 0;
		c->guard_class = RS_GUARD_RECORDABLE;
	}
	c->guard_again = 0;
	c->guard_state = RS_GUARD_CALL_NOTED;
	if (quick & MAY_WAIT) {
		rs_guard_call_begins(c);
		rs_guard_try_wait(t, false);
		t->pending = RS_GUARD_WHAT(c->number, RS_GUARD_CALL);
		__atomic_store_n(&t->state, RS_GUARD_IN_CALL, __ATOMIC_RELEASE);
	}
	return true;
}

/* from, n: the piece; bytes: of the note. */
static inline void note_quick(struct rs_guard_log *t, const struct rs_call *c, unsigned quick, uint64_t from, uint64_t n, uint32_t bytes)
{
	uint64_t *to = (uint64_t *)(t->bytes + t->bytes_at);
	struct rs_guard_noted *e = (struct rs_guard_noted *)(to + 1);
	struct rs_guard_piece *p = (struct rs_guard_piece *)(e + 1);
	*to = (uint64_t)c->result;
	e->check = c->guard_check;
	e->data = quick & READS_BYTES ? rs_guard_data_of(c, c->result) : 0;
	e->file = c->guard_file;
	e->class = c->guard_class;
	e->order = 0;
	if (quick & FOLLOWED) {
		e->offset = c->guard_offset;
		rs_guard_hash_piece(&e->data, (const void *)c->arg[1], (size_t)c->result);
		if ((uint64_t)c->result < c->arg[2])
			rs_guard_read_to(e->file, UINT64_MAX); /* the file's end was seen */
	} else {
		e->offset = rs_guard_order_of(c, RS_GUARD_RECORDABLE, &e->order);
	}
	e->pieces = quick & FOLLOWED ? c->guard_room : n != 0;
	if (n) {
		*p = (struct rs_guard_piece){from, n};
		rs_os_copy(p + 1, (const void *)from, n);
	}
	t->bytes_at += 8 + bytes;
	rs_guard_append_quickly(t, RS_GUARD_WHAT(c->number, RS_GUARD_CALL), bytes, 0);
}

bool rs_guard_sys_quick_over(struct rs_call *c)
{
	struct rs_guard_log *t = rs_guard_mine;
	unsigned quick = quick_of(c);
	const long *a = (const long *)c->arg;
	uint64_t n = 0, from = (uint64_t)a[1];
	if (!quick || !t || c->guard_state != RS_GUARD_CALL_NOTED || c->guard_class != (quick & FOLLOWED ? RS_GUARD_REVOCABLE : RS_GUARD_RECORDABLE) || c->result == -EINTR || t->at >= t->quick || !fits_quick(quick, c))
		return false;
	if (quick & FOLLOWED && c->result < 0)
		return false;
	if (c->result > 0 && quick & (WRITES_BYTES | WRITES_EVENTS))
		n = quick & WRITES_EVENTS ? (uint64_t)c->result * sizeof(struct epoll_event) : c->result < a[2] ? (uint64_t)c->result : (uint64_t)a[2];
	if (c->result >= 0 && quick & POLLS_ONE)
		from = (uint64_t)a[0] + offsetof(struct pollfd, revents), n = sizeof(short);
	uint32_t bytes = (uint32_t)(sizeof(struct rs_guard_noted) + (n ? sizeof(struct rs_guard_piece) + ((n + 7) & ~7ul) : 0));
	bool lost = rs_guard_is_lost(rs_guard_world());
	if (!lost && (n > RS_GUARD_BYTES || t->bytes_at + 8 + bytes > t->bytes_ready))
		return false;
	bool waited = rs_guard_call_over(t);
	if (RS_LIKELY(!lost))
		note_quick(t, c, quick, from, n, bytes);
	if (waited)
		rs_guard_try_wait(t, true);
	__atomic_store_n(&t->inner, 0, __ATOMIC_RELEASE);
	rs_guard_leave_frame(c);
	if (RS_UNLIKELY(t->signals))
		rs_guard_sys_signals(c, (uintptr_t)c + RS_CALL_FRAME);
	return true;
}

/* The tables say the same of them. */
void rs_guard_sys_quick_begin(void)
{
	for (unsigned i = 0; i < QUICK_CALLS; i++) {
		const struct rs_guard_row *r = &rs_guard_rows[i];
		const struct rs_call c = {.number = i};
		bool gives = r->order & RS_GUARD_GIVES, files = r->rules || r->order & RS_GUARD_NOT_FILES;
		if (quick_calls[i] && (r->class != RS_GUARD_RECORDABLE || (files && !(quick_calls[i] & (OTHERS | FOLLOWED))) || rs_guard_may_wait(&c, RS_GUARD_RECORDABLE) != !!(quick_calls[i] & MAY_WAIT) || (gives && quick_calls[i] & MAY_WAIT)))
			return;
	}
	rs_guard_ticket(RS_GUARD_WAKES); /* so that there is the object; the first epoch counts anew */
	rs_guard_wakes = rs_guard_object(RS_GUARD_WAKES);
}
