/* trampoline.c: what trampolines are to the program: it is shown its own instruction and registers wherever it is interrupted in code of ours, and goes on there as the state says.
 *
 * Ground rules: works in handlers, on any thread, and between the engine's changes: nothing here locks or waits. Who reads the index says so (rs_patch_readers), and no run is unmapped meanwhile. A forked
 * child has the tables as its parent had them. */
#include "patch.h"
#include "access.h"
#include "calls.h"
#include "guardsignal.h"
#include "pass.h"

/* Newest last; a run that was replaced is unmapped when no reader may be in it. Read from outside as well: by debuggers (internal/engine/cfi.go) and by unwind.Program, which finds it by its name. */
const struct rs_trampoline_run *rs_patch_runs[RS_PATCH_RUNS];
uint32_t rs_patch_readers;
uint32_t rs_patch_generation;

static const struct rs_trampoline *find_in(const struct rs_trampoline_run *run, uintptr_t pc)
{
	const struct rs_trampoline *list = (const void *)(run + 1);
	size_t lo = 0, hi = run->count;
	if (pc < run->lo || pc >= run->hi)
		return NULL;
	while (lo < hi) {
		size_t mid = (lo + hi) / 2;
		if (list[mid].at + list[mid].bytes <= pc)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo < run->count && list[lo].at <= pc ? &list[lo] : NULL;
}

/* The state at pc, its trampoline's address in *at. The readers' count must be up. */
static const struct rs_trampoline_state *find(uintptr_t pc, uintptr_t *at)
{
	for (int i = RS_PATCH_RUNS - 1; i >= 0; i--) {
		const struct rs_trampoline_run *run = __atomic_load_n(&rs_patch_runs[i], __ATOMIC_SEQ_CST);
		const struct rs_trampoline *t = run ? find_in(run, pc) : NULL;
		if (!t)
			continue;
		const struct rs_trampoline_state *s = (const void *)((const char *)run + t->states), *here = s;
		for (unsigned n = 0; n < t->count && s->off <= pc - t->at; n++) {
			here = s;
			s = (const void *)((const struct rs_trampoline_move *)(s + 1) + s->moves);
		}
		*at = t->at;
		return here;
	}
	return NULL;
}

static void begin_read(void) { __atomic_add_fetch(&rs_patch_readers, 1, __ATOMIC_SEQ_CST); }
static void end_read(void) { __atomic_sub_fetch(&rs_patch_readers, 1, __ATOMIC_SEQ_CST); }

uintptr_t rs_patch_pc(uintptr_t pc)
{
	if (RS_LIKELY(!rs_patching))
		return pc;
	uintptr_t at;
	begin_read();
	const struct rs_trampoline_state *s = find(pc, &at);
	if (s)
		pc = at + (uintptr_t)(intptr_t)s->pc;
	end_read();
	uintptr_t place = s ? 0 : rs_pass_place(pc);
	return place ? place : pc;
}

bool rs_patch_near(uintptr_t pc)
{
	enum { LONGEST = 15 };
	bool near = false;
	begin_read();
	for (int i = 0; i < RS_PATCH_RUNS && rs_patching; i++) {
		const struct rs_trampoline_run *run = __atomic_load_n(&rs_patch_runs[i], __ATOMIC_SEQ_CST);
		if (!run)
			continue;
		const struct rs_trampoline *list = (const void *)(run + 1);
		for (uint64_t k = 0; k < run->count && !near; k++) {
			const struct rs_trampoline_state *s = (const void *)((const char *)run + list[k].states);
			for (unsigned n = 0; n < list[k].count; n++) {
				near = near || pc - (list[k].at + (uintptr_t)(intptr_t)s->pc) < LONGEST;
				s = (const void *)((const struct rs_trampoline_move *)(s + 1) + s->moves);
			}
		}
	}
	end_read();
	return near;
}

bool rs_patch_midway(uintptr_t pc)
{
	if (RS_LIKELY(!rs_patching))
		return false;
	if (rs_hook_has(pc) || rs_hook_of_vdso(pc) || rs_tell_has(pc))
		return true;
	bool midway = rs_patch_pointers[RS_PATCH_THREAD_CONTEXT] > (uintptr_t)__builtin_frame_address(0);
	begin_read();
	for (int i = RS_PATCH_RUNS - 1; i >= 0; i--) {
		const struct rs_trampoline_run *run = __atomic_load_n(&rs_patch_runs[i], __ATOMIC_SEQ_CST);
		const struct rs_trampoline *t = run ? find_in(run, pc) : NULL;
		if (!t)
			continue;
		/* A state begins the program's next instruction if it stands for another one than the state before, and all is in place. Behind a system call that is not
		 * so; there no step ends natively either: sysret puts TF back, and the trap comes behind the next instruction. */
		const struct rs_trampoline_state *s = (const void *)((const char *)run + t->states), *last = s;
		midway = true;
		for (unsigned n = 0; n < t->count && s->off <= pc - t->at; n++) {
			midway = s->off != pc - t->at || s->pc == last->pc || s->moves;
			last = s;
			s = (const void *)((const struct rs_trampoline_move *)(s + 1) + s->moves);
		}
		break;
	}
	end_read();
	return midway;
}

/* Registers by their number in instructions. */
static const uint8_t greg_of[16] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
				    REG_R8, REG_R9, REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};
enum { FLAGS_AH = 16, FLAGS_ALL = 17, FROM_REG = 0, FROM_SLOT, FROM_STACK, FROM_SUM, FROM_FOR, OVERFLOW = 1 << 11, CONTEXT_OUTER = 22 };

static void move(const struct rs_trampoline_move *m, uintptr_t rip, const greg_t *was, greg_t *g)
{
	uint64_t v = 0;
	switch (m->from) {
	case FROM_REG:
		v = (uint64_t)was[greg_of[m->n & 15]];
		break;
	case FROM_SLOT:
		v = rs_patch_saves[(unsigned)m->n % RS_PATCH_SAVES];
		break;
	case FROM_STACK:
		v = *(const uint64_t *)(was[REG_RSP] + m->n);
		break;
	case FROM_SUM:
		v = (uint64_t)(was[greg_of[m->reg & 15]] + m->n);
		break;
	case FROM_FOR:
		v = rip;
		break;
	}
	if (m->reg < 16)
		g[greg_of[m->reg]] = (greg_t)v;
	else if (m->reg == FLAGS_ALL)
		g[REG_EFL] = (greg_t)v;
	else if (m->reg == FLAGS_AH)
		g[REG_EFL] = (g[REG_EFL] & ~(greg_t)(0xd5 | OVERFLOW)) | (greg_t)(v >> 8 & 0xd5) | (v & 1 ? OVERFLOW : 0);
}

/* Where an instruction as such is at fault, its address is told; a SIGSYS tells the one behind its call, in the same place (si_call_addr). */
static void tell_address(siginfo_t *info, uintptr_t pc, uintptr_t rip)
{
	if (info && (uintptr_t)info->si_addr == pc && info->si_code > 0 && info->si_code != SI_KERNEL)
		info->si_addr = (void *)rip;
}

void rs_access_context_back(greg_t *g, const struct rs_access_context *c)
{
	uint64_t *context = &rs_patch_pointers[RS_PATCH_THREAD_CONTEXT];
	for (unsigned r = 0; r < 16; r++)
		g[greg_of[r]] = (greg_t)c->gpr[r];
	g[REG_EFL] = (greg_t)c->flags;
	g[REG_RIP] = (greg_t)c->site;
	if (*context == (uint64_t)c)
		*context = c->outer;
}

/* In a function that a recipe has called, or on the way there: the program is at the site, as the context says. While its handler runs the call is not under way: it may leave for
 * good. */
static void show_inside(greg_t *g, struct rs_shown *s)
{
	s->outer = rs_patch_pointers[RS_PATCH_THREAD_CONTEXT] == (uint64_t)s->context;
	rs_access_context_back(g, s->context);
	rs_os_copy(s->seen, g, sizeof s->seen);
	s->inside = true;
}

/* The handler has returned. If it let the thread go on there, the call goes on, with what the handler made of the registers behind it. */
static void back_inside(greg_t *g, const struct rs_shown *s)
{
	if (g[REG_RIP] != s->seen[REG_RIP] || g[REG_RSP] != s->seen[REG_RSP])
		return;
	for (unsigned r = 0; r < 16; r++)
		s->context->gpr[r] = (uint64_t)g[greg_of[r]];
	s->context->flags = (uint64_t)g[REG_EFL];
	rs_os_copy(g, s->was, sizeof s->was);
	if (s->outer)
		rs_patch_pointers[RS_PATCH_THREAD_CONTEXT] = (uint64_t)s->context;
}

void rs_patch_show(ucontext_t *uc, siginfo_t *info, struct rs_shown *s)
{
	s->moved = s->inside = s->hooked = s->outer = false;
	if (!rs_patching)
		return;
	greg_t *g = uc->uc_mcontext.gregs;
	s->hooked = rs_hook_view(g, s->was, s->seen);
	if (s->hooked) {
		tell_address(info, (uintptr_t)s->was[REG_RIP], (uintptr_t)g[REG_RIP]);
		return;
	}
	/* No code of the program's; and a copy of its registers, which are ours, would differ in a re-execution. */
	uintptr_t outer = rs_patch_pointers[RS_PATCH_THREAD_CONTEXT];
	if ((uintptr_t)g[REG_RIP] == (uintptr_t)rs_guard_handler_ran && outer <= (uintptr_t)g[REG_RSP])
		return;
	/* The vdso's hook uses registers that are dead where it came from, which r11 says. */
	uintptr_t pc = (uintptr_t)g[REG_RIP], at, from = rs_hook_of_vdso(pc) ? (uintptr_t)g[REG_R11] : pc;
	rs_os_copy(s->was, g, sizeof s->was);
	if (rs_tell_view(g, &s->context, &s->resume)) {
		if (s->context) {
			show_inside(g, s);
		} else {
			s->moved = true;
			s->generation = __atomic_load_n(&rs_patch_generation, __ATOMIC_SEQ_CST);
			s->rip = (uintptr_t)g[REG_RIP];
			tell_address(info, pc, s->rip);
		}
		return;
	}
	uintptr_t place = rs_pass_place(pc);
	if (place) { /* and does not go back there */
		g[REG_RIP] = (greg_t)place;
		tell_address(info, pc, place);
		return;
	}
	begin_read();
	const struct rs_trampoline_state *st = find(from, &at);
	if (st) {
		s->moved = true;
		s->generation = __atomic_load_n(&rs_patch_generation, __ATOMIC_SEQ_CST);
		s->rip = at + (uintptr_t)(intptr_t)st->pc;
		s->resume = from != pc ? pc : st->resume == 0xffff ? s->rip : at + st->resume;
		const struct rs_trampoline_move *m = (const void *)(st + 1);
		for (unsigned i = 0; i < st->moves; i++)
			move(&m[i], s->rip, s->was, g);
		g[REG_RIP] = (greg_t)s->rip;
		/* A call that the trampoline was about to make, or came back from, is no longer under way (recipe.Context). */
		uint64_t *context = &rs_patch_pointers[RS_PATCH_THREAD_CONTEXT];
		if (*context && *context == (uint64_t)s->was[REG_RSP])
			*context = ((const uint64_t *)*context)[CONTEXT_OUTER];
		tell_address(info, pc, s->rip);
	}
	end_read();
	uintptr_t context = rs_patch_pointers[RS_PATCH_THREAD_CONTEXT];
	if (!st && context > (uintptr_t)g[REG_RSP]) {
		s->context = (struct rs_access_context *)context;
		show_inside(g, s);
	}
}

void rs_patch_resume(ucontext_t *uc, const struct rs_shown *s)
{
	greg_t *g = uc->uc_mcontext.gregs;
	if (s->hooked)
		rs_hook_back(g, s->was, s->seen);
	if (s->inside)
		back_inside(g, s);
	/* Where the trampoline may be gone, what it does is done once more. */
	if (s->moved && (uintptr_t)g[REG_RIP] == s->rip && s->generation == __atomic_load_n(&rs_patch_generation, __ATOMIC_SEQ_CST))
		g[REG_RIP] = (greg_t)s->resume;
}
