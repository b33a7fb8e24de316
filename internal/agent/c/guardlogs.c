/* guardlogs.c: all logs of `guard` at once: what the coordinator makes them of, and does with them between epochs while all threads stand. See guardlog.h. General registers only. */
#include "guardlogs.h"
#include "guardfault.h"
#include "guardsignal.h"
#include "guardsys.h"
#include "guardthread.h"
#include "guardtry.h"
#include "guardyield.h"
#include "world.h"
#include "real.h"
#include <errno.h>
#include <link.h>
#include <linux/futex.h>

enum { LOGS = RS_GUARD_LOGS, EVENTS = RS_GUARD_EVENTS, BYTES = RS_GUARD_BYTES, OBJECTS = RS_GUARD_OBJECTS, SPARES = RS_GUARD_SPARES };

static struct rs_guard_world *world;
static struct rs_guard_log *logs, *spares;
static struct rs_guard_object *objects;
static uint32_t *used;
static struct rs_guard_own *own;
static uint64_t errno_from_tp;

#define LOAD(x) __atomic_load_n(&(x), __ATOMIC_ACQUIRE)
#define STORE(x, v) __atomic_store_n(&(x), (v), __ATOMIC_RELEASE)

extern const char __ehdr_start[] RS_HIDDEN;
static void find_data(const char *base, uint64_t range[2]);

static void find_loader(uint64_t range[2])
{
	const struct r_debug *debug = rs_real_find("_r_debug", "");
	find_data(debug ? (const char *)debug->r_ldbase : NULL, range);
}

static void find_data(const char *base, uint64_t range[2])
{
	const Elf64_Ehdr *e = (const Elf64_Ehdr *)base;
	for (unsigned i = 0; base && i < e->e_phnum; i++) {
		const Elf64_Phdr *p = (const Elf64_Phdr *)(base + e->e_phoff + i * e->e_phentsize);
		if (p->p_type == PT_LOAD && p->p_flags & PF_W) {
			range[0] = (uint64_t)base + p->p_vaddr;
			range[1] = range[0] + p->p_memsz;
		}
	}
}

static int find_tls(struct dl_phdr_info *info, size_t size, void *to)
{
	uint64_t *tls = to, tp;
	if (info->dlpi_addr != (uintptr_t)__ehdr_start || size < offsetof(struct dl_phdr_info, dlpi_tls_data) + sizeof info->dlpi_tls_data || !info->dlpi_tls_data)
		return 0;
	__asm__("mov %%fs:0, %0" : "=r"(tp));
	for (int i = 0; i < info->dlpi_phnum; i++)
		if (info->dlpi_phdr[i].p_type == PT_TLS) {
			tls[0] = (uintptr_t)info->dlpi_tls_data - tp; /* the same in all threads: ours is static TLS */
			tls[1] = tls[0] + info->dlpi_phdr[i].p_memsz;
		}
	return 1;
}

long rs_guard_log_begin(void)
{
	struct rs_guard_world *w = rs_guard_map(RS_ARENA_OWN, sizeof *w);
	logs = rs_guard_map(RS_ARENA_LOG, LOGS * sizeof *logs);
	spares = rs_guard_map(RS_ARENA_OWN, SPARES * sizeof *spares);
	objects = rs_guard_map(RS_ARENA_LOG, OBJECTS * sizeof *objects);
	used = rs_guard_map(RS_ARENA_LOG, OBJECTS * sizeof *used);
	if (own) { /* a forked child's parent's */
		rs_os_unmap(own, sizeof *own);
		own = NULL;
	}
	char *events = rs_guard_map(RS_ARENA_LOG, (size_t)LOGS * EVENTS * sizeof(struct rs_guard_event) + RS_PAGE), *bytes = rs_guard_map(RS_ARENA_LOG, (size_t)LOGS * BYTES);
	own = rs_os_map(sizeof *own);
	if (w)
		w->skip = rs_guard_map(RS_ARENA_OWN, RS_GUARD_SKIPS * 16);
	if (!w || !w->skip || !logs || !spares || !objects || !used || !events || !bytes || !own)
		return -ENOMEM;
	events += RS_PAGE; /* what is in front of the first is looked at, too */
	for (uint32_t i = 0; i < LOGS; i++) {
		logs[i].index = i;
		logs[i].event = (struct rs_guard_event *)(events + (size_t)i * EVENTS * sizeof(struct rs_guard_event));
		logs[i].bytes = bytes + (size_t)i * BYTES;
	}
	/* A forked child asks neither the loader nor libc, of which other threads of its parent's may have had locks. */
	static uint64_t loader[2], agent[2], tls[2];
	if (!agent[1]) {
		find_loader(loader);
		find_data(__ehdr_start, agent);
		dl_iterate_phdr(find_tls, tls);
	}
	rs_os_copy(w->loader, loader, sizeof loader);
	rs_os_copy(w->agent, agent, sizeof agent);
	rs_os_copy(w->tls, tls, sizeof tls);
	uint64_t tp;
	__asm__("mov %%fs:0, %0" : "=r"(tp));
	errno_from_tp = (uintptr_t)&errno - tp;
	w->mode = RS_GUARD_RECORD;
	_Static_assert(offsetof(struct rs_guard_world, mode) == 0 && offsetof(struct rs_guard_world, ending) == 4, "rs_guard_plainly");
	world = w;
	rs_guard_log_parts(&(struct rs_guard_parts){w, logs, spares, objects, used, own});
	return 0;
}

/* In whose slot does a thread sleep? The slot may not say so: who was woken does for the others, and has perhaps not run yet. */
static void note_sleepers(void)
{
	for (uint32_t i = 0; i < world->logs; i++) {
		uintptr_t in = (uintptr_t)logs[i].wait - (uintptr_t)own->slot;
		if (logs[i].tid && logs[i].state == RS_GUARD_WAITS && in < sizeof own->slot)
			objects[in / sizeof *own->slot].sleepers = 1;
	}
}

/* Objects come and go, and their addresses are used again: where there are many, those for which nobody waits are forgotten. The others keep their places, and what leads there. */
static void forget_objects(void)
{
	enum { MANY = OBJECTS / 2, ADDRESSES = 1 << 16 /* what is below are calls and the agent's heap: few, and remembered by their object */ };
	const uint64_t nobody = UINT64_MAX;
	if (world->objects < MANY)
		return;
	uint32_t kept = 0;
	note_sleepers();
	for (uint32_t i = 0; i < OBJECTS; i++) {
		const struct rs_guard_slot *s = &own->slot[i];
		bool is = objects[i].key != 0 && objects[i].key != nobody;
		if (is && (objects[i].key < ADDRESSES || objects[i].sleepers || s->waiters || s->lock || s->head || s->tail))
			used[kept++] = i;
		else if (objects[i].key)
			objects[i] = (struct rs_guard_object){0};
	}
	for (uint32_t k = 0; k < kept; k++)
		for (uint32_t i = rs_guard_place(objects[used[k]].key); i != used[k]; i = (i + 1) & (OBJECTS - 1))
			if (!objects[i].key)
				objects[i].key = nobody;
	world->objects = kept;
}

/* A lost epoch writes nothing down: its events are written over each other. */
static void rest(struct rs_guard_log *t)
{
	t->use.there = t->ready * sizeof *t->event;
	t->bytes_use.there = t->bytes_ready;
	uint64_t ready = rs_arena_rest(&t->use, t->event, world->lost ? 0 : t->at * sizeof *t->event) / sizeof *t->event, bytes = rs_arena_rest(&t->bytes_use, t->bytes, world->lost ? 0 : t->bytes_at);
	t->ready = ready < t->ready ? (uint32_t)ready : t->ready;
	t->bytes_ready = bytes < t->bytes_ready ? (uint32_t)bytes : t->bytes_ready; /* it is 0 while the first page is enough */
	t->quick = 0;
}

static void reset(bool new)
{
	for (uint32_t k = 0; k < world->objects; k++) {
		struct rs_guard_object *o = &objects[used[k]];
		o->turn = o->sleepers = o->busy = 0;
		if (new)
			o->ticket = 0;
		o->waits = !new || own->slot[used[k]].waiters != 0;
	}
	for (uint32_t i = 0; i < world->logs; i++) {
		struct rs_guard_log *t = &logs[i];
		if (new)
			rest(t);
		t->at = t->run = t->bytes_at = t->held.at = 0;
		t->changes = 0;
		t->queues = t->queues_look = 0;
		if (new) {
			t->strays.last_ns = t->strays.sum = 0;
			t->kept.sp = t->sp, t->kept.pending = t->pending, t->kept.wait = t->wait, t->kept.state = t->state, t->kept.doing = t->doing;
			t->end = t->bytes_end = t->cut = t->found_another = 0;
		} else {
			t->sp = t->kept.sp, t->pending = t->kept.pending, t->wait = t->kept.wait, t->state = t->kept.state, t->doing = t->kept.doing;
			/* Those who stood were let go behind the checkpoint. */
			if (t->state == RS_GUARD_ENDED)
				t->state = RS_GUARD_RUNS;
			t->inner = 0;
		}
	}
	world->ending = 0;
	world->why = world->found = RS_GUARD_IDENTICAL;
	world->was = world->is = world->at = world->tid = world->event = 0;
	world->stack.tid = world->stack.above = world->stack.before = 0;
}

void rs_guard_log_keep_end(void)
{
	rs_guard_words_keep(true);
	for (uint32_t i = 0; i < world->logs; i++) {
		struct rs_guard_log *t = &logs[i];
		t->fin.sp = t->sp, t->fin.pending = t->pending, t->fin.wait = t->wait, t->fin.state = t->state, t->fin.doing = t->doing;
		t->cpu.took = t->tid ? rs_os_cpu_ns(t->tid) - t->cpu.from : 0;
	}
}

void rs_guard_log_forward(void)
{
	rs_guard_words_back(true);
	for (uint32_t i = 0; i < world->logs; i++) {
		struct rs_guard_log *t = &logs[i];
		t->sp = t->fin.sp, t->pending = t->fin.pending, t->wait = t->fin.wait, t->state = t->fin.state, t->doing = t->fin.doing;
		t->inner = 0;
		t->changes = 0;
	}
	rs_guard_queues_tell();
}

void rs_guard_log_drop(struct rs_guard_log *t)
{
	t->outside = t->inner = t->state = t->doing = t->signals = 0;
	t->half = t->cpu.from = 0;
	t->word = NULL;
	t->handle = t->sp = t->pending = 0;
	STORE(t->tid, 0);
}

void rs_guard_log_new(void)
{
	uint32_t lost = 0;
	for (uint32_t i = 0; i < world->logs; i++) {
		struct rs_guard_log *t = &logs[i];
		if (t->tid && world->session && !rs_world_lives(t->tid))
			rs_guard_log_drop(t);
		if (t->tid && t->outside)
			lost = t->outside_why;
		if (t->tid && t->doing & RS_GUARD_UNHELD)
			lost = RS_GUARD_LOST_THREAD; /* what it does to others' stacks is in no order */
		if (t->tid && t->cancelled)
			lost = RS_GUARD_LOST_THREAD; /* when it heeds that is no event */
	}
	rs_guard_free_spares();
	bool all_have_logs = true;
	for (uint32_t i = 0; i < world->spares; i++)
		all_have_logs &= !spares[i].tid;
	/* Who has none is stopped anywhere, also between its look for an object and its wait for it. */
	if (all_have_logs)
		forget_objects();
	else
		lost = RS_GUARD_LOST_THREADS;
	if (rs_guard_signals_half())
		lost = RS_GUARD_LOST_SIGNAL;
	rs_guard_queues_new(world->lost != 0);
	reset(true);
	rs_guard_words_keep(false);
	rs_guard_queues_tell();
	for (uint32_t i = 0; i < world->logs; i++)
		logs[i].cpu.from = logs[i].tid ? rs_os_cpu_ns(logs[i].tid) : 0;
	rs_guard_threads_new();
	rs_guard_try_new();
	rs_guard_yields_new();
	world->lost = lost;
	world->soon = world->fault.who = world->fault.dies = world->to_fault = 0;
	world->begun_ticks = __builtin_ia32_rdtsc();
	rs_guard_sys_epoch();
	STORE(world->mode, RS_GUARD_RECORD);
}

void rs_guard_log_back(void)
{
	for (uint32_t i = 0; i < world->logs && world->mode != RS_GUARD_REPLAY; i++) {
		logs[i].end = logs[i].at;
		logs[i].bytes_end = logs[i].bytes_at;
		logs[i].pending_end = logs[i].pending;
		rs_guard_fault_end(&logs[i]);
	}
	rs_guard_yields_back();
	rs_guard_words_back(false);
	reset(false);
	for (uint32_t i = 0; i < world->logs; i++)
		logs[i].cpu.again = logs[i].tid ? rs_os_cpu_ns(logs[i].tid) : 0;
	uint32_t tid;
	uint64_t rseq;
	for (uint32_t k = 0; rs_guard_threads_birth(k, &tid, &rseq); k++)
		for (uint32_t i = 0; i < world->logs; i++)
			if (logs[i].tid == tid) {
				struct rs_guard_log *t = &logs[i];
				t->sp = t->pending = t->doing = 0;
				t->wait = NULL;
				t->state = RS_GUARD_UNBORN;
				t->young = 1;
				t->gave_up = 0;
			}
	STORE(world->mode, RS_GUARD_REPLAY);
	rs_guard_no_quick();
}

bool rs_guard_same_errno(uint64_t at, uint32_t was)
{
	for (uint32_t i = 0; i < world->logs && was == EAGAIN; i++)
		if (logs[i].found_another && logs[i].tp + errno_from_tp == at)
			return true;
	return false;
}

void rs_guard_kick(void)
{
	for (uint32_t i = 0; i < world->logs; i++) {
		uint32_t *word = logs[i].wait;
		if (LOAD(logs[i].state) == RS_GUARD_WAITS && word)
			RS_SYS3(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT32_MAX);
		if (LOAD(logs[i].state) == RS_GUARD_WAITS && word)
			RS_SYS3(SYS_futex, word, FUTEX_WAKE, INT32_MAX); /* of a join */
	}
}

void rs_guard_log_own(uintptr_t *lo, uintptr_t *hi)
{
	*lo = (uintptr_t)own & -RS_PAGE;
	*hi = ((uintptr_t)own + sizeof *own + RS_PAGE - 1) & -RS_PAGE;
}

static struct rs_guard_event *with_ticket(uint64_t key, uint32_t ticket, uint32_t *whose)
{
	for (uint32_t i = 0; i < world->logs; i++)
		for (uint32_t k = 0; k < logs[i].at; k++) {
			struct rs_guard_event *e = &logs[i].event[k];
			if (rs_guard_key_of(e->what) == key && e->what >> 56 == RS_GUARD_MUTEX && e->ticket == ticket) {
				*whose = i;
				return e;
			}
		}
	return NULL;
}

bool rs_guard_log_swap(void)
{
	for (uint32_t i = 0; i < world->logs; i++)
		for (uint32_t k = logs[i].at / 2; k < logs[i].at; k++) {
			struct rs_guard_event *a = &logs[i].event[k], *b;
			uint32_t whose;
			if (a->what >> 56 != RS_GUARD_MUTEX || a->ticket == RS_GUARD_UNORDERED || rs_guard_more(a) || !(b = with_ticket(rs_guard_key_of(a->what), a->ticket + 1, &whose)) || whose == i || rs_guard_more(b))
				continue;
			b->ticket = a->ticket++;
			return true;
		}
	return false;
}
