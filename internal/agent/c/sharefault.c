/* sharefault.c: SIGSEGV. A fault by one of our keys says who touches what; any other is the program's, which sees what it would see without us (share.h).
 *
 * The kernel's action is ours and the signal is never blocked: a fault that is blocked kills. Handlers start with the processor's default rights, key 0 alone (fpu__clear_user_states), which is what
 * the agent's memory and all stacks have. */
#include "share.h"
#include "access.h"
#include "called.h"
#include "patch.h"
#include "race_core.h"
#include <errno.h>
#include <sys/mman.h>

#ifndef SA_RESTORER
#define SA_RESTORER 0x04000000u
#endif
#ifndef SEGV_PKUERR
#define SEGV_PKUERR 4
#endif

enum { SEGV_BIT = 1 << (SIGSEGV - 1), FAILED = 1024, MANY = 10000, PATIENCE = 20, KEY_BOTH = 3, TF = 1 << 8 };

static struct rs_kernel_action own; /* the program's */
static uintptr_t restorer;
static struct { uintptr_t pc; unsigned times; } failed[FAILED]; /* instructions that cannot be patched, or cannot go by the mirror, hashed, and how often they were stepped */
RS_TLS struct { uintptr_t site, addr, gone; bool asked; } last;
RS_TLS bool blocked;
RS_TLS uintptr_t stepping;          /* where the thread is let by for one instruction; 0: nowhere */

bool rs_share_blocked(void) { return blocked; }
bool rs_share_blocks(bool now)
{
	bool was = blocked;
	blocked = now;
	return was;
}

/* --- the program's own faults ------------------------------------------------------------------------------------------------------------ */

static void kernel_default(void)
{
	struct rs_kernel_action dfl = {0, 0, 0, 0};
	RS_SYS4(SYS_rt_sigaction, SIGSEGV, &dfl, NULL, 8);
}

static void forward(int sig, siginfo_t *info, ucontext_t *uc)
{
	struct rs_kernel_action a = own;
	bool sent = info->si_code <= 0;
	if ((a.handler == (uintptr_t)SIG_IGN || blocked) && sent)
		return; /* one that is blocked and sent is lost, not kept */
	if (a.handler <= (uintptr_t)SIG_IGN || blocked) {
		kernel_default();
		if (sent)
			RS_SYS4(SYS_rt_tgsigqueueinfo, rs_os_pid(), rs_os_tid(), SIGSEGV, info);
		return; /* or it faults again */
	}
	if (a.flags & (uint64_t)(uint32_t)SA_RESETHAND)
		own.handler = 0;
	uint64_t mask = (uc->uc_sigmask.__val[0] | a.mask) & ~(uint64_t)SEGV_BIT;
	RS_SYS4(SYS_rt_sigprocmask, SIG_SETMASK, &mask, NULL, 8);
	/* A stub of signal.c's, which sees to the rest. */
	((void (*)(int, siginfo_t *, void *))a.handler)(sig, info, uc);
	uc->uc_sigmask.__val[0] &= ~(unsigned long)SEGV_BIT;
}

/* --- ours --------------------------------------------------------------------------------------------------------------------------------- */

void rs_share_pardon(uint32_t owner)
{
	static struct race_stamp stamp;
	__atomic_fetch_add(&rs_counters->share_pardons, 1, __ATOMIC_RELAXED);
	struct race_thread *t = rs_race_of(owner);
	if (!t) {
		rs_race_amnesty();
		return;
	}
	rs_race_drop(&stamp);
	rs_race_give(&stamp, t);
	rs_race_floor_stamp(&stamp);
}

static void pardon(struct share_block *b, uint32_t number)
{
	if (b->touched && !rs_share_rest_known(b->rest, number))
		rs_share_pardon(b->owner);
	b->touched = 0;
}

void rs_share_shared(struct share_block *b)
{
	pardon(b, 0);
	if (rs_share_tag(b, SHARE_SHARED, rs_share.key) < 0)
		rs_share_tag(b, SHARE_OPEN, 0);
}

/* It is a thread's alone from now on. False: there is no key. */
static bool own_block(struct share_block *b, uint32_t number)
{
	uint8_t key = rs_share_key_mine(number);
	if (!key)
		return false;
	if (b->owner != number) /* or it has it back */
		pardon(b, number);
	b->touched = 1;
	b->owner = number;
	if (rs_share_tag(b, SHARE_PRIVATE, key) < 0)
		rs_share_tag(b, SHARE_OPEN, 0);
	return true;
}

/* A thread touches a block at p; whether what it is now lets the thread go on as it is. Locked. */
static bool touched_by(struct share_block *b, uintptr_t p, uint32_t number)
{
	switch ((enum share_state)b->state) {
	case SHARE_FREE:
	case SHARE_OPEN:
		return rs_share_tag(b, (enum share_state)b->state, 0), true;
	case SHARE_UNOWNED: {
		bool may = number && (b->first == number || b->first == 0);
		if (may && own_block(b, number))
			return true;
		pardon(b, number);
		rs_share_shared(b);
		return b->state == SHARE_OPEN;
	}
	case SHARE_RESTING: {
		bool mine = number && b->owner == number, known = number && rs_share_rest_known(b->rest, number);
		uint64_t since = share_counter();
		if ((mine || (!known && number && rs_share_ended(b->owner))) && own_block(b, number)) {
			if (mine)
				rs_share_took_back(since);
			b->again = mine && b->again < SHARE_NEVER - 1 ? b->again + 1 : b->again;
			return true;
		}
		pardon(b, number);
		rs_share_shared(b);
		return b->state == SHARE_OPEN;
	}
	case SHARE_STRIPPED: {
		uint8_t key = b->owner == number ? rs_share_key_mine(number) : 0;
		if (key && rs_share_tag(b, SHARE_PRIVATE, key) < 0)
			rs_share_tag(b, SHARE_OPEN, 0);
		if (!key) {
			pardon(b, number);
			rs_share_shared(b);
		}
		return b->state != SHARE_SHARED;
	}
	case SHARE_PRIVATE:
		if (b->owner == number)
			return true;
		rs_share_shared(b);
		return b->state == SHARE_OPEN;
	case SHARE_SHARED:
		rs_share_take_back(b, p);
		return b->state == SHARE_OPEN;
	}
	return false;
}

static uint32_t number_of_self(void) { return rs_thread_tls ? rs_thread_tls->number : 0; }

bool rs_share_touch(uint32_t number, uintptr_t p, size_t n)
{
	uintptr_t end = p + n;
	bool judged = false;
	for (uintptr_t at = p; at < end; at = (at | ((1ul << SHARE_PAGE_BITS) - 1)) + 1) {
		unsigned bits = rs_share_bits(at);
		if (!bits && !rs_share_has(at))
			return true;
		if (bits & SHARE_JUDGED) {
			judged = true;
			continue;
		}
		if (rs_share_is_heap(at) && rs_share_heap_own(at, number))
			continue;
		uint64_t mask = rs_os_no_signals();
		rs_lock(&rs_share_lock);
		struct share_block *b = rs_share_block(at);
		if (rs_share_is_heap(at))
			rs_share_heap_touched(at, number);
		else if (b && b->state != SHARE_OPEN && (b->state != SHARE_SHARED || rs_share_lent_to(b, at) != number))
			touched_by(b, at, number);
		judged |= (rs_share_bits(at) & SHARE_JUDGED) != 0;
		uintptr_t next = b && b->state != SHARE_SHARED ? rs_share_address(b) + rs_share_bytes(b) - 1 : at;
		rs_unlock(&rs_share_lock);
		rs_os_signals(mask);
		at = next;
	}
	return judged;
}

static uint32_t shared_open(void) { return rs_share_closed() & ~((uint32_t)KEY_BOTH << 2 * rs_share.key); }

static inline uintptr_t seen_at(uintptr_t p)
{
	return rs_share_bits(p) & SHARE_JUDGED ? p + rs_share.away : p;
}

static inline void move_one(uintptr_t to, uintptr_t from, unsigned size)
{
	switch (size) {
	case 1:
		*(volatile uint8_t *)to = *(const volatile uint8_t *)from;
		break;
	case 2:
		*(volatile uint16_t *)to = *(const volatile uint16_t *)from;
		break;
	case 4:
		*(volatile uint32_t *)to = *(const volatile uint32_t *)from;
		break;
	default:
		*(volatile uint64_t *)to = *(const volatile uint64_t *)from;
	}
}

void rs_share_string(struct rs_access_context *c)
{
	enum { RAX = 0, RCX = 1, RSI = 6, RDI = 7, DF = 1 << 10 };
	unsigned size = c->info & 0xffff;
	uint64_t by = c->flags & DF ? -(uint64_t)size : size;
	for (uint64_t n = c->data & SHARE_REPEATED ? c->gpr[RCX] : 1; n; n--) {
		move_one(seen_at(c->gpr[RDI]), c->data & SHARE_MOVS ? seen_at(c->gpr[RSI]) : (uintptr_t)&c->gpr[RAX], size);
		c->gpr[RDI] += by;
		if (c->data & SHARE_MOVS)
			c->gpr[RSI] += by;
		if (c->data & SHARE_REPEATED)
			c->gpr[RCX]--;
	}
}

static void proves_atomic(uint32_t number, uintptr_t p, size_t n)
{
	for (uintptr_t at = p; n && at < p + n; at = (at | ((1ul << SHARE_PAGE_BITS) - 1)) + 1) {
		bool heap = rs_share_is_heap(at);
		if (heap ? !rs_share_heap_lent(at) : !rs_share_has(at) && (rs_share_bits(at) & (SHARE_GLOBAL | SHARE_JUDGED)) != SHARE_GLOBAL)
			continue;
		uint64_t mask = rs_os_no_signals();
		rs_lock(&rs_share_lock);
		struct share_block *b = rs_share_block(at);
		uint32_t owner = 0;
		if (heap)
			rs_share_heap_atomic(at, number);
		else if (b && (owner = rs_share_take_back(b, at)) != 0 && owner != number)
			rs_share_pardon(owner);
		rs_unlock(&rs_share_lock);
		rs_os_signals(mask);
	}
}

bool rs_share_asked(uint32_t number, const struct accesses *list)
{
	bool any = false;
	if (!list->count || !(list->kind[0] & CALLED)) /* those are told by who has opened all and will close it */
		rs_share_close();
	for (unsigned i = 0; i < list->count; i++) {
		bool judged = true;
		if (list->kind[i] & ATOMIC)
			proves_atomic(number, list->a[i].addr, list->a[i].size);
		if (list->kind[i] & (CALLED | ATOMIC)) /* atomic instructions are told whatever the page is, and it is known here first */
			judged = rs_share_touch(number, list->a[i].addr, list->a[i].size);
		any |= judged || !(list->kind[i] & CALLED);
	}
	return any;
}

void rs_share_atomic(uintptr_t addr)
{
	if (rs_live_threads <= 1 || (addr && rs_share_bits(addr) & SHARE_JUDGED))
		return;
	rs_race_amnesty();
}

/* The thread goes on with what is shared open, and is not judged, until it next tells something (rs_full_take) or makes a system call. */
static void let_by(ucontext_t *uc)
{
	rs_share_loosen();
	rs_share_set_frame(uc, shared_open());
}

/* The same for one instruction. */
static void step(ucontext_t *uc)
{
	greg_t *g = uc->uc_mcontext.gregs;
	__atomic_fetch_add(&rs_counters->share_steps, 1, __ATOMIC_RELAXED);
	rs_share_set_frame(uc, shared_open());
	stepping = (uintptr_t)g[REG_RIP];
	g[REG_EFL] |= TF;
}

bool rs_share_stepped(const siginfo_t *info, ucontext_t *uc)
{
	greg_t *g = uc->uc_mcontext.gregs;
	if (!stepping || info->si_code != TRAP_TRACE)
		return false;
	if (stepping != (uintptr_t)g[REG_RIP])
		rs_share_set_frame(uc, rs_share_closed());
	stepping = 0;
	g[REG_EFL] &= ~(greg_t)TF;
	return true;
}

static unsigned slot_of(uintptr_t pc) { return (unsigned)((pc * 0x9e3779b97f4a7c15ull) >> 54) & (FAILED - 1); }

/* What is stepped very often is let by from then on: it takes microseconds. */
static void go_by(ucontext_t *uc, uintptr_t site)
{
	unsigned i = slot_of(site);
	if (failed[i].pc != site) {
		failed[i].pc = site;
		failed[i].times = 0;
	}
	if (failed[i].times++ < MANY)
		step(uc);
	else
		let_by(uc);
}

/* Code of glibc's or the agent's, which is not patched, and accesses for its own ends: nothing of it is told. SIGTRAP may be blocked, where a step would kill. Each iteration of a repeated instruction would
 * trap. */
static void step_over(ucontext_t *uc, uintptr_t site)
{
	const uint8_t *code = (const uint8_t *)site;
	bool repeated = code[0] == 0xf2 || code[0] == 0xf3, blocks = uc->uc_sigmask.__val[0] >> (SIGTRAP - 1) & 1;
	if (blocks || (repeated && ((code[1] & 0xfc) == 0xa4 || (code[1] & 0xfe) == 0xaa || (code[1] & 0xf8) == 0x48)))
		let_by(uc);
	else
		go_by(uc, site);
}

/* The instruction is executed once more from its beginning. */
static void start_over(ucontext_t *uc, uintptr_t site)
{
	struct rs_shown shown;
	rs_patch_show(uc, NULL, &shown);
	if (!shown.hooked && !shown.inside)
		uc->uc_mcontext.gregs[REG_RIP] = (greg_t)site;
}

/* The thread stands before an access to what is shared; was: it was so when the access failed. Else nothing is known of the instruction: the page may have been lent while the one before was answered. */
static void judge(ucontext_t *uc, uintptr_t addr, bool was)
{
	greg_t *g = uc->uc_mcontext.gregs;
	uintptr_t pc = (uintptr_t)g[REG_RIP], site = rs_patch_pc(pc);
	struct rs_thread *t = rs_thread_tls;
	/* Of glibc's and the agent's own nothing is patched. */
	if (!t || t->inside || rs_patch_pointers[RS_PATCH_THREAD_CONTEXT] > (uintptr_t)g[REG_RSP] || rs_not_patched(site)) {
		step_over(uc, pc);
		return;
	}
	/* A trampoline comes here once if the page was private until now, and once more if it does not go by the mirror: its instruction cannot, or goes beyond the page that it asked for; or it is a neighbour's. */
	bool again = was && last.site == site && last.addr == addr;
	last.asked = again ? last.asked : false;
	last.site = site;
	last.addr = addr;
	if (failed[slot_of(site)].pc == site || (again && last.asked)) {
		last.site = 0;
		go_by(uc, site);
		return;
	}
	if (pc != site && !again) {
		start_over(uc, site);
		return;
	}
	last.asked = true;
	/* A busy machine may answer late; what is let by is not judged. */
	long r = rs_patch_ask(RS_PATCH_ASK_SITE, site);
	for (int i = 0; i < PATIENCE && r == -ETIMEDOUT; i++)
		r = rs_patch_ask(RS_PATCH_ASK_SITE, site);
	if (r == 0) {
		start_over(uc, site);
		return;
	}
	last.site = 0;
	if (r == -ETIMEDOUT)
		step(uc);
	else
		go_by(uc, site);
}

/* A mapping that a thread runs on is a stack: it is not to be shared, each of whose pushes and calls would fault. */
static void keep_stack(struct share_block *b, uintptr_t sp)
{
	bool is_own = b->state == SHARE_UNOWNED || ((b->state == SHARE_PRIVATE || b->state == SHARE_RESTING) && b->owner == number_of_self());
	if (sp - rs_share_address(b) >= rs_share_bytes(b))
		return;
	b->again = SHARE_NEVER;
	if (!is_own)
		rs_share_tag(b, SHARE_OPEN, 0);
}

/* It is unmapped, or is nobody's now: so once more. What was moved untold has its key still. */
static void was_ours(uintptr_t addr)
{
	if (last.gone == addr)
		RS_SYS4(SYS_pkey_mprotect, addr & -RS_PAGE, RS_PAGE, PROT_READ | PROT_WRITE, 0);
	last.gone = addr;
}

static void handler(int sig, siginfo_t *info, void *context)
{
	ucontext_t *uc = context;
	uintptr_t addr = (uintptr_t)info->si_addr;
	unsigned bits = rs_share_bits(addr);
	if (info->si_code != SEGV_PKUERR || (!rs_share_on && !rs_share_has(addr) && !(bits & SHARE_GLOBAL))) {
		forward(sig, info, uc);
		return;
	}
	if (!rs_share_has(addr) && !bits) {
		was_ours(addr);
		return;
	}
	__atomic_fetch_add(&rs_counters->share_faults, 1, __ATOMIC_RELAXED);
	rs_share_back(); /* a handler's frame on watched memory may interrupt a call */
	uint32_t closed = rs_share_closed();
	if (!closed && !rs_thread_tls) { /* a thread that is not known */
		rs_share_set_frame(uc, 0);
		return;
	}
	rs_lock(&rs_share_lock);
	struct share_block *b = rs_share_block(addr);
	if (b && b->mapped)
		keep_stack(b, (uintptr_t)uc->uc_mcontext.gregs[REG_RSP]);
	bool heap = rs_share_is_heap(addr), goes_on = heap ? rs_share_heap_touched_at(addr, number_of_self(), (uintptr_t)uc->uc_mcontext.gregs[REG_RSP]) : !b || touched_by(b, addr, number_of_self());
	if (!heap && !b && rs_share_has(addr)) /* freed */
		RS_SYS4(SYS_pkey_mprotect, addr & -RS_PAGE, RS_PAGE, 3, 0);
	rs_unlock(&rs_share_lock);
	closed = rs_share_closed(); /* it may have its key since just now */
	rs_share_set_frame(uc, closed);
	if (!goes_on)
		judge(uc, addr, bits & SHARE_JUDGED);
}

bool rs_share_faults(void)
{
	struct rs_kernel_action trap, k = {.handler = (uintptr_t)handler, .flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK | SA_RESTORER, .mask = ~(uint64_t)SEGV_BIT};
	/* libc's place to return to. */
	struct sigaction none = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO};
	if (RS_SYS4(SYS_rt_sigaction, SIGSEGV, NULL, &own, 8) < 0 || rs_real.sigaction(SIGSEGV, &none, NULL) < 0 || RS_SYS4(SYS_rt_sigaction, SIGSEGV, NULL, &trap, 8) < 0)
		return false;
	k.restorer = restorer = trap.restorer;
	return RS_SYS4(SYS_rt_sigaction, SIGSEGV, &k, NULL, 8) == 0;
}

long rs_share_action(const struct rs_kernel_action *act, struct rs_kernel_action *old)
{
	struct rs_kernel_action before = own;
	if (act) {
		struct rs_kernel_action k = {.handler = (uintptr_t)handler, .flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK | SA_RESTORER, .restorer = restorer, .mask = ~(uint64_t)SEGV_BIT};
		if (act->handler > (uintptr_t)SIG_IGN)
			k.flags = (act->flags & ~(uint64_t)(uint32_t)SA_RESETHAND) | SA_SIGINFO | SA_NODEFER | SA_ONSTACK | SA_RESTORER;
		long r = RS_SYS4(SYS_rt_sigaction, SIGSEGV, &k, NULL, 8);
		if (r < 0)
			return r;
		own = *act;
	}
	if (old)
		*old = before;
	return 0;
}
