/* loader.c: initialisers of objects that are loaded while the program runs are its code like any other: their code is patched before ld.so runs them, and those of two threads are in order.
 *
 * For debuggers ld.so calls a function that does nothing, r_brk (link.h, _dl_debug_state), each time its list of objects begins to change and when that is consistent again. When it has added some that is behind their mapping, and
 * before they are relocated and their initialisers run. Nothing that takes its lock may be called there; the engine is asked, which needs none.
 *
 * ld.so has a lock of its own around initialisers and finishers, which nobody tells of. Where the hook is, the calls that take it take one of ours first, by the same rules: whoever has it may take it again, who forks has none in the child, who leaves
 * by longjmp or ends keeps it. Nobody is let wait who natively need not: a call that ld.so makes by itself, or one that we jump to (dl.c), has ld.so's lock and not ours, and a handler may leave by siglongjmp between the two. So a waiter asks for ld.so's
 * again and again, and where that was free and ours was not for long, it takes ours away. Initialisers of who has not ours are not told; nor those of objects that everybody finds from then on (RTLD_GLOBAL), by dlsym, of whose order nobody tells. */
#include "loader.h"
#include "core.h"
#include "fd.h"
#include "patch.h"
#include "proc.h"
#include <dlfcn.h>
#include <errno.h>
#include <link.h>

enum { LOOK_MS = 20, LOST_MS = 3000, INSIDE_MS = 100 };

static bool hooked;
static struct r_debug *state;
static int (*real_dladdr)(const void *, Dl_info *);

/* The number of the thread that has it, 0: nobody; how often it took it again; how many wait. */
static uint32_t owner, again, waiting;
/* The last thread for which ld.so loaded something past us: its initialisers may be what wants the lock. */
static uint32_t past;
/* Of who has it: initialisers are to be told, objects are being added, the engine was asked, and that was for all of them. */
static bool telling, adding, asked, asked_all;

/* --- the lock ------------------------------------------------------------------------------------------------------------------------ */

static bool try_lock(uint32_t number)
{
	uint32_t nobody = 0;
	return __atomic_compare_exchange_n(&owner, &nobody, number, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
}

static void lock(uint32_t number)
{
	Dl_info info;
	uint32_t since = rs_os_ms(), had = 0, now;
	__atomic_add_fetch(&waiting, 1, __ATOMIC_SEQ_CST);
	while (!try_lock(number)) {
		if ((now = __atomic_load_n(&owner, __ATOMIC_RELAXED)) != had) {
			had = now;
			since = rs_os_ms();
		}
		if (!now)
			continue;
		rs_os_wait(&owner, now, false, LOOK_MS);
		uint32_t before = rs_os_ms();
		if (real_dladdr)
			real_dladdr((const void *)lock, &info); /* waits for as long as somebody has ld.so's */
		bool inside = __atomic_load_n(&past, __ATOMIC_RELAXED) == number;
		if (rs_os_ms() - before > LOOK_MS) {
			since = rs_os_ms();
			if (inside)
				__atomic_store_n(&past, 0, __ATOMIC_RELAXED);
		}
		if (rs_os_ms() - since > (inside ? INSIDE_MS : LOST_MS) && __atomic_compare_exchange_n(&owner, &now, number, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) {
			again = 0;
			break;
		}
	}
	__atomic_sub_fetch(&waiting, 1, __ATOMIC_SEQ_CST);
}

static bool is_mine(void)
{
	struct rs_thread *t = rs_thread_tls;
	return t && t->number && __atomic_load_n(&owner, __ATOMIC_RELAXED) == t->number;
}

static void acquire(void)
{
	struct rs_thread *t = rs_fd_thread();
	if (t)
		RS_EMIT(t, CHANNEL_ACQUIRE, channel_acquire, RS_CHANNEL_LOADER, RS_CHANNEL_OTHER, ~0u);
}

void rs_loader_behind(void)
{
	if (hooked)
		acquire();
}

static void ends(int status, void *arg)
{
	(void)status, (void)arg;
	acquire();
}

struct rs_loading rs_loader_enter(struct rs_thread *t, bool tell)
{
	struct rs_loading l = {hooked && rs_active && t && t->number && !rs_in_vfork(), false};
	if (l.held && is_mine()) {
		again++;
		l.outer = telling;
		telling = tell;
	} else if (l.held) {
		if (!try_lock(t->number))
			lock(t->number);
		telling = tell;
		adding = asked = asked_all = false;
	} else if (!tell && is_mine()) {
		telling = false;
	}
	/* exit runs it before ld.so's own handler, which runs finishers, and was registered before main. */
	static bool registered;
	if (l.held && tell && !__atomic_exchange_n(&registered, true, __ATOMIC_RELAXED))
		RS_REAL(on_exit)(ends, NULL);
	acquire();
	return l;
}

void rs_loader_leave(struct rs_loading l)
{
	struct rs_thread *t = rs_fd_thread();
	if (t)
		RS_EMIT(t, CHANNEL_RELEASE, channel_release, RS_CHANNEL_LOADER, RS_CHANNEL_OTHER, ~0u);
	if (!l.held || !is_mine()) /* taken away, or this is a forked child */
		return;
	if (again) {
		telling = l.outer;
		again--;
		return;
	}
	__atomic_store_n(&owner, 0, __ATOMIC_SEQ_CST);
	if (__atomic_load_n(&waiting, __ATOMIC_SEQ_CST))
		rs_os_wake(&owner, false);
}

bool rs_loader_asked(struct rs_loading l) { return l.held && asked && is_mine(); }
bool rs_loader_asked_all(struct rs_loading l) { return rs_loader_asked(l) && asked_all; }

void rs_loader_after_fork(void) { owner = again = waiting = 0; }

/* --- the hook ---------------------------------------------------------------------------------------------------------------------------- */

uintptr_t rs_loader_state(void)
{
	state = rs_real_find("_r_debug", "");
	real_dladdr = (int (*)(const void *, Dl_info *))(uintptr_t)rs_real_find("dladdr", "");
	return state ? state->r_brk : 0;
}

void rs_loader_hooked(void) { hooked = true; }

/* In ld.so, in place of what does nothing; so it leaves errno alone. Other namespaces have lists of their own: the program's stays as it is. */
void rs_loader_hook(void)
{
	if (!is_mine()) {
		const struct rs_thread *t = rs_thread_tls;
		if (t)
			__atomic_store_n(&past, t->number, __ATOMIC_RELAXED);
		return;
	}
	bool added = adding && state->r_state == RT_CONSISTENT;
	adding = state->r_state == RT_ADD;
	if (!added || !telling)
		return;
	rs_modules_come(rs_thread_tls);
	long r = rs_patch_ask(RS_PATCH_ASK_LOADING, 0);
	asked = true;
	asked_all = r == 0;
}
