/* dispatch.c: threads whose system calls the kernel gives to the program: prctl(PR_SET_SYSCALL_USER_DISPATCH), as Wine has it. Natively a call made outside of a range of addresses
 * while the byte `selector` says so raises SIGSYS in place of being made. The kernel gets what the program gave it, so the program's own instructions are judged by nobody else; what is left
 * to us are three kinds of instructions that natively would not be, or would be elsewhere:
 * - our own calls (os.h) are not the program's: they are made with the selector at ALLOW, and set it back;
 * - calls of patched sites are judged by the site's address: inside the range as ours; outside, where the selector says so, the trampoline's own instruction makes the call, which the kernel then
 *   refuses, and the handler is shown the site (trampoline.c);
 * - calls of functions of ours that stand for libc's are made by libc's syscall(), which is inside the range or not as all of libc is.
 *
 * Ground rules: as rs_call_before's (calls.h). Threads and children do not inherit it, and need not: what we do then is of no consequence. */
#include "dispatch.h"
#include "agent.h"
#include "core.h"
#include "guardepoch.h"
#include "guardsync.h"
#include "patch.h"
#include "real.h"
#include "share.h"
#include <errno.h>
#include <linux/sched.h>

extern int *__errno_location(void) __attribute__((const));

enum { OFF, OUTSIDE, INSIDE /* since 6.16: what is inside the range is given to the program */, ALLOW = 0, BLOCK = 1, NONE_MAX = 64 };

uint32_t rs_dispatch_on, rs_os_detour;
uintptr_t rs_syscall_of_libc RS_HIDDEN; /* syscall.c */

/* Of a thread. selector NULL: it is not on. from, length: as the kernel keeps them. */
static __thread struct { volatile uint8_t *selector; uintptr_t from, length; volatile uint8_t *opened /* and not yet closed */; } own __attribute__((tls_model("initial-exec")));

/* Where the program gave none, which is as if it always said BLOCK. */
static uint8_t none[NONE_MAX];
static uint32_t nones;

static bool within(uintptr_t behind) { return behind - own.from < own.length; }

/* The coordinator has its maker's thread storage, but is another thread. */
static bool gives(void) { return own.selector && *own.selector == BLOCK && !rs_guard_is_coordinator((uintptr_t)__builtin_frame_address(0)); }

static volatile uint8_t *let_pass(void)
{
	if (!gives())
		return NULL;
	volatile uint8_t *s = own.selector;
	*s = ALLOW;
	return s;
}

static long ours(long n, long a, long b, long c, long d, long e, long f)
{
	volatile uint8_t *s = let_pass();
	long r = rs_os_raw6(n, a, b, c, d, e, f);
	if (s) /* arch_prctl: fs may be another thread's */
		*s = BLOCK;
	return r;
}

long rs_os_detour6(long n, long a, long b, long c, long d, long e, long f)
{
	if (!rs_share_on)
		return ours(n, a, b, c, d, e, f);
	uint32_t rights = share_rights();
	share_set_rights(0);
	long r = ours(n, a, b, c, d, e, f);
	rs_share_restore(rights);
	return r;
}

long rs_dispatch_program6(long n, long a, long b, long c, long d, long e, long f)
{
	int *error = __errno_location(), before = *error;
	long r = rs_real.syscall(n, a, b, c, d, e, f);
	if (r == -1)
		r = -*error;
	*error = before;
	return r;
}

long rs_dispatch_prctl_named(long option, long a, long b, long c, long d)
{
	int *error = __errno_location(), before = *error;
	long r = rs_real.prctl((int)option, a, b, c, d);
	if (r == -1)
		r = -*error;
	*error = before;
	return r;
}

static uint8_t class[RS_CALL_ROWS]; /* of the hook, as it was */

void rs_dispatch_classes(void)
{
	for (unsigned i = 0; i < RS_CALL_ROWS; i++) {
		class[i] = rs_call_class[i];
		if (i != SYS_rt_sigreturn) /* of which the kernel looks at rsp; no site of libc's that makes it is patched */
			__atomic_store_n(&rs_call_class[i], RS_CALL_SEE, __ATOMIC_RELEASE);
	}
}

static void begin(void)
{
	static uint32_t done;
	if (__atomic_exchange_n(&done, 1, __ATOMIC_SEQ_CST))
		return;
	rs_syscall_of_libc = (uintptr_t)rs_real.syscall;
	/* What the handler does in place of a call would have to be executed again. */
	if (rs_guard_on && rs_guard_mode()) {
		struct rs_thread *t = rs_self();
		if (t)
			rs_notice(t, RS_NOTICE_NO_EPOCHS, ENOSYS, 0);
		rs_guard_off();
	}
	rs_dispatch_classes();
	__atomic_store_n(&rs_os_detour, 1, __ATOMIC_RELEASE);
	__atomic_store_n(&rs_hook_on, 1, __ATOMIC_RELEASE);
	__atomic_store_n(&rs_dispatch_on, 1, __ATOMIC_RELEASE);
}

/* The selector that the kernel is given. */
static long before(long mode, long selector)
{
	if (mode == OFF)
		return selector;
	begin();
	if (selector)
		return selector;
	uint32_t i = __atomic_fetch_add(&nones, 1, __ATOMIC_RELAXED) % NONE_MAX;
	none[i] = BLOCK;
	return (long)&none[i];
}

static void after(long mode, long from, long length, long selector, long r)
{
	if (r != 0)
		return;
	own.from = (uintptr_t)(mode == INSIDE ? from + length : from);
	own.length = (uintptr_t)(mode == INSIDE ? -length : length);
	own.selector = mode == OFF ? NULL : (volatile uint8_t *)selector;
}

long rs_dispatch_prctl(long mode, long from, long length, long selector, bool named)
{
	bool given = gives() && !within(rs_syscall_of_libc); /* it is the handler that says what becomes of it */
	long to = before(mode, selector), r;
	if (rs_dispatch_on && named)
		r = rs_dispatch_prctl_named(RS_PR_SET_SYSCALL_USER_DISPATCH, mode, from, length, to);
	else
		r = RS_PROGRAM5(SYS_prctl, RS_PR_SET_SYSCALL_USER_DISPATCH, mode, from, length, to);
	if (!given)
		after(mode, from, length, to, r);
	return r;
}

void rs_dispatch_after_fork(void) { own.selector = NULL; }

/* --- patched sites ---------------------------------------------------------------------------------------------------------------------------- */

static bool is_dispatch(const struct rs_call *c) { return c->number == SYS_prctl && c->arg[0] == RS_PR_SET_SYSCALL_USER_DISPATCH; }

static long here(struct rs_call *c)
{
	c->result = ours((long)c->number, (long)c->arg[0], (long)c->arg[1], (long)c->arg[2], (long)c->arg[3], (long)c->arg[4], (long)c->arg[5]);
	c->ticks = 0;
	rs_calls_add(c);
	return 0;
}

/* What a clone gives its child for a stack; 0: its parent's. */
static bool has_stack(const struct rs_call *c) { return c->number == SYS_clone3 ? ((const struct clone_args *)c->arg[0])->stack : c->number == SYS_clone && c->arg[1]; }
static bool shares(const struct rs_call *c)
{
	return c->number == SYS_vfork || (c->number == SYS_clone && c->arg[0] & CLONE_VM) || (c->number == SYS_clone3 && ((const struct clone_args *)c->arg[0])->flags & CLONE_VM);
}

/* One that the range lets pass, though the selector would not. */
static long passed(struct rs_call *c)
{
	if (!shares(c) || (c->number == SYS_clone3 && c->arg[1] < CLONE_ARGS_SIZE_VER0))
		return here(c);
	own.opened = let_pass();
	return has_stack(c) ? 3 : 2;
}

/* Of a call that does not come back to the hook the next one does it, if only the child's. */
static void close_opened(void)
{
	if (own.opened)
		*own.opened = BLOCK;
	own.opened = NULL;
}

bool rs_dispatch_before(struct rs_call *c, long *made)
{
	if (c->number != SYS_vfork || !own.opened) /* rs_dispatch_vfork's */
		close_opened();
	c->guard_state = 0;
	c->guard_again = 0;
	bool is_inside = !own.selector || within(c->next), given = own.selector && *own.selector != ALLOW;
	if (given && !is_inside) {
		*made = 2;
		return true;
	}
	if (is_dispatch(c)) {
		c->arg[4] = (uint64_t)before((long)c->arg[1], (long)c->arg[4]);
		*made = here(c);
		after((long)c->arg[1], (long)c->arg[2], (long)c->arg[3], (long)c->arg[4], c->result);
		return true;
	}
	if (given) {
		*made = passed(c);
		return true;
	}
	uint8_t k = class[c->row];
	if (k != RS_CALL_PASS && k != RS_CALL_COUNT_PASS)
		return false;
	c->result = 0;
	c->ticks = 0;
	if (k == RS_CALL_COUNT_PASS)
		rs_calls_add(c);
	*made = 2;
	return true;
}

bool rs_dispatch_after(struct rs_call *c)
{
	if (!own.opened)
		return false;
	close_opened();
	c->ticks = 0;
	rs_calls_add(c);
	return true;
}

/* --- calls of ours that are not by os.h --------------------------------------------------------------------------------------------------------- */

volatile uint8_t *rs_dispatch_open(void) { return rs_dispatch_on ? let_pass() : NULL; }

void rs_dispatch_vfork(void)
{
	if (rs_dispatch_on && within(rs_syscall_of_libc))
		own.opened = let_pass();
}

void rs_dispatch_vfork_over(void)
{
	if (rs_dispatch_on)
		close_opened();
}
