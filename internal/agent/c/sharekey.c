/* sharekey.c: protection keys, and what threads may touch (share.h). Intel SDM vol. 3, 4.6.2; pkeys(7).
 *
 * No two threads have one key: what one of them touched of the other's would not be seen. A thread without a key owns nothing. */
#include "share.h"
#include "race_core.h"
#include <cpuid.h>

enum { KEYS = 16, PKRU_FEATURE = 9, DENY = 1, BOTH = 3 };

static struct { uint32_t thread; bool ours; } keys[KEYS];
RS_TLS uint32_t closed; /* PKRU while code of the program runs; 0: everything is open */
RS_TLS uint8_t mine;
RS_TLS uintptr_t opened;  /* the outermost RS_OPENS; 0: there is none */
RS_TLS bool loose;        /* what is shared is open, while code may run that nobody is told of */
static uint32_t at_pkru; /* in an XSAVE area */
/* The thread's alternate stack as long as the program has set none. A handler starts with key 0 alone: if the program's stack lies in watched memory (coroutines) its first push faults, and that fault
 * needs another stack. */
RS_TLS stack_t spare;
enum { SPARE = 256 << 10 };

bool rs_share_keys(void)
{
	unsigned a, b, c, d;
	enum { OSPKE = 1 << 4 };
	if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(c & OSPKE) || !__get_cpuid_count(0xd, PKRU_FEATURE, &a, &b, &c, &d) || a < 4)
		return false;
	at_pkru = b;
	unsigned n = 0;
	for (;;) {
		long k = RS_SYS2(SYS_pkey_alloc, 0, 0);
		if (k <= 0 || k >= KEYS)
			break;
		keys[k].ours = true;
		rs_share.deny |= (uint32_t)DENY << 2 * k;
		rs_share.key = (uint8_t)k;
		n++;
	}
	keys[rs_share.key].thread = ~0u;
	return n >= 2;
}

void rs_share_keys_free(void)
{
	for (int k = 1; k < KEYS; k++)
		if (keys[k].ours) {
			RS_SYS1(SYS_pkey_free, k);
			keys[k].ours = false;
		}
	rs_share.deny = 0;
}

uint8_t rs_share_key_mine(uint32_t number)
{
	for (uint8_t k = 1; closed && !mine && k < KEYS; k++)
		if (keys[k].ours && keys[k].thread == 0) {
			keys[k].thread = number;
			mine = k;
			closed = rs_share.deny & ~((uint32_t)BOTH << 2 * k);
		}
	return mine;
}

uint32_t rs_share_closed(void) { return closed; }

/* --- open and closed ------------------------------------------------------------------------------------------------------------------------ */

/* What it does meanwhile may order what it did before, and what others do may order what it does afterwards: both are taken for ordered. */
static void pass_over(void)
{
	if (rs_live_threads > 1)
		rs_race_amnesty();
}

void rs_share_loosen(void)
{
	if (!loose)
		pass_over();
	loose = true;
}

void rs_share_close(void)
{
	if (RS_UNLIKELY(share_rights() != closed))
		share_set_rights(closed);
	if (RS_UNLIKELY(loose)) {
		loose = false;
		pass_over();
	}
}

bool rs_share_opened(uintptr_t sp) { return sp < opened; }

void rs_share_open(struct rs_opened *o)
{
	o->did = true;
	o->outer = opened > (uintptr_t)o ? opened : 0;
	if (!o->outer)
		opened = (uintptr_t)o;
	share_set_rights(0);
}

void rs_share_shut(struct rs_opened *o)
{
	if (o->outer)
		return;
	opened = 0;
	rs_share_close();
}

uintptr_t rs_share_enter_handler(void)
{
	uintptr_t was = opened;
	opened = 0;
	rs_share_close();
	return was;
}

void rs_share_leave_handler(uintptr_t was)
{
	opened = was;
	if (was)
		share_set_rights(0);
}

/* --- threads ---------------------------------------------------------------------------------------------------------------------------------- */

RS_TLS uint32_t spawning, closed_before; /* calls that nest; what is closed behind them */

void rs_share_spawn(bool begins)
{
	if (begins && spawning++ == 0) {
		closed_before = closed;
		closed = 0;
		if (rs_share_on)
			share_set_rights(0);
	} else if (!begins && --spawning == 0) {
		closed = rs_share_on ? closed_before : 0;
		if (rs_share_on)
			share_set_rights(closed);
	}
}

const stack_t *rs_share_spare(void) { return spare.ss_sp ? &spare : NULL; }

static void spare_begin(void)
{
	stack_t now;
	if (spare.ss_sp || RS_SYS2(SYS_sigaltstack, NULL, &now) < 0 || !(now.ss_flags & SS_DISABLE) || !(spare.ss_sp = rs_os_map(SPARE)))
		return;
	spare.ss_size = SPARE;
	spare.ss_flags = 0;
	RS_SYS2(SYS_sigaltstack, &spare, NULL);
}

static void spare_end(void)
{
	static const stack_t none = {.ss_flags = SS_DISABLE};
	stack_t now;
	if (!spare.ss_sp || RS_SYS2(SYS_sigaltstack, NULL, &now) < 0 || now.ss_flags & SS_ONSTACK)
		return;
	if (now.ss_sp == spare.ss_sp)
		RS_SYS2(SYS_sigaltstack, &none, NULL);
	rs_os_unmap(spare.ss_sp, SPARE);
	spare.ss_sp = NULL;
}

void rs_share_thread_begin(void)
{
	if (!rs_share.base)
		return;
	mine = 0;
	if (rs_share_on)
		spare_begin();
	opened = 0;
	loose = false;
	closed = rs_share.deny; /* none where nothing is watched any more */
	share_set_rights(closed);
}

static void leave_one(struct share_block *b, void *arg)
{
	const uint32_t *number = arg;
	if (b->state == SHARE_PRIVATE && b->owner == *number && rs_share_tag(b, SHARE_UNOWNED, rs_share.key) < 0)
		rs_share_tag(b, SHARE_OPEN, 0); /* its key will be another's */
	if (b->state == SHARE_UNOWNED && (b->first == *number || b->owner == *number))
		b->first = 0;
}

void rs_share_thread_end(uint32_t number)
{
	if (!rs_share_on)
		return;
	closed = 0;
	share_set_rights(0);
	spare_end();
	uint64_t mask = rs_os_no_signals();
	rs_lock(&rs_share_lock);
	rs_share_each(leave_one, &number);
	rs_share_heap_end(number, mine);
	if (mine)
		keys[mine].thread = 0;
	mine = 0;
	rs_unlock(&rs_share_lock);
	rs_os_signals(mask);
}

bool rs_share_set_frame(ucontext_t *uc, uint32_t pkru)
{
	enum { SOFTWARE = 464, MAGIC = 0x46505853, HEADER = 512 }; /* struct _fpx_sw_bytes; the header's first word is XSTATE_BV */
	char *area = (char *)uc->uc_mcontext.fpregs;
	if (!area || *(uint32_t *)(area + SOFTWARE) != MAGIC || !(*(uint64_t *)(area + SOFTWARE + 8) >> PKRU_FEATURE & 1))
		return false;
	*(uint64_t *)(area + HEADER) |= 1ull << PKRU_FEATURE;
	*(uint32_t *)(area + at_pkru) = pkru;
	return true;
}
