/* unwind.c: walks the calling thread's stack with the tables that Go compiled from .eh_frame; layout.go's UnwindRule says what each field
 * means, package unwind has the same walk in Go. Async-signal-safe.
 *
 * Nothing that is read can fault: between the innermost frame's stack pointer and the upper end of the thread's own stack all is mapped; anywhere
 * else (coroutines, alternate signal stacks, garbage) the kernel reads for us, into a window of the thread's own. */
#include "core.h"
#include "patch.h"
#include <sys/uio.h>

enum { RULES = 1024, WINDOW = 4096, DEEPEST = 1 << 16, PAGE_BITS = 12 };

/* One thread's: pc → rule, direct-mapped. tag: pc with the modules' generation above it. */
struct cache {
	struct { uint64_t tag; struct rs_unwind_rule rule; } entry[RULES];
	uintptr_t window_at;
	size_t window_size;
	uint8_t window[WINDOW];
};

const size_t rs_walk_cache_bytes = sizeof(struct cache);

struct walk {
	uintptr_t lo, span;        /* [lo, lo+span] may be read without care */
	struct cache *cache;
	struct rs_trail *trail;
	const struct rs_past *past;
	/* Where this frame's rbp and rbx come from: most are saved and restored without ever being used, and then their values do not matter. */
	uintptr_t rbp_from, rbx_from;
};

/* rbp_from and rbx_from hold an address, or: */
enum { FROM_ENTRY = 0, NOTED = 1 };

/* The result depends on value being at `at`. */
static inline void note(struct walk *k, uintptr_t at, uint64_t value)
{
	struct rs_trail *l = k->trail;
	if (!l)
		return;
	if (RS_UNLIKELY(l->n == RS_TRAIL || at - k->lo > k->span)) {
		l->unfit = true;
		return;
	}
	l->at[l->n] = at;
	l->value[l->n++] = value;
}

static inline void note_rbp(struct walk *k, const struct rs_frame *f)
{
	if (k->rbp_from == FROM_ENTRY) {
		if (k->trail)
			k->trail->entry_rbp = true;
	} else if (k->rbp_from != NOTED)
		note(k, k->rbp_from, f->rbp);
	k->rbp_from = NOTED;
}

static bool load_far(struct walk *k, uintptr_t at, uint64_t *v)
{
	struct cache *c = k->cache;
	if (k->trail)
		k->trail->unfit = true;
	if (at - c->window_at > c->window_size || c->window_size - (at - c->window_at) < 8) {
		if (at >= 1ull << 47 || rs_sandboxed)
			return false;
		struct iovec to = {c->window, WINDOW}, from = {(void *)at, WINDOW};
		c->window_size = 0;
		long r = RS_SYS6(SYS_process_vm_readv, rs_process.pid, &to, 1, &from, 1, 0);
		if (r < 8)
			return false;
		c->window_at = at;
		c->window_size = (size_t)r;
	}
	rs_os_copy(v, c->window + (at - c->window_at), 8);
	return true;
}

static inline bool load(struct walk *k, uintptr_t at, uint64_t *v)
{
	const struct rs_past *p = k->past;
	if (RS_UNLIKELY(p != NULL)) {
		if (at - p->lo < p->size && p->size - (at - p->lo) >= 8) {
			rs_os_copy(v, (const char *)p->word + (at - p->lo), 8);
			return true;
		}
	}
	if (RS_LIKELY(at - k->lo <= k->span)) {
		*v = *(const uint64_t *)at;
		return true;
	}
	return load_far(k, at, v);
}

/* What may be read without care when the stack pointer is sp. */
static void set_bounds(struct walk *k, const struct rs_thread *t, uintptr_t sp)
{
	k->lo = UINTPTR_MAX;
	k->span = 0;
	if (sp >= t->stack_lo && sp < t->stack_hi && t->stack_hi - sp >= 8) {
		k->lo = sp;
		k->span = t->stack_hi - 8 - sp;
	}
}

static inline bool on_own_stack(const struct rs_thread *t, uintptr_t p) { return p >= t->stack_lo && p < t->stack_hi && t->stack_hi - p >= 16; }

/* One more than the index of the row that holds at pc; 0: none does. */
static uint32_t row_of(const struct rs_module *m, uintptr_t pc)
{
	uint64_t at = pc - m->rows_base;
	uint32_t lo = 0, hi = m->row_count; /* the last row not above at is below hi */
	if (at > UINT32_MAX)
		return 0;
	/* A whole search in tables of megabytes, which nobody has read since the process began, costs a cache miss at each look. */
	if (RS_LIKELY((at >> PAGE_BITS) + 1 < m->page_count)) {
		uint32_t below = m->pages[at >> PAGE_BITS], above = m->pages[(at >> PAGE_BITS) + 1];
		if (RS_LIKELY(below <= above && above <= hi))
			lo = below, hi = above;
	}
	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;
		if (m->rows[mid].pc <= at)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

struct wanted { struct rs_thread *t; uintptr_t pc; const struct rs_module *m; };

static void look_up(void *arg)
{
	struct wanted *w = arg;
	w->m = rs_module_of(w->t, w->pc);
}

/* What finds modules that are new is compiled for all registers; a recipe may have called us. */
static const struct rs_module *module_of(struct rs_thread *t, uintptr_t pc)
{
	struct wanted w = {t, pc, NULL};
	const struct rs_module *m = rs_module_known(pc);
	if (RS_LIKELY(m && __atomic_load_n(&m->table, __ATOMIC_ACQUIRE) != RS_TABLE_NEEDED))
		return m;
	rs_vectors_kept(look_up, &w);
	return w.m;
}

static struct rs_unwind_rule find_rule(struct rs_thread *t, uintptr_t pc, bool *final)
{
	const struct rs_unwind_rule none = {.cfa = RS_CFA_NONE};
	*final = true;
	const struct rs_module *m = module_of(t, pc);
	if (!m || __atomic_load_n(&m->table, __ATOMIC_ACQUIRE) != RS_TABLE_HAS) {
		/* Code that belongs to no object was made at run time, and stacks of such programs go by there all the time. If an object should come to lie there it is noticed, and another generation begins. */
		*final = m ? m->table == RS_TABLE_NONE : rs_modules != NULL;
		return none;
	}
	uint32_t row = row_of(m, pc), rule = row ? m->rows[row - 1].rule & ~RS_ROW_START : 0;
	return rule < m->rule_count ? m->rules[rule] : none;
}

/* Whether two instructions belong to one entry of .eh_frame, which is a function or a part of one; false also where that cannot be told. */
static bool same_function(struct rs_thread *t, uintptr_t a, uintptr_t b)
{
	const struct rs_module *m = module_of(t, a);
	if (!m || m != module_of(t, b) || __atomic_load_n(&m->table, __ATOMIC_ACQUIRE) != RS_TABLE_HAS)
		return false;
	uint32_t x = row_of(m, a), y = row_of(m, b);
	while (x > 0 && !(m->rows[x - 1].rule & RS_ROW_START))
		x--;
	while (y > 0 && !(m->rows[y - 1].rule & RS_ROW_START))
		y--;
	return x == y && x != 0;
}

uintptr_t rs_walk_beginning(struct rs_thread *t, uintptr_t pc)
{
	const struct rs_module *m = module_of(t, pc);
	uint32_t row = m && __atomic_load_n(&m->table, __ATOMIC_ACQUIRE) == RS_TABLE_HAS ? row_of(m, pc) : 0;
	return row ? m->rows_base + m->rows[row - 1].pc : 0;
}

uintptr_t rs_walk_function(struct rs_thread *t, uintptr_t pc)
{
	const struct rs_module *m = module_of(t, pc);
	uint32_t row = m && __atomic_load_n(&m->table, __ATOMIC_ACQUIRE) == RS_TABLE_HAS ? row_of(m, pc) : 0;
	while (row > 0 && !(m->rows[row - 1].rule & RS_ROW_START))
		row--;
	return row ? m->rows_base + m->rows[row - 1].pc : 0;
}

int32_t rs_walk_offset(struct rs_thread *t, uintptr_t pc)
{
	bool final;
	struct rs_unwind_rule r = find_rule(t, pc, &final);
	return r.cfa == RS_CFA_RSP ? r.cfa_off : 0;
}

static inline struct rs_unwind_rule rule_of(struct rs_thread *t, struct walk *k, uint64_t generation, uintptr_t pc)
{
	struct cache *c = k->cache;
	unsigned i = (unsigned)(pc ^ pc >> 10) & (RULES - 1);
	uint64_t tag = pc | generation << 48;
	if (RS_LIKELY(c->entry[i].tag == tag)) {
		struct rs_unwind_rule r = c->entry[i].rule;
		RS_BARRIER();
		if (RS_LIKELY(c->entry[i].tag == tag)) /* no handler has changed it meanwhile */
			return r;
	}
	bool final;
	struct rs_unwind_rule r = find_rule(t, pc, &final);
	if (final) {
		c->entry[i].tag = 0;
		RS_BARRIER();
		c->entry[i].rule = r;
		RS_BARRIER();
		/* If a table came just now, the generation has moved on, and the entry is merely of no use. */
		c->entry[i].tag = tag;
	} else if (k->trail)
		k->trail->unfit = true;
	return r;
}

/* From the DWARF number of a register to its place in the ucontext's gregs. */
static const uint8_t greg_of[16] = {13, 12, 14, 11, 9, 8, 10, 15, 0, 1, 2, 3, 4, 5, 6, 7};
enum { UCONTEXT_GREGS = 40, DWARF_RBX = 3, GREG_RBP = 10, GREG_RBX = 11, GREG_RSP = 15, GREG_RIP = 16 };

static bool register_of(struct walk *k, const struct rs_frame *f, unsigned n, uint64_t *v)
{
	if (n == DWARF_RBX && f->has_rbx) {
		*v = f->rbx;
		if (k->rbx_from != NOTED)
			note(k, k->rbx_from, f->rbx);
		k->rbx_from = NOTED;
	} else if (f->gregs && n < 16)
		*v = f->gregs[greg_of[n]];
	else
		return false;
	return true;
}

/* To the caller of f. */
static inline bool step(struct walk *k, struct rs_frame *f, const struct rs_unwind_rule *r)
{
	uint64_t cfa, pc, v;
	switch (r->cfa) {
	case RS_CFA_RSP:
		cfa = f->rsp + (int64_t)r->cfa_off;
		break;
	case RS_CFA_RBP:
		if (!f->has_rbp)
			return false;
		note_rbp(k, f);
		cfa = f->rbp + (int64_t)r->cfa_off;
		break;
	case RS_CFA_REG:
		if (!register_of(k, f, r->reg, &v))
			return false;
		cfa = v + (int64_t)r->cfa_off;
		break;
	case RS_CFA_DEREF_RBP:
		if (!f->has_rbp)
			return false;
		note_rbp(k, f);
		if (!load(k, f->rbp + (int64_t)r->cfa_off, &v))
			return false;
		note(k, f->rbp + (int64_t)r->cfa_off, v);
		cfa = v + r->reg;
		break;
	case RS_CFA_DEREF_RSP:
		if (!load(k, f->rsp + (int64_t)r->cfa_off, &v))
			return false;
		note(k, f->rsp + (int64_t)r->cfa_off, v);
		cfa = v + r->reg;
		break;
	case RS_CFA_PLT:
		cfa = f->rsp + (int64_t)r->cfa_off + ((f->pc & 15) >= r->reg ? 8 : 0);
		break;
	default:
		return false;
	}
	if (cfa <= f->rsp || !load(k, cfa - 8, &pc))
		return false;
	note(k, cfa - 8, pc);
	bool has_rbp = f->has_rbp;
	uint64_t rbp = f->rbp;
	switch (r->rbp) {
	case RS_RBP_RULE_SAME:
		break;
	case RS_RBP_RULE_CFA:
		has_rbp = load(k, k->rbp_from = cfa + (int64_t)r->rbp_off, &rbp);
		break;
	case RS_RBP_RULE_AT_RBP:
		if (!has_rbp)
			break;
		note_rbp(k, f);
		has_rbp = load(k, k->rbp_from = f->rbp + (int64_t)r->rbp_off, &rbp);
		break;
	default:
		has_rbp = false;
	}
	if (r->rbx == 1) {
		f->has_rbx = load(k, k->rbx_from = cfa + (int64_t)r->rbx_off, &v);
		f->rbx = v;
	} else if (r->rbx == 2)
		f->has_rbx = false;
	f->pc = pc;
	f->rsp = cfa;
	f->rbp = rbp;
	f->has_rbp = has_rbp;
	f->gregs = NULL;
	return true;
}

/* To the frame that the signal interrupted; it may lie on another stack. */
static bool step_signal(struct rs_thread *t, struct walk *k, struct rs_frame *f, uint64_t *gregs)
{
	uintptr_t at = f->rsp + UCONTEXT_GREGS;
	for (unsigned i = 0; i <= GREG_RIP; i++)
		if (!load(k, at + 8 * i, &gregs[i]))
			return false;
	*f = (struct rs_frame){.pc = gregs[GREG_RIP], .rsp = gregs[GREG_RSP], .rbp = gregs[GREG_RBP], .rbx = gregs[GREG_RBX],
			       .has_rbp = true, .has_rbx = true, .gregs = gregs};
	set_bounds(k, t, f->rsp);
	return true;
}

extern const char __ehdr_start[] RS_HIDDEN, _end[] RS_HIDDEN;
/* Our own frames (a thread's first function, callbacks of interposed functions) are not the program's. */
static inline bool ours(uintptr_t pc) { return pc - (uintptr_t)__ehdr_start < (uintptr_t)_end - (uintptr_t)__ehdr_start; }

bool rs_walk_caller(struct rs_thread *t, uintptr_t pc, uintptr_t rsp, uintptr_t rbp, struct rs_caller *out)
{
	struct walk k = {.cache = t->unwind_cache};
	if (!k.cache || rsp < t->stack_lo || rsp >= t->stack_hi)
		return false;
	set_bounds(&k, t, rsp);
	struct rs_unwind_rule r = rule_of(t, &k, __atomic_load_n(&rs_modules_generation, __ATOMIC_ACQUIRE) & 0xffff, pc);
	if (r.cfa != RS_CFA_RSP && r.cfa != RS_CFA_RBP)
		return false;
	uintptr_t cfa = (r.cfa == RS_CFA_RSP ? rsp : rbp) + (uintptr_t)(int64_t)r.cfa_off, at = 0, rbx_at = cfa + (uintptr_t)(int64_t)r.rbx_off;
	if (r.rbp == RS_RBP_RULE_CFA)
		at = cfa + (uintptr_t)(int64_t)r.rbp_off;
	else if (r.rbp == RS_RBP_RULE_AT_RBP)
		at = rbp + (uintptr_t)(int64_t)r.rbp_off;
	else if (r.rbp != RS_RBP_RULE_SAME)
		return false;
	if (cfa <= rsp || cfa - 8 - k.lo > k.span || (cfa - rsp) & 7 || (at && (at - k.lo > k.span || (at - rsp) & 7)) || (r.rbx == 1 && rbx_at - k.lo > k.span))
		return false;
	uintptr_t to = *(const uint64_t *)(cfa - 8);
	if (!to || ours(to))
		return false;
	out->f = (struct rs_frame){.pc = to, .rsp = cfa, .rbp = at ? *(const uint64_t *)at : rbp, .has_rbp = true};
	if (r.rbx == 1) {
		out->f.rbx = *(const uint64_t *)rbx_at;
		out->f.has_rbx = true;
	}
	out->rbp_at = at;
	out->by_rbp = r.cfa == RS_CFA_RBP || r.rbp == RS_RBP_RULE_AT_RBP;
	return true;
}

/* An instruction of the frame of this thread that ends at cfa, from where the program called us outwards; 0: there is none, or that cannot be told. */
static uintptr_t frame_now(struct rs_thread *t, uintptr_t cfa)
{
	const uint64_t *fp = __builtin_frame_address(0);
	uint64_t gregs[GREG_RIP + 1], generation = __atomic_load_n(&rs_modules_generation, __ATOMIC_ACQUIRE) & 0xffff;
	/* Our own frames keep rbp. */
	while (on_own_stack(t, (uintptr_t)fp) && ours(fp[1]) && fp[0] > (uintptr_t)fp)
		fp = (const uint64_t *)fp[0];
	if (!on_own_stack(t, (uintptr_t)fp) || ours(fp[1]))
		return 0;
	struct rs_frame f = {.pc = fp[1], .rsp = (uintptr_t)fp + 16, .rbp = fp[0], .has_rbp = true};
	struct walk k = {.cache = t->unwind_cache};
	set_bounds(&k, t, f.rsp);
	bool exact = false;
	for (unsigned i = 0; i < DEEPEST && f.pc != 0; i++) {
		uintptr_t pc = exact ? f.pc : f.pc - 1;
		struct rs_unwind_rule r = rule_of(t, &k, generation, pc);
		if ((exact = r.cfa == RS_CFA_SIGFRAME)) {
			if (!step_signal(t, &k, &f, gregs))
				return 0;
			continue;
		}
		if (!step(&k, &f, &r))
			return 0;
		if (f.rsp == cfa)
			return pc;
		if (f.rsp > cfa && on_own_stack(t, f.rsp))
			return 0;
	}
	return 0;
}

/* A walk over the past has come from the frame that pc lies in to its caller, to which it returns by a word that may have changed since. */
static bool is_past(struct rs_thread *t, const struct rs_past *p, uintptr_t pc, const struct rs_frame *caller)
{
	if (!p->own)
		return module_of(t, caller->pc - 1) != NULL;
	uintptr_t now = frame_now(t, caller->rsp);
	return now != 0 && same_function(t, pc, now);
}

static inline __attribute__((always_inline)) unsigned walk(struct rs_thread *t, struct rs_frame *f, bool exact, uint64_t *pcs, unsigned depth,
							   struct rs_trail *trail, const struct rs_past *past)
{
	unsigned n = 0;
	bool joined = false;
	uint64_t gregs[GREG_RIP + 1];
	struct walk k = {.cache = t->unwind_cache, .trail = trail, .past = past};
	if (trail) {
		trail->n = 0;
		trail->unfit = trail->entry_rbp = false;
	}
	if (depth == 0)
		return 0;
	if (exact)
		f->pc = rs_patch_pc(f->pc);
	pcs[n++] = exact ? f->pc : f->pc - 1;
	if (RS_UNLIKELY(!k.cache)) {
		if (!(k.cache = t->unwind_cache = rs_os_map_numbered(RS_OS_UNWIND_CACHE(t->number), sizeof *k.cache)))
			return n;
	}
	k.cache->window_size = 0;
	set_bounds(&k, t, f->rsp);
	uint64_t generation = __atomic_load_n(&rs_modules_generation, __ATOMIC_ACQUIRE) & 0xffff;
	while (n < depth) {
		struct rs_unwind_rule r = rule_of(t, &k, generation, exact ? f->pc : f->pc - 1);
		if (RS_UNLIKELY(r.cfa == RS_CFA_SIGFRAME)) {
			if (trail)
				trail->unfit = true;
			if ((past && !joined) || !step_signal(t, &k, f, gregs))
				break;
			exact = true;
		} else {
			uintptr_t pc = f->pc;
			if (!step(&k, f, &r))
				break;
			if (past && f->rsp - 8 - past->lo >= past->size && !joined) {
				if (!is_past(t, past, exact ? pc : pc - 1, f))
					break;
				joined = past->own; /* the rest is what it is now */
			}
			exact = false;
		}
		if (f->pc == 0)
			break;
		if (!ours(f->pc))
			pcs[n++] = exact ? f->pc + 1 : f->pc;
	}
	return n;
}

unsigned rs_walk(struct rs_thread *t, struct rs_frame *f, bool exact, uint64_t *pcs, unsigned depth, struct rs_trail *trail)
{
	return walk(t, f, exact, pcs, depth, trail, NULL);
}

unsigned rs_walk_past(struct rs_thread *t, struct rs_frame *f, const struct rs_past *past, uint64_t *pcs, unsigned depth)
{
	return walk(t, f, false, pcs, depth, NULL, past);
}
