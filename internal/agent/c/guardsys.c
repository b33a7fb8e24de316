/* guardsys.c: the program's system calls in an epoch: what they gave is written down, and given back in a re-execution (guardsysfollow.c). Classes: internal/guard. See guardsys.h.
 *
 * In a nutshell. What the recording did outside of private memory stays done, and descriptors stay as it left them. So a re-execution makes no call again but those on memory, masks and actions, which a rollback puts back,
 * and reads of files, which are made at the offset that they had in the recording, wherever the descriptor's offset is now. A file that was read from and is closed in the same epoch is kept open by the coordinator (guardkept.c). Before something
 * that was read in it is overwritten, what is there is kept (guardundo.c); where that cannot be, the epoch ends, and the call is the next one's first: nothing was read in that. What is read of such a file from then on is recorded, as far as the log has room.
 *
 * Ground rules: calls.h's of rs_call_before: general registers only. The arena holds all of our state; descriptors are looked at anew in each epoch. */
#include "dispatch.h"
#include "guardsys.h"
#include "called.h"
#include "guardhash.h"
#include "guardkept.h"
#include "guardnote.h"
#include "guardpage.h"
#include "guardread.h"
#include "guardsignal.h"
#include "guardstack.h"
#include "guardthread.h"
#include "guardtry.h"
#include "guardundo.h"
#include "guardwatch.h"
#include "guardyield.h"
#include "world.h"
#include "zz_guardclass.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>

enum { RSEQ = 334 };
enum { ENDS = 4 }; /* for one call: others may read again meanwhile what it is to overwrite */
static struct sys { struct rs_guard_sys_verdict stats; } *sys;

/* --- classes ------------------------------------------------------------------------------------------------------------------------------------- */

static bool holds(const struct rs_guard_rule *r, uint64_t a)
{
	if (r->test == RS_GUARD_IF_MASKED)
		return (a & r->mask) == r->value;
	if (r->test == RS_GUARD_IF_ANY_BIT)
		return (a & r->mask) != 0;
	const struct rs_guard_fd *f = rs_guard_fd_of((int32_t)a);
	unsigned kind = f ? f->kind : RS_GUARD_FD_OTHER;
	return r->test == RS_GUARD_IF_FILE ? kind > RS_GUARD_FD_OTHER : kind == (r->test == RS_GUARD_IF_READER ? RS_GUARD_FD_READER : RS_GUARD_FD_WRITER);
}

static unsigned class_of(const struct rs_call *c)
{
	if (c->number >= RS_GUARD_NUMBERS)
		return RS_GUARD_IRREVOCABLE;
	const struct rs_guard_row *row = &rs_guard_rows[c->number];
	const struct rs_guard_rule *rule = &rs_guard_rules[row->first];
	for (unsigned i = 0; i < row->rules; i++)
		if (holds(&rule[i], c->arg[rule[i].arg]))
			return rule[i].class;
	return row->class;
}

bool rs_guard_may_wait(const struct rs_call *c, unsigned class)
{
	switch (c->number) {
	case SYS_read:
	case SYS_readv:
	case SYS_preadv2: return class == RS_GUARD_RECORDABLE;
	case SYS_recvfrom:
	case SYS_recvmsg:
	case SYS_accept:
	case SYS_accept4:
	case SYS_poll:
	case SYS_ppoll:
	case SYS_select:
	case SYS_pselect6:
	case SYS_epoll_wait:
	case SYS_epoll_pwait:
	case 441 /* epoll_pwait2 */:
	case SYS_nanosleep:
	case SYS_clock_nanosleep:
	case SYS_pause:
	case SYS_rt_sigsuspend:
	case SYS_rt_sigtimedwait:
	case SYS_wait4:
	case SYS_waitid:
	case SYS_semop:
	case SYS_semtimedop:
	case SYS_mq_timedreceive:
	case SYS_flock: return true;
	case SYS_fcntl: return c->arg[1] == F_SETLKW || c->arg[1] == F_OFD_SETLKW;
	}
	return false;
}

/* --- record ---------------------------------------------------------------------------------------------------------------------------------------- */

static bool at_offset(const struct rs_call *c) { return c->number == SYS_pread64 || c->number == SYS_preadv || c->number == SYS_preadv2; }

/* Reads whose offset cannot be told are recorded. */
static unsigned reading(const struct rs_guard_log *t, struct rs_call *c)
{
	int32_t fd = (int32_t)c->arg[0];
	const bool one = c->number == SYS_read || c->number == SYS_pread64;
	const struct rs_guard_fd *f = rs_guard_fd_of(fd);
	c->guard_offset = 0;
	if (one && f && f->changes && rs_guard_keeps_data(t, c))
		return RS_GUARD_RECORDABLE;
	c->guard_file = rs_guard_file_of(fd);
	long at = at_offset(c) ? (long)c->arg[3] : RS_SYS3(SYS_lseek, fd, 0, SEEK_CUR);
	c->guard_offset = (uint64_t)at;
	if (!c->guard_file || at < 0)
		return RS_GUARD_RECORDABLE;
	rs_guard_read_to(c->guard_file, one && c->arg[2] < UINT64_MAX / 2 ? (uint64_t)at + c->arg[2] : UINT64_MAX);
	return RS_GUARD_REVOCABLE;
}

static long between_epochs(struct rs_call *c)
{
	sys->stats.ended++;
	rs_guard_out_before(RS_GUARD_LOST_CALL, c->number, RS_GUARD_CALL);
	rs_guard_kept_drop();
	if (c->number == SYS_execve || c->number == SYS_execveat)
		rs_guard_hold();
	c->guard_state = RS_GUARD_CALL_BETWEEN;
	return 1;
}

/* What one thread gives another takes: what is written, a signal, a descriptor's end. Their order is an object of calls, too: who gives takes a ticket before it does, who takes notes behind it how many there were, and in a re-execution
 * comes behind as many. Nothing is locked, and those who take do not wait for each other. One order for all: which descriptors belong together is not known here, nor what another process answers to whom. */

/* With a ticket. A call in which the epoch may end must have none: it would be in no log. */
static bool gives(const struct rs_call *c, unsigned class)
{
	unsigned order = rs_guard_rows[c->number].order;
	if (!(order & RS_GUARD_GIVES) || (class != RS_GUARD_RECORDABLE && class != RS_GUARD_DEFERRABLE) || rs_guard_may_wait(c, class))
		return false;
	const struct rs_guard_fd *f = order & RS_GUARD_NOT_FILES ? rs_guard_fd_of((int32_t)c->arg[0]) : NULL;
	return !f || f->kind == RS_GUARD_FD_OTHER;
}

struct rs_guard_object *rs_guard_wakes;

static uint32_t tickets_of_wakes(void) { return rs_guard_wakes ? __atomic_load_n(&rs_guard_wakes->ticket, __ATOMIC_ACQUIRE) : rs_guard_tickets(RS_GUARD_WAKES); }

uint64_t rs_guard_order_of(const struct rs_call *c, uint8_t class, uint8_t *order)
{
	unsigned has = class == RS_GUARD_RECORDABLE || class == RS_GUARD_DEFERRABLE ? rs_guard_rows[c->number].order : 0;
	/* Before which the epoch ended: so did all that it is to be seen of. */
	bool gave = has & RS_GUARD_GIVES && c->guard_offset >> 32 == rs_guard_reads->epoch;
	*order = (uint8_t)((has & RS_GUARD_TAKES) | (gave ? RS_GUARD_GIVES : 0));
	return (gave ? (uint32_t)c->guard_offset : 0) | (has & RS_GUARD_TAKES ? (uint64_t)tickets_of_wakes() << 32 : 0);
}

static bool onto_itself(const struct rs_call *c) { return c->number == SYS_dup2 && (int32_t)c->arg[0] == (int32_t)c->arg[1]; }

static bool closes_range(const struct rs_call *c) { return c->number == SYS_close_range && !(c->arg[2] & CLOSE_RANGE_CLOEXEC); }

/* The call cannot be made in an epoch that has read what it has: -1: that one is over, look again. It is lost where its end would cost too much, or where others read the same again and again. */
static long end_first(struct rs_guard_log *t, struct rs_call *c, unsigned *ends)
{
	__atomic_store_n(&t->inner, 0, __ATOMIC_RELEASE);
	return (*ends)++ < ENDS && rs_guard_end_before(t, c->number, RS_GUARD_CALL) ? -1 : between_epochs(c);
}

static long record(struct rs_guard_log *t, struct rs_call *c, unsigned *ends)
{
	unsigned class = c->number == RSEQ && t->young ? RS_GUARD_REPEATABLE : class_of(c);
	if (class == RS_GUARD_LOOSE)
		return 1;
	if (class == RS_GUARD_IRREVOCABLE)
		return between_epochs(c);
	if (rs_guard_kept_matters(c) && rs_guard_kept_has((int32_t)c->arg[0]))
		return end_first(t, c, ends);
	rs_guard_call_begin(t, (uint16_t)c->number, rs_guard_may_wait(c, class));
	if (!t->inner)
		return -1;
	struct rs_guard_over over;
	t->reads = __atomic_load_n(&rs_guard_reads->reads, __ATOMIC_SEQ_CST);
	if (!rs_guard_is_lost(rs_guard_world()) && rs_guard_overwrites(c, false, &over)) {
		long kept = rs_guard_undo_keep(c, &over);
		if (kept < 0) {
			if (kept != -ENOSPC)
				rs_guard_note_change(over.file);
			return end_first(t, c, ends);
		}
		t->reads = RS_GUARD_UNDONE;
	}
	if (class == RS_GUARD_DEFERRABLE && !onto_itself(c) && !rs_guard_keep_read((int32_t)c->arg[c->number == SYS_close ? 0 : 1]))
		return end_first(t, c, ends);
	if (closes_range(c) && !rs_guard_keep_range((uint32_t)c->arg[0], (uint32_t)c->arg[1]))
		return end_first(t, c, ends);
	c->guard_check = rs_guard_check(c);
	c->guard_room = rs_kernel_room((unsigned)c->number, (const long *)c->arg);
	c->guard_file = 0;
	if (class == RS_GUARD_REVOCABLE) {
		class = reading(t, c);
		if (class == RS_GUARD_REVOCABLE)
			c->guard_room = rs_guard_undo_now();
	} else if (gives(c, class))
		c->guard_offset = (uint64_t)rs_guard_reads->epoch << 32 | rs_guard_ticket(RS_GUARD_WAKES);
	else
		c->guard_offset = 0;
	if (c->number == SYS_mmap && !(c->arg[3] & MAP_ANONYMOUS) && (c->guard_file = rs_guard_file_of((int32_t)c->arg[4]))) {
		rs_guard_reads->file[c->guard_file].mapped = true;
		rs_guard_read_to(c->guard_file, UINT64_MAX);
	}
	if (c->number == SYS_madvise && c->arg[2] == MADV_FREE)
		c->arg[2] = MADV_DONTNEED;
	if (c->number == SYS_munmap)
		c->guard_offset = (uint64_t)rs_guard_reads->epoch << 32 | rs_guard_ticket(RS_GUARD_PLACES);
	c->guard_again = 0;
	c->guard_class = (uint8_t)class;
	c->guard_state = RS_GUARD_CALL_NOTED;
	rs_guard_call_lend(t, c);
	return 1;
}

struct room { char *to; uint64_t bytes; uint32_t pieces; };

static void measure(void *arg, const void *p, size_t n)
{
	struct room *r = arg;
	(void)p;
	r->bytes += sizeof(struct rs_guard_piece) + ((n + 7) & ~7ul);
	r->pieces++;
}

static void take_piece(void *arg, const void *p, size_t n)
{
	struct room *r = arg;
	uint64_t padded = (n + 7) & ~7ul;
	if (!r->pieces || sizeof(struct rs_guard_piece) + padded > r->bytes)
		return; /* what it points to changed under us */
	*(struct rs_guard_piece *)r->to = (struct rs_guard_piece){(uintptr_t)p, n};
	rs_os_copy(r->to + sizeof(struct rs_guard_piece), p, n);
	r->to += sizeof(struct rs_guard_piece) + padded;
	r->bytes -= sizeof(struct rs_guard_piece) + padded;
	r->pieces--;
}

static void write_down(struct rs_guard_log *t, struct rs_call *c)
{
	if (rs_guard_is_lost(rs_guard_world()))
		return;
	const long *a = (const long *)c->arg;
	unsigned n = (unsigned)c->number;
	struct rs_guard_noted e = {.check = c->guard_check, .offset = c->guard_offset, .file = c->guard_file, .class = c->guard_class};
	if (e.class == RS_GUARD_REVOCABLE) {
		/* Others may have moved the offset in between. */
		bool sure = c->result >= 0 && (at_offset(c) || RS_SYS3(SYS_lseek, (int32_t)a[0], 0, SEEK_CUR) == (long)e.offset + c->result);
		if (sure) {
			uint64_t asked = n == SYS_read || n == SYS_pread64 ? c->arg[2] : UINT64_MAX;
			rs_kernel_pieces(n, a, c->result, 0, rs_guard_hash_piece, &e.data);
			rs_guard_read_to(e.file, (uint64_t)c->result < asked ? UINT64_MAX : e.offset + (uint64_t)c->result); /* the file's end was seen */
		} else {
			e.class = RS_GUARD_RECORDABLE;
		}
	}
	/* A munmap before which the epoch ended has a ticket of that one. */
	if (rs_guard_of_map(n))
		e.offset = n == SYS_munmap && e.offset >> 32 == rs_guard_reads->epoch ? (uint32_t)e.offset : rs_guard_ticket(RS_GUARD_PLACES);
	struct room r = {0};
	if (e.class == RS_GUARD_RECORDABLE || e.class == RS_GUARD_DEFERRABLE) {
		e.data = rs_guard_data_of(c, c->result);
		e.offset = rs_guard_order_of(c, e.class, &e.order);
		rs_kernel_pieces(n, a, c->result, c->guard_room, measure, &r);
	}
	e.pieces = e.class == RS_GUARD_REVOCABLE ? c->guard_room : r.pieces;
	sys->stats.class[e.class]++;
	char *to = r.bytes > UINT32_MAX - sizeof e ? NULL : rs_guard_call_put(t, (uint16_t)n, c->result, (uint32_t)(sizeof e + r.bytes));
	if (!to)
		return;
	rs_os_copy(to, &e, sizeof e);
	r.to = to + sizeof e;
	if (r.pieces) {
		struct room left = r;
		rs_kernel_pieces(n, a, c->result, c->guard_room, take_piece, &left);
		for (; left.pieces; left.pieces--, left.to += sizeof(struct rs_guard_piece)) /* never, but for races on what it points to */
			*(struct rs_guard_piece *)left.to = (struct rs_guard_piece){0, 0};
	}
}

/* A descriptor that is another one's, or nobody's, from now on. */
static void closed(const struct rs_call *c)
{
	if (onto_itself(c))
		return;
	if (c->number == SYS_close)
		rs_guard_fd_forget((int32_t)c->arg[0]);
	else if (closes_range(c))
		rs_guard_fd_forget_range((uint32_t)c->arg[0], (uint32_t)c->arg[1]);
	else if (c->number == SYS_dup2 || c->number == SYS_dup3)
		rs_guard_fd_forget((int32_t)c->arg[1]);
	else if (c->number == SYS_fcntl && (uint32_t)c->arg[1] == F_SETFL)
		rs_guard_fd_append((int32_t)c->arg[0], c->arg[2] & O_APPEND);
}

/* --- the hook ------------------------------------------------------------------------------------------------------------------------------------------ */

static bool waits_for_futex(const struct rs_call *c)
{
	unsigned op = (unsigned)c->arg[1] & FUTEX_CMD_MASK;
	return c->number == SYS_futex ? op == FUTEX_WAIT || op == FUTEX_WAIT_BITSET || op == FUTEX_LOCK_PI || op == 13 /* FUTEX_LOCK_PI2 */ : c->number == 449 /* futex_waitv */ || c->number == 455 /* futex_wait */;
}

bool rs_guard_waits_for_ours(const struct rs_call *c)
{
	/* libstdc++ does not say that its words are of one process. */
	unsigned op = (unsigned)c->arg[1] & ~(unsigned)FUTEX_PRIVATE_FLAG;
	return c->number == SYS_futex && (op == FUTEX_WAIT || op == FUTEX_WAIT_BITSET);
}

/* A re-execution's wait for a word. Who wakes it is nowhere in the log, and may have done so before it came here: an atomic of the program's is read and written in no recorded order. So it waits for a moment and then goes on, as after any wake-up that was for nothing;
 * what it does next has its place. Where the recording ended in this very wait, it stays. False: it is another kind of wait, or has an end of its own, which has come if it had come in the recording. */
static bool waits_briefly(struct rs_guard_log *t, struct rs_call *c)
{
	enum { SLICE_NS = 1000000, SECOND = 1000000000 };
	const uint64_t what = RS_GUARD_WHAT(SYS_futex, RS_GUARD_CALL);
	if (!rs_guard_waits_for_ours(c))
		return false;
	c->result = 0;
	const uint32_t next = rs_guard_next_at(t);
	if (next == t->end && t->pending_end == what && t->fin.sp == t->sp)
		rs_guard_replay_end(t, SYS_futex);
	if (c->arg[3] || __atomic_load_n(&rs_guard_world()->ending, __ATOMIC_ACQUIRE))
		return false;
	if (rs_guard_strays(t))
		rs_guard_diverged(t, next < t->end ? RS_GUARD_EVENT : RS_GUARD_MORE, next < t->end ? t->event[next].what : t->pending_end, what);
	struct timespec until = {0};
	RS_SYS2(SYS_clock_gettime, CLOCK_MONOTONIC, &until);
	until.tv_nsec += SLICE_NS;
	if (until.tv_nsec >= SECOND)
		until.tv_nsec -= SECOND, until.tv_sec++;
	rs_guard_sleep_for_word(t, (uint32_t *)c->arg[0], (uint32_t)c->arg[2], !(c->arg[1] & FUTEX_PRIVATE_FLAG), &until);
	return true;
}

/* How many were woken is told at chance's will, and a program may go by it (Rust's RwLock wakes readers where no writer waited); so it is what it was. True: it was made. */
static bool wakes(struct rs_guard_log *t, struct rs_call *c, unsigned mode)
{
	unsigned op = (unsigned)c->arg[1];
	if (c->number != SYS_futex || ((op & ~(unsigned)FUTEX_PRIVATE_FLAG) != FUTEX_WAKE && (op & ~(unsigned)FUTEX_PRIVATE_FLAG) != FUTEX_WAKE_BITSET))
		return false;
	const uintptr_t word = c->arg[0];
	if (mode == RS_GUARD_RECORD && !rs_guard_begin_act(t))
		return false;
	c->result = RS_SYS6(SYS_futex, word, op, c->arg[2], c->arg[3], c->arg[4], c->arg[5]);
	if (mode == RS_GUARD_RECORD && c->result > 0)
		rs_guard_after(t, word, RS_GUARD_WOKE, (int32_t)c->result, false);
	if (mode == RS_GUARD_RECORD)
		rs_guard_no_act(t);
	if (mode != RS_GUARD_REPLAY || c->result < 0)
		return true;
	c->result = 0;
	for (uint32_t at = t->at; at < rs_guard_next_at(t); at++)
		if (t->event[at].what == RS_GUARD_WHAT(word, RS_GUARD_WOKE)) {
			c->result = t->event[at].result;
			rs_guard_pass_over(t, at + 1);
			break;
		}
	return true;
}

/* From here on calls kill, or tell of us. */
static bool shuts_in(const struct rs_call *c) { return c->number == SYS_seccomp || (c->number == SYS_prctl && c->arg[0] == 22 /* PR_SET_SECCOMP */); }

/* As rs_call_before; -1: once more. */
static long begun_thread(struct rs_guard_log *t, struct rs_call *c, unsigned mode)
{
	if (c->number == SYS_exit)
		return rs_guard_thread_exit(t, mode);
	long how = rs_guard_thread_clone(t, c, mode);
	if (how == RS_GUARD_MAKE_BIRTH) {
		c->guard_check = rs_guard_check(c);
		c->guard_class = RS_GUARD_RECORDABLE;
		c->guard_room = c->guard_file = 0;
		c->guard_state = RS_GUARD_CALL_BIRTH;
	}
	if (how != 0)
		return how;
	if (rs_guard_sys_follow(t, c) < 0)
		return -1;
	rs_guard_thread_again(t, c, c->result);
	return 0;
}

/* A handler has run in it, and it is over. */
static long interrupted(struct rs_guard_log *t, struct rs_call *c)
{
	rs_guard_call_begin(t, (uint16_t)c->number, false);
	if (!t->inner)
		return -1;
	c->guard_check = rs_guard_check(c);
	c->guard_room = rs_kernel_room((unsigned)c->number, (const long *)c->arg);
	c->guard_file = 0;
	c->guard_offset = 0;
	c->guard_class = RS_GUARD_RECORDABLE;
	c->result = -EINTR;
	write_down(t, c);
	__atomic_store_n(&t->inner, 0, __ATOMIC_RELEASE);
	return 0;
}

/* Made here, as it is not what the program asks for. t: NULL: nothing is written down. False: once more. */
static bool alternate(struct rs_guard_log *t, struct rs_call *c)
{
	if (t) {
		rs_guard_call_begin(t, (uint16_t)c->number, false);
		if (!t->inner)
			return false;
	}
	c->guard_check = rs_guard_check(c);
	c->guard_room = c->guard_file = 0;
	c->guard_offset = 0;
	c->guard_class = RS_GUARD_REPEATABLE;
	c->result = rs_guard_stack_call(c, false);
	if (t) {
		write_down(t, c);
		__atomic_store_n(&t->inner, 0, __ATOMIC_RELEASE);
	}
	return true;
}

/* What the vdso does not know it asks the kernel, by a site of its own, and it is one call. One that is left by longjmp (its argument's page is not there) is left behind. */
static bool of_vdso(struct rs_guard_log *t, const struct rs_call *c, uintptr_t sp)
{
	enum { DEEPEST = 1024 };
	return t->vdso_number && t->vdso_number == c->number && t->vdso_sp - sp < DEEPEST && t->vdso_sp != sp;
}

/* sp: the program's stack pointer. */
long rs_guard_sys_begun(struct rs_call *c, uintptr_t sp)
{
	const bool of_thread = c->number == SYS_clone3 || c->number == SYS_exit;
	unsigned ends = 0;
	const bool waits = waits_for_futex(c), eintr = c->see == 1 && c->guard_state == RS_GUARD_CALL_INTERRUPTED;
	c->guard_state = RS_GUARD_CALL_UNSEEN;
	if (c->number == SYS_clone3 || c->number == SYS_clone)
		rs_guard_words_begin();
	if (!sys)
		return of_thread ? RS_GUARD_MAKE_PASS : 1;
	rs_guard_kept_sees(c);
	if (RS_UNLIKELY(rs_guard_call_wants_alone(c)) && rs_guard_mode() != RS_GUARD_REPLAY) {
		rs_guard_leave();
		return 1;
	}
	for (;;) {
		struct rs_guard_log *t = rs_guard_self();
		if (t && RS_UNLIKELY(of_vdso(t, c, sp)))
			return 1;
		if (t)
			t->sp = sp;
		unsigned mode = t ? rs_guard_mode() : RS_GUARD_OFF;
		/* Other calls about futexes are nowhere in the log; a yield is not either, but a place for a handler. */
		if (mode != RS_GUARD_OFF && !t->outside && (waits || c->number == SYS_sched_yield || c->number >= RS_GUARD_NUMBERS || rs_guard_rows[c->number].class != RS_GUARD_LOOSE) && rs_guard_signals(t, RS_GUARD_WHAT(c->number, RS_GUARD_CALL)))
			continue;
		if (of_thread) {
			long how = begun_thread(t, c, mode);
			if (how < 0)
				continue;
			return how;
		}
		if (c->number == SYS_sigaltstack && mode != RS_GUARD_REPLAY) {
			if (!alternate(t && !t->outside && mode == RS_GUARD_RECORD ? t : NULL, c))
				continue;
			return 0;
		}
		if (mode == RS_GUARD_OFF || t->outside) {
			if (t && rs_guard_kept_matters(c) && t->tid == rs_os_tid())
				rs_guard_kept_drop();
			return 1;
		}
		if (mode == RS_GUARD_RECORD && shuts_in(c) && rs_guard_world()->session) {
			rs_guard_off();
			return 1;
		}
		if (RS_UNLIKELY(c->number == SYS_sched_yield))
			return rs_guard_yield_plainly(t) ? 1 : RS_GUARD_MAKE_YIELD;
		if (waits && eintr) {
			c->result = -EINTR;
			return 0;
		}
		if (wakes(t, c, mode))
			return 0;
		if (waits && mode == RS_GUARD_REPLAY && waits_briefly(t, c))
			return 0;
		if (waits) {
			c->guard_again = 0;
			t->pending = RS_GUARD_WHAT(c->number, RS_GUARD_CALL);
			__atomic_store_n(&t->state, RS_GUARD_IN_CALL, __ATOMIC_RELEASE);
			c->guard_state = RS_GUARD_CALL_WAIT;
			return 1;
		}
		long made = mode != RS_GUARD_RECORD ? rs_guard_sys_follow(t, c) : eintr ? interrupted(t, c) : record(t, c, &ends);
		if (made >= 0)
			return made;
	}
}

/* What came while the call was made: before it returns. */
void rs_guard_sys_signals(const struct rs_call *c, uintptr_t sp)
{
	struct rs_guard_log *t = rs_guard_self();
	while (t && rs_guard_mode() != RS_GUARD_OFF && !t->outside) {
		t->sp = sp;
		if (!rs_guard_signals(t, RS_GUARD_BEHIND(c->number)))
			break;
	}
}

long rs_guard_sys_before(struct rs_call *c)
{
	const uintptr_t sp = (uintptr_t)c + RS_CALL_FRAME;
	long made = rs_guard_sys_begun(c, sp);
	if (!made) {
		rs_guard_leave_frame(c);
		rs_guard_sys_signals(c, sp);
	} else if (made == 1 && rs_guard_mode() != RS_GUARD_OFF) {
		rs_guard_call_begins(c);
	} else {
		c->begun = 0;
	}
	return made;
}

/* glibc blocks all signals in pthread_kill and the like, and the thread may come to stand before its next call. */
static void open_ours(const struct rs_call *c)
{
	const uint64_t stops = 1ull << (RS_WORLD_SIGNAL - 1);
	if (c->number == SYS_rt_sigprocmask && c->result == 0 && c->arg[1] && c->arg[0] != SIG_UNBLOCK && *(const uint64_t *)c->arg[1] & stops)
		RS_SYS4(SYS_rt_sigprocmask, SIG_UNBLOCK, &stops, NULL, 8);
}

/* glibc puts its own handler over ours when the first thread is made: a stop's signal that came there would be lost, and what that handler asks for be an event wherever the thread was. */
static void keep_ours(const struct rs_call *c)
{
	if (c->number == SYS_rt_sigaction && c->result == 0 && c->arg[0] == RS_WORLD_SIGNAL && c->arg[1])
		rs_world_own_action();
}

static void wrote(void *arg, const void *p, size_t n) { rs_guard_watch_wrote(arg, p, n); }

void rs_guard_sys_over(struct rs_call *c)
{
	unsigned state = c->guard_state;
	rs_guard_call_take_back(c);
	struct rs_guard_log *t = state == RS_GUARD_CALL_UNSEEN ? NULL : rs_guard_self();
	if (!t)
		return;
	keep_ours(c);
	unsigned mode = rs_guard_mode();
	c->guard_state = RS_GUARD_CALL_UNSEEN;
	if (state == RS_GUARD_CALL_BETWEEN) {
		closed(c);
		if (c->number == SYS_execve || c->number == SYS_execveat)
			rs_guard_unhold();
		rs_guard_in();
	} else if (state == RS_GUARD_CALL_WAIT) {
		t->pending = 0;
		__atomic_store_n(&t->state, RS_GUARD_RUNS, __ATOMIC_RELEASE);
		if (mode == RS_GUARD_RECORD)
			t->found_another |= c->result == -EAGAIN;
		else if (mode == RS_GUARD_REPLAY && !c->arg[3])
			waits_briefly(t, c); /* it was waiting at the checkpoint, and has not been made now (rs_hook_skip): what ends it may come before it is made again */
	} else if (state == RS_GUARD_CALL_AGAIN) {
		rs_guard_page_after(c);
		/* A thread that stood before its first calls at the checkpoint has its area still. glibc wrote there that it has none, and the kernel says otherwise only of one that is new to it. */
		if (c->number == RSEQ && c->result == -EBUSY) {
			RS_SYS4(RSEQ, c->arg[0], c->arg[1], 1 /* unregister */, c->arg[3]);
			c->result = RS_SYS4(RSEQ, c->arg[0], c->arg[1], 0, c->arg[3]);
		}
		if (rs_guard_of_map((unsigned)c->number))
			rs_guard_next_turn(RS_GUARD_PLACES, c->guard_room);
		if (c->result != (long)c->guard_offset)
			rs_guard_diverged(t, RS_GUARD_CALL_RESULT, c->guard_offset, (uint64_t)c->result);
		rs_kernel_pieces((unsigned)c->number, (const long *)c->arg, c->result, 0, wrote, c);
	} else if (state == RS_GUARD_CALL_BIRTH) {
		if (c->result > 0)
			rs_guard_thread_made(c);
		else if (c->result == -ENOSYS)
			rs_guard_lost(RS_GUARD_LOST_THREAD); /* glibc falls back to clone */
		if (mode == RS_GUARD_RECORD)
			write_down(t, c);
		__atomic_store_n(&t->inner, 0, __ATOMIC_RELEASE);
	} else if (state == RS_GUARD_CALL_NOTED && mode == RS_GUARD_RECORD) {
		bool waited = rs_guard_call_over(t);
		rs_guard_overwritten(t, c);
		if (RS_UNLIKELY(c->number == SYS_pkey_alloc && c->result >= 0)) {
			rs_guard_lost(RS_GUARD_LOST_CALL);
			rs_guard_poke_soon();
		}
		write_down(t, c);
		open_ours(c);
		closed(c);
		/* As late as can be: what the program does behind it comes right behind it. */
		if (waited)
			rs_guard_try_wait(t, true);
		__atomic_store_n(&t->inner, 0, __ATOMIC_RELEASE);
	} else if (state == RS_GUARD_CALL_NOTED && mode == RS_GUARD_OFF) {
		rs_guard_call_over(t);
		__atomic_store_n(&t->inner, 0, __ATOMIC_RELEASE);
	} else if (state == RS_GUARD_CALL_NOTED && mode == RS_GUARD_REPLAY) {
		__atomic_store_n(&t->state, RS_GUARD_RUNS, __ATOMIC_RELEASE);
		t->pending = 0;
		/* It was waiting at the checkpoint, and has not been made now (rs_hook_skip). At the log's end it waits still. */
		if (rs_guard_sys_follow(t, c) != 0) {
			rs_guard_call_lend(t, c);
			c->result = RS_SYS6(c->number, c->arg[0], c->arg[1], c->arg[2], c->arg[3], c->arg[4], c->arg[5]);
			rs_guard_call_take_back(c);
		}
		if (c->guard_state == RS_GUARD_CALL_AGAIN)
			rs_guard_sys_over(c);
	}
}

void rs_guard_sys_ended(struct rs_call *c, uintptr_t sp)
{
	bool seen = c->guard_state != RS_GUARD_CALL_UNSEEN && c->guard_state != RS_GUARD_CALL_WAIT;
	rs_guard_sys_over(c);
	rs_guard_leave_frame(c);
	if (seen)
		rs_guard_sys_signals(c, sp);
}

void rs_guard_sys_after(struct rs_call *c) { rs_guard_sys_ended(c, (uintptr_t)c + RS_CALL_FRAME); }

/* --- begin ----------------------------------------------------------------------------------------------------------------------------------------------------- */

void rs_guard_sys_epoch(void)
{
	if (!sys)
		return;
	rs_guard_reads->epoch++;
	rs_guard_reads->files = 1;
	rs_guard_undo_epoch();
	rs_guard_kept_epoch();
}

bool rs_guard_sys_follows(void) { return sys != NULL; }

void rs_guard_sys_replayed(void) { sys->stats.replayed++; }

void rs_guard_sys_verdict(struct rs_guard_sys_verdict *v, bool over)
{
	struct rs_guard_world *w = rs_guard_world();
	struct rs_guard_log *t = rs_guard_self();
	uint64_t why = __atomic_load_n(&w->why, __ATOMIC_ACQUIRE); /* first: what else is said of it was there before (rs_guard_diverged) */
	*v = sys->stats;
	v->kept = rs_guard_reads->kept;
	v->why = why, v->event = w->event, v->was = w->was, v->is = w->is, v->lost = w->lost;
	v->events = t ? t->at : 0, v->end = t ? t->end : 0;
	if (over) {
		__atomic_store_n(&w->mode, RS_GUARD_OFF, __ATOMIC_RELEASE);
		rs_guard_no_quick();
		__atomic_fetch_add(&w->gate, 1, __ATOMIC_ACQ_REL);
		RS_SYS3(SYS_futex, &w->gate, FUTEX_WAKE_PRIVATE, INT32_MAX);
	}
}

static uint8_t unguarded[RS_CALL_ROWS]; /* rs_call_class without guard */

void rs_guard_sys_forget(void)
{
	if (!sys)
		return;
	rs_os_copy(rs_call_class, unguarded, sizeof unguarded);
	if (rs_dispatch_on)
		rs_dispatch_classes();
}

void rs_guard_sys_young(void)
{
	static const uint16_t lives[] = {SYS_read, SYS_write, SYS_poll, SYS_ppoll, SYS_select, SYS_pselect6, SYS_epoll_wait, SYS_epoll_pwait, 441 /* epoll_pwait2 */, SYS_accept, SYS_accept4, SYS_recvfrom, SYS_recvmsg, SYS_sendto, SYS_sendmsg,
					 SYS_nanosleep, SYS_clock_nanosleep, SYS_futex, SYS_pause, SYS_rt_sigsuspend, SYS_rt_sigtimedwait, SYS_semop, SYS_semtimedop, SYS_msgrcv, SYS_mq_timedreceive, SYS_mmap, SYS_munmap, SYS_brk, SYS_lseek, SYS_openat, SYS_close};
	for (unsigned i = 0; i < sizeof lives / sizeof *lives; i++)
		rs_call_class[lives[i]] = RS_CALL_SEE;
}

long rs_guard_sys_begin(void)
{
	/* They come back on another stack, with another fs, or not at all. */
	static const uint16_t pass[] = {SYS_clone, SYS_vfork, SYS_fork, SYS_arch_prctl, SYS_exit_group, SYS_rt_sigreturn};
	struct sys *s = rs_guard_map(RS_ARENA_OWN, sizeof *s);
	if (!s || rs_guard_reads_begin() < 0 || rs_guard_kept_begin() < 0 || rs_guard_undo_begin() < 0 || rs_guard_yields_begin() < 0 || rs_guard_vdso_begin() < 0)
		return -ENOMEM;
	rs_os_copy(unguarded, rs_call_class, sizeof unguarded);
	for (unsigned i = 0; i < RS_CALL_ROWS; i++)
		rs_call_class[i] = RS_CALL_SEE;
	for (unsigned i = 0; i < sizeof pass / sizeof *pass; i++)
		rs_call_class[pass[i]] = RS_CALL_PASS;
	sys = s;
	rs_guard_sys_quick_begin();
	rs_hook_on = 1;
	return 0;
}
