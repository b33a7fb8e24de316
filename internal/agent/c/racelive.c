/* racelive.c: the detector in a program that runs with rs_config.races: events and accesses go to it where they would be sent, and what it finds is sent as `race`. */
#include "core.h"
#include "race.h"
#include "access.h"
#include <sys/uio.h>

enum { DEPTH = 32, VALUE = 16 };

/* A frame by an address in its function, and where it ends. */
struct frame { uint64_t pc, cfa; };

/* Walks from where f is a step at a time: a walk's result says where its return address lay. Stops where that is not on the thread's own stack. */
static unsigned frames_of(struct rs_thread *t, struct rs_frame f, struct frame out[DEPTH])
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
		if (!ret)
			break;
		out[n].cfa = ret + 8;
	}
	return n;
}

static bool peek(void *to, uintptr_t from, size_t n)
{
	struct iovec here = {to, n}, there = {(void *)from, n};
	return !rs_sandboxed && RS_SYS6(SYS_process_vm_readv, rs_process.pid, &here, 1, &there, 1, 0) == (long)n;
}

/* The frames of a thread's creator when it made it. */
struct origin {
	uint32_t number, n;        /* the thread's */
	uint64_t sp, ret[DEPTH];   /* what lies below each frame's end */
	bool sure[DEPTH];          /* where ret is again, and all further out are, the frame is of the same function */
	struct frame frame[DEPTH];
};

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

void rs_race_live_origin(struct rs_thread *t, struct rs_thread *child, uintptr_t pc, void *fp)
{
	struct origin *o = child->origin;
	if (!o && !(o = child->origin = rs_os_map(sizeof *o)))
		return;
	struct rs_frame f = {.pc = pc, .rsp = (uintptr_t)fp + 16, .rbp = *(const uint64_t *)fp, .has_rbp = true};
	o->number = child->number;
	o->sp = f.rsp;
	o->n = frames_of(t, f, o->frame);
	if (o->n == DEPTH) /* not all of them */
		o->n = 0;
	for (unsigned i = 0; i < o->n; i++) {
		o->ret[i] = *(const uint64_t *)(o->frame[i].cfa - 8);
		o->sure[i] = leads_to_one(o->ret[i], o->n - i);
	}
}

/* The frame of t's creator that has addr, if it is there yet. */
static const struct frame *creator_frame(const struct rs_thread *t, uint64_t addr)
{
	const struct origin *o = t->origin;
	if (!o || o->number != t->number || addr < o->sp)
		return NULL;
	for (unsigned i = 0; i < o->n; i++) {
		if (o->frame[i].cfa <= addr)
			continue;
		for (unsigned k = i; k < o->n; k++) {
			uint64_t ret;
			if (!o->sure[k] || !peek(&ret, o->frame[k].cfa - 8, sizeof ret) || ret != o->ret[k])
				return NULL;
		}
		return &o->frame[i];
	}
	return NULL;
}

/* The race that is about to be noted: what is there to be known about it now alone. */
static void look(const struct rs_race_found *found)
{
	struct rs_thread *t = rs_thread_tls;
	uint64_t addr = found->addr > found->addr2 ? found->addr : found->addr2, value[2] = {0, 0};
	unsigned known = found->size < VALUE ? (unsigned)found->size : VALUE;
	const struct frame *in = NULL;
	struct frame frames[DEPTH];
	struct rs_frame f;
	if (!t || t->number != found->by || t->emit_sp || found->kind & RS_RACE_OBJECT)
		return;
	if (!peek(value, found->addr, known)) /* the access may be one that faults */
		known = 0;
	if (rs_config.stack_depth && found->rule != RS_RACE_RULE_USE_AFTER_FREE && addr - t->stack_lo < t->stack_hi - t->stack_lo) {
		if (rs_full_where(t, &f) && addr >= f.rsp)
			for (unsigned i = 0, n = frames_of(t, f, frames); i < n && !in; i++)
				in = frames[i].cfa > addr ? &frames[i] : NULL;
	} else if (rs_config.stack_depth)
		in = creator_frame(t, addr);
	if (known || in)
		RS_EMIT(t, FRAME, frame, (uint8_t)known, found->addr, found->pc, value[0], value[1], addr, in ? in->pc : 0, in ? in->cfa : 0);
}

void rs_race_live_begin(void)
{
	const struct rs_race_config config = {.max_pages = rs_config.race_pages, .look = look};
	if (rs_config.races && !rs_race_begin(&config))
		rs_give_up("out of memory for looking for races; it is no longer watched", 0);
}

static struct rs_race_thread *thread_of(struct rs_thread *t)
{
	struct rs_race_thread *r = t->race;
	if (r && r->number == t->number && RS_UNLIKELY(rs_race_inside(r)) && rs_left_behind(t, rs_race_inside(r), true))
		rs_race_left(r);
	return r && r->number == t->number ? r : NULL;
}

struct rs_race_thread *rs_race_live_thread(struct rs_thread *t)
{
	struct rs_race_thread *r = thread_of(t);
	if (RS_UNLIKELY(!r))
		t->race = r = rs_race_thread(t->number);
	return r;
}

void rs_race_live_access(struct rs_thread *t, uintptr_t addr, uint64_t size, unsigned kind, uintptr_t pc, uint32_t stack)
{
	struct rs_race_thread *r = rs_race_live_thread(t);
	if (r)
		rs_race_access(r, addr, size, kind, pc, stack);
}

void rs_race_live_event(struct rs_thread *t, const uint64_t *w)
{
	if ((uint8_t)w[0] == RS_EV_FRAME) /* it is sent from inside the detector */
		return;
	bool known = thread_of(t);
	rs_race_event(t->number, w);
	if (!known)
		t->race = rs_race_thread(t->number);
}

/* Sends what was decided, before another event of t. The stacks that it names have been sent. */
void rs_race_live_say(struct rs_thread *t, unsigned before)
{
	struct rs_race_found f;
	if (before == RS_EV_PROCESS_END)
		rs_race_end();
	struct rs_race_counts n;
	rs_race_count(&n);
	__atomic_store_n(&rs_counters->race_amnesties, n.amnesties, __ATOMIC_RELAXED);
	__atomic_store_n(&rs_counters->race_evicted, n.evicted_pages, __ATOMIC_RELAXED);
	__atomic_store_n(&rs_counters->race_unsaid, n.unsaid, __ATOMIC_RELAXED);
	while (rs_race_next(&f))
		RS_EMIT(t, RACE, race, f.rule, f.kind, f.kind2, f.by, f.addr, f.size, f.pc, f.stack, f.by2, f.addr2, f.size2, f.pc2, f.stack2, f.count);
}
