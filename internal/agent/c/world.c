/* world.c: stops all threads of the process and lets them go. See world.h, and guard.h for the ground rules.
 *
 * A thread comes to its stop by a signal, wherever it is. The kernel writes its registers, with all of XSAVE, in a frame on an alternate stack of ours (guardstack.h; where a thread has none, on its own); our
 * handler changes to a stack of ours and waits there. Whoever runs in the handler has all signals blocked. The list of threads is the kernel's (/proc/self/task), read again until nobody new is in it: a
 * thread that is being made appears there before its maker comes to its stop. */
#include "world.h"
#include "guardrseq.h"
#include "guardsignal.h"
#include "guardsys.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <stddef.h>
#include <sys/stat.h>

#ifndef SA_RESTORER
#define SA_RESTORER 0x04000000u
#endif

enum { STACK = 28u << 10, ENTRY = (sizeof(struct rs_world_thread) + 63) & -64ul /* of it */ };
enum { FP_MAGIC = 0x46505853, FP_SOFTWARE = 464, FP_LEGACY = 512 };
#define UC_BYTES (offsetof(ucontext_t, uc_sigmask) + 8) /* the kernel's struct ucontext */

struct action { uintptr_t handler; uint64_t flags; uintptr_t restorer; uint64_t mask; };

static struct world {
	struct rs_world_thread *thread[RS_WORLD_THREADS];
	uint32_t count;
	uint32_t number;           /* of the stop: every signal carries it, so that a late one is known */
	uint32_t arrived;          /* futex: raised by each thread that comes to its stop */
	uint32_t round, named;     /* so many names the last list had */
	uint32_t pid, own;
	bool workers;              /* the last stop saw tasks that it does not wait for */
	bool leader_gone;          /* the first thread has ended while others live: /proc lists it as long as they do */
	int task;                  /* /proc/self/task */
	uint64_t stop_ns;
	struct action chain;       /* glibc's for our signal, as of when we last looked */
} *world;

/* --- on the thread that stops -------------------------------------------------------------------------------------------- */

extern char rs_world_handler[] RS_HIDDEN, rs_world_restorer[] RS_HIDDEN;

/* rsp at entry is the frame; all registers are the kernel's to give back. rs_world_arrive says on which stack to go on (rax) and as whom (rdx); rax 0: the signal is not ours; or it is, and comes too late (rdx is not 0): then
 * glibc's handler, which would make a system call to find that out, is not to see it. */
__asm__(".text\n.p2align 4\n.globl rs_world_handler\n.hidden rs_world_handler\n.type rs_world_handler, @function\n"
	"rs_world_handler:\n"
	"	movq %rsp, %r12\n	movq %rsi, %r13\n	movq %rdx, %rbx\n"
	"	movq %rsi, %rdi\n	movq %rdx, %rsi\n"
	"	subq $8, %rsp\n"
	"	call rs_world_arrive\n"
	"	testq %rax, %rax\n"
	"	jz 1f\n"
	"	movq %rax, %rsp\n"
	"	xorl %ebp, %ebp\n"
	"	movq %rdx, %rdi\n	movq %rbx, %rsi\n"
	"	call rs_world_stopped\n"
	"	movq %rax, %rsp\n"
	".globl rs_world_restorer\n.hidden rs_world_restorer\n"
	"rs_world_restorer:\n"
	"	movl $15, %eax\n	syscall\n	ud2\n"
	/* glibc's handler, with the frame as it was. */
	"1:	movq %r12, %rsp\n"
	"	testq %rdx, %rdx\n"
	"	jz 2f\n"
	"	addq $8, %rsp\n"
	"	jmp rs_world_restorer\n"
	"2:	movq %r13, %rsi\n	movq %rbx, %rdx\n	movl $33, %edi\n"
	"	testq %rdx, %rdx\n"
	"	jmp *rs_world_chain(%rip)\n"
	".size rs_world_handler, .-rs_world_handler\n");

static void nothing(void) {}
uintptr_t rs_world_chain RS_HIDDEN = (uintptr_t)nothing;

struct arrival { char *stack; struct rs_world_thread *t; };
struct arrival rs_world_arrive(const siginfo_t *info, ucontext_t *uc) RS_HIDDEN;
void *rs_world_stopped(struct rs_world_thread *t, ucontext_t *uc) RS_HIDDEN;

struct arrival rs_world_arrive(const siginfo_t *info, ucontext_t *uc)
{
	struct arrival none = {NULL, NULL}, late = {NULL, (struct rs_world_thread *)1};
	struct world *w = world;
	if (!w || info->si_code != SI_QUEUE || (uint32_t)info->si_pid != w->pid)
		return none;
	bool is_late = info->si_value.sival_int == RS_GUARD_SIGNAL_LATE;
	uint32_t tid = rs_os_tid(), wanted = (uint32_t)info->si_value.sival_int << 2 | RS_WORLD_WANTED, n = __atomic_load_n(&w->count, __ATOMIC_ACQUIRE);
	for (uint32_t i = 0; i < n; i++) {
		struct rs_world_thread *t = w->thread[i];
		if (__atomic_load_n(&t->tid, __ATOMIC_RELAXED) != tid)
			continue;
		if (!is_late && __atomic_load_n(&t->state, __ATOMIC_ACQUIRE) == wanted)
			return (struct arrival){t->stack, t};
		/* Else given up meanwhile, or the signal of an earlier stop. */
		if (!is_late || !rs_guard_signals_at_once(tid, uc))
			rs_guard_call_unbroken(&t->rest, uc);
		return late;
	}
	if (is_late)
		rs_guard_signals_at_once(tid, uc);
	return late;
}

static __attribute__((noreturn)) void end_thread(void)
{
	static const struct { const void *next; long offset; const void *pending; } no_robust = {&no_robust, 0, NULL};
	/* What the kernel would write on exit is memory that goes back to what it was: the thread's own word for joiners, its rseq area. A task whose rseq is not where glibc has it leaves it to the
	 * kernel, which writes there only before user code runs, and none does. */
	RS_SYS1(SYS_set_tid_address, 0);
	RS_SYS2(SYS_set_robust_list, &no_robust, 24);
	RS_SYS1(SYS_exit, 0);
	__builtin_unreachable();
}

/* A thread that did not come at once was called again. Its frame would come where the program goes on, on the program's stack, in the next epoch, whose re-execution has none. */
static void drop_again(uint32_t number)
{
	const uint64_t set = 1ull << (RS_WORLD_SIGNAL - 1);
	const struct timespec now = {0};
	siginfo_t info;
	while (!rs_sandboxed && RS_SYS4(SYS_rt_sigtimedwait, &set, &info, &now, 8) == RS_WORLD_SIGNAL)
		if (info.si_code != SI_QUEUE || (uint32_t)info.si_pid != world->pid || (uint32_t)info.si_value.sival_int != number) {
			RS_SYS4(SYS_rt_tgsigqueueinfo, world->pid, rs_os_tid(), RS_WORLD_SIGNAL, &info);
			return;
		}
}

/* rsp for rt_sigreturn: behind the first word of the frame from which the thread returns, which is where uc is. */
void *rs_world_stopped(struct rs_world_thread *t, ucontext_t *uc)
{
	struct world *w = world;
	uint32_t state = t->state, number = state >> 2;
	t->uc = uc;
	rs_guard_call_goes_on(&t->rest, uc);
	RS_SYS2(SYS_arch_prctl, 0x1003 /* ARCH_GET_FS */, &t->fs);
	if ((state & 3) != RS_WORLD_WANTED ||
		!__atomic_compare_exchange_n(&t->state, &state, number << 2 | RS_WORLD_STOPPED, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
		return uc;
	__atomic_fetch_add(&w->arrived, 1, __ATOMIC_SEQ_CST);
	RS_SYS3(SYS_futex, &w->arrived, FUTEX_WAKE_PRIVATE, 1);
	/* Of an unborn thread the number becomes that of later stops. */
	while (((state = __atomic_load_n(&t->state, __ATOMIC_ACQUIRE)) & 3) == RS_WORLD_STOPPED) {
		if (__atomic_load_n(&t->shed, __ATOMIC_ACQUIRE)) {
			RS_SYS4(RS_RSEQ, t->rseq, rs_rseq_bytes, RS_RSEQ_GIVE_UP, RS_RSEQ_SIGNATURE);
			__atomic_store_n(&t->shed, 0, __ATOMIC_RELEASE);
		}
		RS_SYS4(SYS_futex, &t->state, FUTEX_WAIT_PRIVATE, state, NULL);
	}
	number = state >> 2;
	if (t->order == RS_WORLD_EXIT)
		end_thread();
	if (t->order == RS_WORLD_BACK)
		uc = &t->out->uc;
	if (t->restore) {
		/* What is so already is refused, or does nothing. */
		RS_SYS1(SYS_set_tid_address, t->clear_tid);
		if (t->rseq)
			RS_SYS4(RS_RSEQ, t->rseq, rs_rseq_bytes, 0, RS_RSEQ_SIGNATURE);
		t->restore = false;
	}
	drop_again(number);
	rs_guard_call_again(&t->call, uc);
	if (t->order == RS_WORLD_BACK && rs_guard_mode() == RS_GUARD_REPLAY)
		rs_hook_skip(uc->uc_mcontext.gregs);
	/* From here on the next stop may begin, and write to the entry. Its signal comes when this frame is left: until then `out`, from which the kernel reads, and this stack stay. */
	__atomic_store_n(&t->state, number << 2 | RS_WORLD_RUNS, __ATOMIC_RELEASE);
	return uc;
}

/* --- the coordinator -------------------------------------------------------------------------------------------------------- */

struct rs_world_thread *rs_world_thread(uint32_t i) { return i < world->count ? world->thread[i] : NULL; }
uint64_t rs_world_stop_ns(void) { return world->stop_ns; }
bool rs_world_workers(void) { return world->workers; }

static struct rs_world_thread *known(uint32_t tid)
{
	for (uint32_t i = 0; i < world->count; i++)
		if (world->thread[i]->tid == tid)
			return world->thread[i];
	return NULL;
}

static struct rs_world_thread *fresh_for(uint32_t tid)
{
	struct rs_world_thread *free = NULL;
	for (uint32_t i = 0; i < world->count; i++)
		if (!world->thread[i]->tid && !world->thread[i]->frame_bytes)
			free = world->thread[i];
	if (!free) {
		if (world->count == RS_WORLD_THREADS)
			return NULL;
		/* The entry lies where its stack begins, so that both share a page. */
		char *p = rs_guard_map(RS_ARENA_OWN, STACK);
		struct rs_world_frame *frames = rs_guard_map(RS_ARENA_KEPT, 3 * RS_WORLD_FRAME);
		if (!p || !frames)
			return NULL;
		free = (struct rs_world_thread *)(p + STACK - ENTRY);
		free->stack = (char *)free;
		free->saved = frames;
		free->out = (struct rs_world_frame *)((char *)frames + RS_WORLD_FRAME);
		free->end = (struct rs_world_frame *)((char *)frames + 2 * RS_WORLD_FRAME);
		world->thread[world->count] = free;
		__atomic_store_n(&world->count, world->count + 1, __ATOMIC_RELEASE);
	}
	rs_os_clear(&free->call, sizeof free->call);
	free->unborn = free->shed = 0;
	free->restore = false;
	free->order = RS_WORLD_GO;
	free->state = RS_WORLD_RUNS;
	__atomic_store_n(&free->tid, tid, __ATOMIC_RELEASE);
	return free;
}

static long call(struct rs_world_thread *t)
{
	siginfo_t info;
	rs_os_clear(&info, sizeof info);
	info.si_signo = RS_WORLD_SIGNAL;
	info.si_code = SI_QUEUE;
	info.si_pid = (pid_t)world->pid;
	info.si_value.sival_int = (int)world->number;
	return RS_SYS4(SYS_rt_tgsigqueueinfo, world->pid, t->tid, RS_WORLD_SIGNAL, &info);
}

static void pause_briefly(void)
{
	struct timespec ts = {0, 20000};
	RS_SYS2(SYS_nanosleep, &ts, NULL);
}

static void start(struct rs_world_thread *t, uint32_t stopped)
{
	__atomic_compare_exchange_n(&t->state, &stopped, (stopped & ~3u) | RS_WORLD_GOING, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
	RS_SYS3(SYS_futex, &t->state, FUTEX_WAKE_PRIVATE, 1);
}

/* A task's line of proc_pid_stat(5), from its state on; NULL: there is none. *gone: nor is the task. */
static const char *stat_of(uint32_t tid, char text[static 256], bool *gone)
{
	char name[24], *p = rs_guard_digits(name, tid);
	rs_os_copy(p, "/stat", 6);
	long n = rs_guard_read(world->task, name, text, 256);
	*gone = n == -ENOENT || n == -ESRCH;
	for (; n > 0 && text[n - 1] != ')'; n--)
		;
	return n > 0 ? text + n + 1 : NULL;
}

/* A leader that has ended while others live stays in the list and takes signals, and never comes. */
bool rs_world_ended(uint32_t tid)
{
	char text[256];
	bool gone;
	const char *p = stat_of(tid, text, &gone);
	return gone || (p && (*p == 'Z' || *p == 'X'));
}

/* One that the kernel made for io_uring, or for another of its own ends (PF_IO_WORKER, PF_USER_WORKER of linux/sched.h): it is listed with the program's threads, never runs its code and takes no signal but SIGKILL. */
static bool is_worker(uint32_t tid)
{
	enum { BEFORE_FLAGS = 6, WORKER = 0x10 | 0x4000 };
	char text[256];
	bool gone;
	const char *p = stat_of(tid, text, &gone);
	for (int i = 0; p && i < BEFORE_FLAGS; i++) {
		while (*p && *p != ' ')
			p++;
		p += *p == ' ';
	}
	uint64_t flags = 0;
	for (; p && *p >= '0' && *p <= '9'; p++)
		flags = flags * 10 + (uint64_t)(*p - '0');
	return (flags & WORKER) != 0;
}

/* /proc names a thread. */
static long listed(void *arg, uint32_t tid)
{
	uint32_t *fresh = arg;
	world->named++;
	if (tid == world->own || (tid == world->pid && world->leader_gone))
		return 0;
	struct rs_world_thread *t = known(tid);
	if (!t && is_worker(tid)) {
		world->workers = true;
		return 0;
	}
	if (!t && !(t = fresh_for(tid)))
		return -ENOMEM;
	t->listed = world->round;
	uint32_t unborn = 1, state;
	if (__atomic_compare_exchange_n(&t->unborn, &unborn, 2, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE) || unborn == 2) {
		__atomic_store_n(&t->state, world->number << 2 | RS_WORLD_STOPPED, __ATOMIC_RELEASE);
		return 0;
	}
	state = __atomic_load_n(&t->state, __ATOMIC_ACQUIRE);
	if (state >> 2 == world->number)
		return 0;
	if ((state & 3) == RS_WORLD_STOPPED)
		start(t, state); /* born, by a thread that has stopped in between */
	while ((__atomic_load_n(&t->state, __ATOMIC_ACQUIRE) & 3) == RS_WORLD_GOING)
		pause_briefly();
	rs_guard_call_look(world->task, tid, &t->call);
	t->order = RS_WORLD_GO;
	__atomic_store_n(&t->state, world->number << 2 | RS_WORLD_WANTED, __ATOMIC_RELEASE);
	long r = call(t);
	++*fresh;
	return r == -ESRCH ? 0 : r;
}

static bool wanted(const struct rs_world_thread *t) { return t->tid && (__atomic_load_n(&t->state, __ATOMIC_ACQUIRE) & 3) == RS_WORLD_WANTED; }


static void forget(struct rs_world_thread *t)
{
	t->state = RS_WORLD_RUNS;
	__atomic_store_n(&t->tid, 0, __ATOMIC_RELEASE);
}

/* How many have not come. look: ask of each whether it still can. */
static uint32_t missing(bool look)
{
	uint32_t n = 0;
	for (uint32_t i = 0; i < world->count; i++) {
		struct rs_world_thread *t = world->thread[i];
		if (!wanted(t))
			continue;
		if (look && rs_world_ended(t->tid)) {
			world->leader_gone |= t->tid == world->pid;
			forget(t);
		} else
			n++;
	}
	return n;
}

static void wait_arrival(uint32_t seen)
{
	struct timespec ts = {0, 1000000};
	RS_SYS4(SYS_futex, &world->arrived, FUTEX_WAIT_PRIVATE, seen, &ts);
}

/* glibc sets its own action when the program makes its first thread. */
long rs_world_own_action(void)
{
	struct action now, ours = {(uintptr_t)rs_world_handler, SA_SIGINFO | SA_RESTART | SA_ONSTACK | SA_RESTORER, (uintptr_t)rs_world_restorer, ~0ull};
	long r = RS_SYS4(SYS_rt_sigaction, RS_WORLD_SIGNAL, NULL, &now, 8);
	if (r < 0 || now.handler == ours.handler)
		return r;
	rs_world_chain = now.handler > 1 ? now.handler : (uintptr_t)nothing;
	return RS_SYS4(SYS_rt_sigaction, RS_WORLD_SIGNAL, &ours, NULL, 8);
}

/* While threads end the kernel's list may leave out one that lives (one of 30,000); the number of the directory's links is that of threads. */
static bool all_named(void)
{
	struct stat s;
	return RS_SYS2(SYS_fstat, world->task, &s) < 0 || s.st_nlink <= 2ull + world->named;
}

/* Called all who are there, and waited for them: 0 when a list has nobody new. */
static long gather(uint64_t until)
{
	enum { ROUNDS = 64, LINKED = 8 /* not each /proc counts so */ };
	for (uint32_t rounds = 0;; rounds++) {
		uint32_t fresh = 0;
		world->round++;
		world->named = 0;
		long r = rs_guard_numbers(world->task, listed, &fresh);
		if (r < 0)
			return r;
		for (uint32_t i = 0; i < world->count; i++)
			if (world->thread[i]->tid && world->thread[i]->listed != world->round && rs_world_ended(world->thread[i]->tid))
				forget(world->thread[i]);
		uint32_t seen = __atomic_load_n(&world->arrived, __ATOMIC_SEQ_CST);
		for (uint64_t looked = rs_os_now_ns(); missing(false); seen = __atomic_load_n(&world->arrived, __ATOMIC_SEQ_CST)) {
			if (missing(false))
				wait_arrival(seen);
			uint64_t now = rs_os_now_ns();
			if (now - looked > 5000000) {
				looked = now;
				/* glibc's handler may have been put over ours in between, and taken the signal. */
				r = rs_world_own_action();
				if (r == 0 && missing(true) && now > until)
					r = -EBUSY;
				for (uint32_t i = 0; r == 0 && i < world->count; i++)
					if (wanted(world->thread[i]) && (r = call(world->thread[i])) == -ESRCH)
						r = 0;
				if (r < 0)
					return r;
			}
		}
		if (!fresh && (all_named() || rounds > LINKED))
			return 0;
		if (rounds > ROUNDS && rs_os_now_ns() > until)
			return -EBUSY; /* some have ended, and a debugger keeps them in the list */
	}
}

long rs_world_stop(uint32_t ms)
{
	world->number = (world->number + 1) & (UINT32_MAX >> 2);
	world->workers = false;
	long r = rs_world_own_action();
	uint64_t begun = rs_os_now_ns();
	if (r == 0)
		r = gather(begun + ms * 1000000ull);
	world->stop_ns = rs_os_now_ns() - begun;
	if (r < 0)
		rs_world_go();
	return r;
}

void rs_world_go(void)
{
	for (uint32_t i = 0; i < world->count; i++) {
		struct rs_world_thread *t = world->thread[i];
		if (!t->tid)
			continue;
		/* Those before it in the list may have let it go by now: 1 is theirs to change. */
		uint32_t unborn = 2;
		if (__atomic_compare_exchange_n(&t->unborn, &unborn, 1, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE) || unborn == 1)
			continue;
		uint32_t wanted_now = world->number << 2 | RS_WORLD_WANTED, stopped = world->number << 2 | RS_WORLD_STOPPED;
		__atomic_compare_exchange_n(&t->state, &wanted_now, world->number << 2 | RS_WORLD_RUNS, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
		if (__atomic_compare_exchange_n(&t->state, &stopped, world->number << 2 | RS_WORLD_GOING, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
			RS_SYS3(SYS_futex, &t->state, FUTEX_WAKE_PRIVATE, 1);
	}
}

long rs_world_end_ordered(void)
{
	bool any = false;
	for (uint32_t i = 0; i < world->count; i++) {
		struct rs_world_thread *t = world->thread[i];
		if (!t->tid || t->order != RS_WORLD_EXIT)
			continue;
		any = true;
		t->unborn = 0;
		t->restore = false;
		__atomic_store_n(&t->state, world->number << 2 | RS_WORLD_RUNS, __ATOMIC_RELEASE);
		RS_SYS3(SYS_futex, &t->state, FUTEX_WAKE_PRIVATE, 1);
	}
	for (uint32_t i = 0; any && i < world->count; i++) {
		struct rs_world_thread *t = world->thread[i];
		if (!t->tid || t->order != RS_WORLD_EXIT)
			continue;
		while (!rs_world_ended(t->tid))
			pause_briefly();
		forget(t);
	}
	return 0;
}

static long frame_bytes(const ucontext_t *uc)
{
	const char *fp = (const char *)uc->uc_mcontext.fpregs;
	if (!fp)
		return 0;
	const uint32_t *software = (const uint32_t *)(fp + FP_SOFTWARE);
	return software[0] == FP_MAGIC ? software[1] : FP_LEGACY;
}

/* The XSAVE area is aligned to 64 bytes. */
static char *area(struct rs_world_frame *f) { return (char *)(((uintptr_t)(f + 1) + 63) & -64ul); }

static void copy(struct rs_world_frame *to, const ucontext_t *uc, uint64_t bytes)
{
	rs_os_copy(&to->uc, uc, UC_BYTES);
	if (bytes > 1)
		rs_os_copy(area(to), uc->uc_mcontext.fpregs, bytes);
	to->uc.uc_mcontext.fpregs = bytes > 1 ? (void *)area(to) : NULL;
}

ucontext_t *rs_world_frame_of(struct rs_world_thread *t) { return t->order == RS_WORLD_BACK ? &t->out->uc : t->uc; }

static long keep(struct rs_world_thread *t, struct rs_world_frame *to, uint64_t *bytes, struct rs_guard_call *call, uint64_t *when)
{
	const ucontext_t *uc = rs_world_frame_of(t);
	long n = frame_bytes(uc);
	if (n > (long)(RS_WORLD_FRAME - sizeof *to - 64))
		return -E2BIG;
	*bytes = n ? (uint64_t)n : 1;
	copy(to, uc, *bytes);
	rs_os_copy(call, &t->call, sizeof t->call);
	*when = rs_os_now_ns();
	return 0;
}

long rs_world_keep(struct rs_world_thread *t) { return keep(t, t->saved, &t->frame_bytes, &t->saved_call, &t->kept_ns); }
long rs_world_keep_end(struct rs_world_thread *t) { return keep(t, t->end, &t->end_bytes, &t->end_call, &t->end_ns); }

/* The mask while an epoch is executed again: all but ours and those of faults. */
#define BIT(signal) (1ull << ((signal) - 1))
#define FAULTS (BIT(SIGSEGV) | BIT(SIGBUS) | BIT(SIGFPE) | BIT(SIGILL) | BIT(SIGTRAP) | BIT(SIGSYS))
#define IN_EXCURSION (~(BIT(RS_WORLD_SIGNAL) | FAULTS))

void rs_world_back(struct rs_world_thread *t)
{
	copy(t->out, &t->saved->uc, t->frame_bytes);
	/* Faults are open whatever the program has blocked (glibc blocks all where threads are made and end), as the call that opens them is not made again: one that is blocked the kernel ends the process by (guardfault.c). And a thread that stood before its first
	 * steps would find that its creator had SIGTRAP blocked (trap.c). */
	if (rs_guard_sys_follows())
		t->out->uc.uc_sigmask.__val[0] = (t->out->uc.uc_sigmask.__val[0] | IN_EXCURSION) & ~FAULTS;
	rs_os_copy(&t->call, &t->saved_call, sizeof t->call);
	t->call.since += rs_os_now_ns() - t->kept_ns; /* as much is left as there was */
	t->order = RS_WORLD_BACK;
}

void rs_world_forward(struct rs_world_thread *t)
{
	copy(t->out, &t->end->uc, t->end_bytes);
	rs_os_copy(&t->call, &t->end_call, sizeof t->call);
	t->call.since += rs_os_now_ns() - t->end_ns;
	t->order = RS_WORLD_BACK;
	t->unborn = 0;
}

struct rs_world_thread *rs_world_of(uint32_t tid)
{
	for (uint32_t i = 0; i < world->count; i++)
		if (world->thread[i]->tid == tid)
			return world->thread[i];
	return NULL;
}

void rs_world_shed(struct rs_world_thread *t)
{
	__atomic_store_n(&t->shed, 1, __ATOMIC_RELEASE);
	while (__atomic_load_n(&t->shed, __ATOMIC_ACQUIRE)) {
		RS_SYS3(SYS_futex, &t->state, FUTEX_WAKE_PRIVATE, 1);
		if (__atomic_load_n(&t->shed, __ATOMIC_ACQUIRE))
			pause_briefly();
	}
}

void rs_world_unborn(struct rs_world_thread *t, const greg_t *gregs, uint32_t mxcsr, uint16_t control)
{
	enum { MXCSR_AT = 24, REGISTERS_AT = 32, STATES_AT = 512, X87_SSE = 3 };
	/* A later rollback finds no frame on the thread's stack, but the one that was made before. */
	if (!t->unborn) {
		long n = frame_bytes(t->uc);
		copy(t->out, t->uc, n > 0 && n <= (long)(RS_WORLD_FRAME - sizeof *t->out - 64) ? (uint64_t)n : 1);
	}
	ucontext_t *uc = &t->out->uc;
	char *fp = (char *)uc->uc_mcontext.fpregs;
	greg_t selectors = uc->uc_mcontext.gregs[REG_CSGSFS];
	rs_os_copy(uc->uc_mcontext.gregs, gregs, sizeof uc->uc_mcontext.gregs);
	uc->uc_mcontext.gregs[REG_CSGSFS] = selectors;
	if (fp) {
		rs_os_clear(fp, MXCSR_AT);
		rs_os_copy(fp, &control, sizeof control);
		rs_os_copy(fp + MXCSR_AT, &mxcsr, sizeof mxcsr);
		rs_os_clear(fp + REGISTERS_AT, FP_SOFTWARE - REGISTERS_AT - 48);
		if (*(const uint32_t *)(fp + FP_SOFTWARE) == FP_MAGIC)
			*(uint64_t *)(fp + STATES_AT) = X87_SSE;
	}
	uc->uc_sigmask.__val[0] = IN_EXCURSION;
	uc->uc_stack = (stack_t){.ss_flags = SS_DISABLE};
	rs_os_clear(&t->call, sizeof t->call);
	t->order = RS_WORLD_BACK;
	t->unborn = 1;
}

void rs_world_born(uint32_t tid)
{
	struct rs_world_thread *t = rs_world_of(tid);
	for (uint32_t one = 1; t; one = 1) {
		uint32_t state = __atomic_load_n(&t->state, __ATOMIC_ACQUIRE);
		if (__atomic_compare_exchange_n(&t->unborn, &one, 0, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
			start(t, state);
			return;
		}
		if (one == 0)
			return;
		RS_SYS0(SYS_sched_yield); /* a stop has begun */
	}
}

bool rs_world_lives(uint32_t tid) { return !(tid == world->pid && world->leader_gone) && RS_SYS3(SYS_tgkill, world->pid, tid, 0) == 0; }

long rs_world_begin(int task)
{
	struct world *w = rs_guard_map(RS_ARENA_OWN, sizeof *w);
	if (!w)
		return -ENOMEM;
	w->pid = rs_os_pid();
	w->own = rs_os_tid();
	w->task = task;
	__atomic_store_n(&world, w, __ATOMIC_RELEASE);
	return 0;
}
