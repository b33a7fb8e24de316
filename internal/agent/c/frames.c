/* frames.c: in whose frame an address on a stack lies, as far as the thread that asks can know it: of its own frames, and of those that its creator had when it made the thread.
 * Nobody is stopped for it, and nothing is guessed. Async-signal-safe. */
#include "core.h"
#include <sys/uio.h>

enum { DEPTH = 32, TOLD = 16 };

/* Walks from where f is a step at a time: a walk's result says where its return address lay. Stops where that is not on the thread's own stack. */
static unsigned frames_of(struct rs_thread *t, struct rs_frame f, struct rs_place out[DEPTH])
{
	unsigned n = 0;
	for (; n < DEPTH; n++) {
		struct rs_trail trail;
		uint64_t pcs[2], ret = 0;
		out[n].pc = f.pc - 1;
		if (rs_walk(t, &f, false, pcs, 2, &trail) < 2 || pcs[1] != f.pc) /* the end, or a handler's frame */
			break;
		/* Words of other kinds are values of rbp, of this stack. Where frames of the agent's own were passed over the first counts. */
		for (unsigned i = 0; i < trail.n && !ret; i++)
			if (trail.value[i] < t->stack_lo || trail.value[i] >= t->stack_hi)
				ret = trail.at[i];
		if (!rs_frames_own(t, ret))
			break;
		out[n].cfa = ret + 8;
	}
	return n;
}

bool rs_peek(void *to, uintptr_t from, size_t n)
{
	struct iovec here = {to, n}, there = {(void *)from, n};
	return !rs_sandboxed && RS_SYS6(SYS_process_vm_readv, rs_os_tid(), &here, 1, &there, 1, 0) == (long)n;
}

/* The frames of a thread's creator when it made it. */
struct origin {
	uint32_t number, n;        /* the thread's */
	bool first;                /* it is the process's first thread, whose stack is always there */
	uint64_t sp, ret[DEPTH];   /* what lies below each frame's end */
	bool sure[DEPTH];          /* where ret is again, and all further out are, the frame is of the same function */
	struct rs_place frame[DEPTH];
};

struct told { uintptr_t obj; uint32_t stack, number, pid; struct rs_place in; };

extern const char __ehdr_start[] RS_HIDDEN, _end[] RS_HIDDEN;

/* A direct call leads to one function; and below the first three frames of a stack there is nobody who calls this one and that. */
static bool leads_to_one(uint64_t ret, unsigned outwards)
{
	static uintptr_t base, end;
	if (*(const uint8_t *)(ret - 5) == 0xe8)
		return true;
	if (!base) {
		const struct rs_module *libc = rs_module_of(rs_thread_tls, (uintptr_t)rs_real.pthread_create);
		if (libc) {
			end = libc->end;
			base = libc->base;
		}
	}
	return outwards == 1 || (outwards <= 3 && (ret - base < end - base || ret - (uintptr_t)__ehdr_start < (uintptr_t)_end - (uintptr_t)__ehdr_start));
}

void rs_frames_origin(struct rs_thread *t, struct rs_thread *child, uintptr_t pc, void *fp)
{
	struct origin *o = child->origin;
	if (!o && !(o = child->origin = rs_os_map(sizeof *o)))
		return;
	struct rs_frame f = {.pc = pc, .rsp = (uintptr_t)fp + 16, .rbp = *(const uint64_t *)fp, .has_rbp = true};
	o->number = child->number;
	o->sp = f.rsp;
	o->first = t->tid == (uint32_t)rs_process.pid;
	o->n = rs_frames_own(t, f.rsp) ? frames_of(t, f, o->frame) : 0;
	if (o->n == DEPTH) /* not all of them */
		o->n = 0;
	for (unsigned i = 0; i < o->n; i++) {
		o->ret[i] = *(const uint64_t *)(o->frame[i].cfa - 8);
		o->sure[i] = leads_to_one(o->ret[i], o->n - i);
	}
}

struct rs_place rs_frames_creator(const struct rs_thread *t, uint64_t addr)
{
	const struct origin *o = t->origin;
	const struct rs_place none = {0, 0};
	if (!o || o->number != t->number || addr < o->sp)
		return none;
	for (unsigned i = 0; i < o->n; i++) {
		if (o->frame[i].cfa <= addr)
			continue;
		for (unsigned k = i; k < o->n; k++) {
			uint64_t ret = 0;
			if (!o->sure[k])
				return none;
			if (o->first)
				ret = *(const volatile uint64_t *)(o->frame[k].cfa - 8);
			else if (!rs_peek(&ret, o->frame[k].cfa - 8, sizeof ret))
				return none;
			if (ret != o->ret[k])
				return none;
		}
		return o->frame[i];
	}
	return none;
}

struct rs_place rs_frames_find(struct rs_thread *t, struct rs_frame f, uint64_t addr)
{
	struct rs_place frames[DEPTH];
	if (addr >= f.rsp && rs_frames_own(t, f.rsp))
		for (unsigned i = 0, n = frames_of(t, f, frames); i < n; i++)
			if (frames[i].cfa > addr)
				return frames[i];
	return (struct rs_place){0, 0};
}

/* Whether addr may lie in the frames that rs_frames_creator knows: they end where the last one does. */
static bool in_creator(const struct rs_thread *t, uint64_t addr)
{
	const struct origin *o = t->origin;
	return o && o->number == t->number && o->n && addr - o->sp < o->frame[o->n - 1].cfa - o->sp;
}

/* What was said last of a lock, from the stack from which it was used: on the same path one's own is the same variable, and a creator's frame costs no system call to look at (first),
 * or is believed to be the same where every lock that is taken is told. */
static bool said(struct rs_thread *t, struct told *last, uintptr_t obj, uint32_t stack, bool own)
{
	const struct origin *o = t->origin;
	return last->obj == obj && last->stack == stack && stack && last->number == t->number && last->pid == (uint32_t)rs_process.pid &&
		(own || (rs_config.all && !o->first));
}

__attribute__((noinline)) void rs_frames_lock(struct rs_thread *t, uintptr_t obj, uint32_t stack)
{
	bool own = rs_frames_own(t, obj);
	struct told *last = t->frames_told;
	if (!rs_config.stack_depth || t->emit_sp || (!own && !in_creator(t, obj)))
		return;
	if (!last && !(last = t->frames_told = rs_os_map(TOLD * sizeof *last)))
		return;
	last += ((obj >> 3) * 31 + stack) % TOLD;
	if (said(t, last, obj, stack, own))
		return;
	struct rs_place in = {0, 0};
	uintptr_t *here = __builtin_frame_address(0);
	struct rs_frame f = {.pc = RS_CALLER(), .rsp = (uintptr_t)here + 16, .rbp = *here, .has_rbp = true};
	uint64_t pcs[2];
	if (!own)
		in = rs_frames_creator(t, obj);
	else if (rs_walk(t, &f, false, pcs, 2, NULL) == 2 && pcs[1] == f.pc) /* the first frame that is not ours */
		in = rs_frames_find(t, f, obj);
	bool known = last->obj == obj && last->in.pc == in.pc && last->in.cfa == in.cfa && last->stack == stack && last->number == t->number &&
		last->pid == (uint32_t)rs_process.pid;
	*last = (struct told){obj, stack, t->number, (uint32_t)rs_process.pid, in};
	if (!known)
		RS_EMIT(t, FRAME, frame, 0, obj, 0, 0, 0, obj, in.pc, in.cfa);
}
