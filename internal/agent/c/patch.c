/* patch.c: the engine's hands in the process: asks it, maps memory, makes processors see changed code. What trampolines are to the program: trampoline.c.
 *
 * Nothing here plans. A request is a conversation in a page of shared memory (wire.PatchPage): the thread that asks does what it is told until there is no more to
 * do. One thread at a time; all signals are blocked meanwhile, so that a handler never meets the lock of its own thread. Text and trampolines are private memory of the process,
 * so a forked child has both as they were; so are the tables here. Where trampolines share frames
 * (patch/frame.go) the child shares them with its parent, which then never uses their memory again. */
#include "patch.h"
#include "access.h"
#include "calls.h"
#include "cover.h"
#include "guardlog.h"
#include "guardrace.h"
#include "loader.h"
#include "pass.h"
#include "proc.h"
#include "share.h"
#include "uring.h"
#include <cpuid.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/membarrier.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif

bool rs_patching;
uint32_t rs_patch_changes;
__thread uint64_t rs_patch_saves[RS_PATCH_SAVES];
#define JUDGE(i) [RS_PATCH_THREAD_JUDGE + (i)] = RS_FULL_ENTRY(i)
#define OWN(i) [RS_PATCH_THREAD_OWN + (i)] = RS_OWN_ENTRY(i)
static const struct rs_race_frames nobodys = {rs_own_quiet, 0, 0};
#define TELL(i) [RS_PATCH_THREAD_TELL + (i)] = RS_TELL_ENTRY(i)
__thread uint64_t rs_patch_pointers[RS_PATCH_POINTERS] = {TELL(0), TELL(1), TELL(2), TELL(3), TELL(4), TELL(5), TELL(6), TELL(7), TELL(8), TELL(9), TELL(10),
	[RS_PATCH_THREAD_OWN_WORD] = (uintptr_t)&nobodys, OWN(0), OWN(1), OWN(2), OWN(3), OWN(4), OWN(5), OWN(6), OWN(7), OWN(8), OWN(9), OWN(10), OWN(11), OWN(12), OWN(13), OWN(14), OWN(15),
	JUDGE(0), JUDGE(1), JUDGE(2), JUDGE(3), JUDGE(4), JUDGE(5), JUDGE(6), JUDGE(7), JUDGE(8), JUDGE(9), JUDGE(10), JUDGE(11), JUDGE(12), JUDGE(13), JUDGE(14)};
_Static_assert(RS_PATCH_THREAD_TELL + RS_TOLD_TABLES + 1 == RS_PATCH_THREAD_JUDGE, "an entry for each table, and one");
_Static_assert(RS_PATCH_THREAD_JUDGE + 3 * RS_FULL_SIZES == RS_PATCH_THREAD_OWN, "an entry for each size, read, written, and both");
_Static_assert(RS_PATCH_THREAD_OWN + RS_OWN_ENTRIES == RS_PATCH_THREAD_OWN_WORD && RS_PATCH_THREAD_OWN_WORD + 1 == RS_PATCH_THREAD_DEFERRED && RS_PATCH_THREAD_DEFERRED + 4 == RS_PATCH_POINTERS, "and one");

_Static_assert(offsetof(struct rs_race_frames, told) == 16, "recipe.TellGate");
void rs_own_by(const struct rs_race_frames *word) { rs_patch_pointers[RS_PATCH_THREAD_OWN_WORD] = (uintptr_t)(word ? word : &nobodys); }

static struct rs_patch_page *page; /* NULL: not patched, or nobody answers any more */
static struct rs_lock lock;
static bool synced; /* registered for membarrier */
static uintptr_t frames; /* the file of trampolines, all of it: what is mapped at their addresses are more mappings of parts of it */

/* --- debuggers ----------------------------------------------------------------------------------------------------------------- */

/* gdb's interface for code that is made at run time (gdb's manual, 'JIT Compilation Interface'): it finds both by their names, in the file's table of symbols; they are not
 * exported, since a program may have some of its own. */
struct jit_entry { struct jit_entry *next, *previous; uintptr_t file; uint64_t bytes; };
struct jit_descriptor { uint32_t version, action; struct jit_entry *relevant, *first; };
enum { JIT_NONE, JIT_REGISTER, JIT_UNREGISTER };
extern struct jit_descriptor __jit_debug_descriptor RS_HIDDEN;
struct jit_descriptor __jit_debug_descriptor = {.version = 1};
void __jit_debug_register_code(void) RS_HIDDEN;
__attribute__((noinline)) void __jit_debug_register_code(void) { __asm__ volatile("" ::: "memory"); }

static struct jit_entry jit[2]; /* by turns, so that the list always leads to one that is whole */
static bool jit_changed;

static void describe(uintptr_t file, uint64_t bytes)
{
	struct jit_entry *e = __jit_debug_descriptor.first == &jit[0] ? &jit[1] : &jit[0];
	*e = (struct jit_entry){.file = file, .bytes = bytes};
	__atomic_store_n(&__jit_debug_descriptor.first, e, __ATOMIC_RELEASE);
	jit_changed = true;
}

/* A debugger has int3 there, which must not be blocked: the kernel would take SIGTRAP's action away. So nothing is locked; of two threads that come here at once the debugger may hear
 * of one only. */
static void tell_debugger(uint64_t mask)
{
	struct jit_descriptor *d = &__jit_debug_descriptor;
	if (mask & 1ull << (SIGTRAP - 1) || !__atomic_exchange_n(&jit_changed, false, __ATOMIC_RELAXED))
		return;
	d->relevant = d->first == &jit[0] ? &jit[1] : &jit[0];
	d->action = JIT_UNREGISTER;
	if (d->relevant->file)
		__jit_debug_register_code();
	d->relevant = d->first;
	d->action = JIT_REGISTER;
	__jit_debug_register_code();
	d->action = JIT_NONE;
}

/* --- requests ------------------------------------------------------------------------------------------------------------------ */

/* What C functions may change of the processor's extended state, for recipes that call some: all but protection keys, which calls leave alone, and tiles,
 * which the agent has no code for. Intel SDM vol. 1, 13.4. */
static void describe_xsave(struct rs_patch_page *p)
{
	unsigned a, b, c, d;
	if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE))
		return;
	__asm__ volatile("xgetbv" : "=a"(a), "=d"(d) : "c"(0));
	uint64_t mask = ((uint64_t)d << 32 | a) & ~(1ull << 9 | 3ull << 17);
	unsigned size = 576, end = 576, features;
	if (!__get_cpuid_count(0xd, 1, &features, &b, &c, &d))
		return;
	for (unsigned i = 2; i < 63; i++) {
		if (!(mask >> i & 1) || !__get_cpuid_count(0xd, i, &a, &b, &c, &d))
			continue;
		size = (c & 2 ? (size + 63) & ~63u : size) + a;
		end = b + a > end ? b + a : end;
	}
	p->xsave_mask = mask;
	p->xsave_compact = features >> 1 & 1;
	p->xsave_size = p->xsave_compact ? size : end;
	rs_xsave = (struct rs_xsave){mask, p->xsave_size, p->xsave_compact};
}

/* Far below where the kernel puts libraries: within their reach each address may be the only one at which a trampoline can lie. The distance keeps what is random about the place. */
#define FRAMES_AWAY (1ul << 40)

/* A security module may refuse memory that is shared and executable. */
static void map_frames(struct rs_patch_page *p, int fd)
{
	struct stat st;
	if (RS_SYS2(SYS_fstat, fd, &st) < 0 || st.st_size <= (long)sizeof *p)
		return;
	size_t bytes = (size_t)st.st_size - sizeof *p;
	uintptr_t near = (uintptr_t)p, wish = near > 2 * FRAMES_AWAY ? (near - FRAMES_AWAY) & -RS_PAGE : 0;
	long at = RS_SYS6(SYS_mmap, wish, bytes, PROT_READ | PROT_EXEC, MAP_SHARED | MAP_NORESERVE, fd, sizeof *p);
	if (at < 0)
		return;
	RS_SYS3(SYS_madvise, at, bytes, MADV_DONTDUMP);
	frames = (uintptr_t)at;
	p->frames = bytes / RS_PAGE;
}

/* In place of pages that map_at has mapped, which are ours: nobody can come in between. mremap(2): an old size of 0 makes another mapping of shared memory. */
static long map_frame(uintptr_t at, uint64_t frame, uint64_t count)
{
	if (!frames || frame >= page->frames || count > page->frames - frame)
		return -EINVAL;
	/* Not in core dumps, as the file is not: each frame is at many addresses. */
	long r = RS_SYS5(SYS_mremap, frames + frame * RS_PAGE, 0, count * RS_PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, at);
	return r < 0 ? r : 0;
}

/* Trampolines take many times as much address space as memory. A program that has little (ulimit -v) would miss it later, where natively it does not. */
#define SPACE_OF_FILE 16

static bool cramped(int fd)
{
	struct stat st;
	struct rlimit64 as;
	return RS_SYS2(SYS_fstat, fd, &st) == 0 && RS_SYS4(SYS_prlimit64, 0, RLIMIT_AS, 0, &as) == 0 && as.rlim_cur < SPACE_OF_FILE * (uint64_t)st.st_size;
}

static bool no_room, others;
static int refused; /* errno: nobody could be asked */

void rs_patch_say(struct rs_thread *t)
{
	if ((no_room || others || refused) && !rs_config.guard) /* what is recorded has a notice of its own */
		rs_notice(t, RS_NOTICE_NO_PATCHES, refused, others);
}

void rs_patch_open(int sock)
{
	int fds[2];
	long r = rs_session_patch(sock, fds);
	if (r < 0)
		return;
	if (cramped(fds[0])) {
		RS_SYS1(SYS_close, fds[0]);
		RS_SYS1(SYS_close, fds[1]);
		no_room = true;
		rs_os_say("its limit on address space (ulimit -v) leaves no room to patch its code: it runs as it is", 0);
		return;
	}
	long p = RS_SYS6(SYS_mmap, 0, sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED, fds[0], 0);
	struct stat st;
	long bytes = RS_SYS2(SYS_fstat, fds[1], &st) == 0 ? st.st_size : 0;
	long shared = bytes > 0 ? rs_vm_map_shared(p, bytes, fds[1]) : -EINVAL;
	if (p > 0)
		map_frames((void *)p, fds[0]);
	RS_SYS1(SYS_close, fds[0]);
	RS_SYS1(SYS_close, fds[1]);
	if (shared > 0)
		RS_SYS3(SYS_madvise, shared, bytes, MADV_DONTDUMP);
	if (p < 0)
		return;
	RS_SYS3(SYS_madvise, p, sizeof *page, MADV_DONTDUMP);
	struct rs_patch_page *q = (void *)p;
	uintptr_t fs;
	__asm__("mov %%fs:0, %0" : "=r"(fs));
	/* cppcheck-suppress nullPointerRedundantCheck ; mmap does not return 0 */
	q->save_offset = (int32_t)((intptr_t)rs_patch_saves - (intptr_t)fs);
	q->thread_offset = (int32_t)((intptr_t)rs_patch_pointers - (intptr_t)fs);
	if (shared > 0) {
		q->shared_at = (uint64_t)shared;
		q->shared_bytes = (uint64_t)bytes;
	}
	describe_xsave(q);
	q->function[RS_PATCH_FUNC_SYSCALL_HOOK] = (uintptr_t)rs_syscall_hook;
	q->function[RS_PATCH_FUNC_VDSO_HOOK] = (uintptr_t)rs_vdso_hook;
	q->function[RS_PATCH_FUNC_LOCK_HOOK] = (uintptr_t)rs_lock_hook;
	q->function[RS_PATCH_FUNC_FUTEX_HOOK] = (uintptr_t)rs_futex_hook;
	q->function[RS_PATCH_FUNC_FUTEX_OVER_HOOK] = (uintptr_t)rs_futex_over_hook;
	q->function[RS_PATCH_FUNC_WORDS_ALONE] = (uint64_t)((intptr_t)&rs_guard_words_alone - (intptr_t)fs);
	q->function[RS_PATCH_FUNC_QUEUES_ALONE] = (uint64_t)((intptr_t)&rs_guard_queues_alone - (intptr_t)fs);
	q->function[RS_PATCH_FUNC_CLOCK_HOOK] = (uintptr_t)rs_clock_hook;
	q->function[RS_PATCH_FUNC_CLOCK_PROCESSOR_HOOK] = (uintptr_t)rs_clock_processor_hook;
	q->function[RS_PATCH_FUNC_SYSCALL] = (uintptr_t)syscall; /* ours, in nearly all programs */
	q->function[RS_PATCH_FUNC_RUNS] = (uintptr_t)rs_patch_runs;
	q->function[RS_PATCH_FUNC_ACCESS] = (uintptr_t)rs_access;
	page = q;
}

/* Planning may take long. A signal whose default action ends or stops the process need not wait for it: none of the program's code runs for that. */
static void take_defaults(uint64_t mask)
{
	uint64_t pending = 0;
	RS_SYS2(SYS_rt_sigpending, &pending, 8);
	pending &= ~mask;
	for (int sig = 1; pending; sig++, pending >>= 1) {
		struct { void *handler; uint64_t flags; void *restorer; uint64_t mask; } now;
		if (!(pending & 1) || RS_SYS4(SYS_rt_sigaction, sig, 0, &now, 8) < 0 || now.handler != SIG_DFL)
			continue;
		rs_os_signals(~(1ull << (sig - 1)));
		rs_os_no_signals();
	}
}

static uint64_t program_mask; /* of the thread that asks, as the program has it */

/* How long a fault waits for its instruction to be patched. It can do without; the next one may find it done. */
#define SITE_MS 100

/* Not even that: who asks for soon goes on without the answer, unless it comes at once. But where that was so again and again it waits for a moment, so that there is an end to asking. */
#define BRIEF UINT_MAX
#define UNHEARD 8
#define SOON_MS 2
static unsigned unheard;

/* An answer that somebody did not wait for is still to come; until then nobody can ask. */
static bool late;

/* What page->sleeping and page->waiting say. */
enum { IN_KERNEL = 1, AT_WORK = 2 };

/* What page->turn says. */
enum { OPEN, LEFT, TAKEN };

/* From when Go changes the text on, nobody leaves. */
static bool leave(void)
{
	uint32_t turn = OPEN;
	return __atomic_compare_exchange_n(&page->turn, &turn, LEFT, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST) || turn == LEFT;
}

/* How often the answer is looked for before the thread sleeps: to be woken takes longer than most answers. Where Go was about to look at the page and does not, it may want this processor. */
#define LOOKS 1000
#define LOOKS_UNSEEN 60

/* 0 when answered; -ESRCH: nobody is there any more; -ETIMEDOUT: not within ms (0: for ever; BRIEF: nobody who sleeps is waited for). */
static long answered(uint32_t asked, unsigned ms, bool woken)
{
	for (int i = 0; i < LOOKS && !(woken && ms == BRIEF); i++) {
		if (__atomic_load_n(&page->answered, __ATOMIC_ACQUIRE) == asked)
			return 0;
		if (!woken && i >= LOOKS_UNSEEN && __atomic_load_n(&page->sleeping, __ATOMIC_RELAXED) != AT_WORK)
			break;
		__builtin_ia32_pause();
	}
	if (ms == BRIEF) {
		if (__atomic_load_n(&page->answered, __ATOMIC_ACQUIRE) != asked && leave())
			return -ETIMEDOUT;
		ms = 0;
	}
	uint32_t beat = 0, since = 0, seen, began = ms ? rs_os_ms() : 0;
	while ((seen = __atomic_load_n(&page->answered, __ATOMIC_ACQUIRE)) != asked) {
		if (rs_go_gone(&beat, &since))
			return -ESRCH;
		if (ms && rs_os_ms() - began > ms) {
			if (leave())
				return -ETIMEDOUT;
			ms = 0;
		}
		__atomic_store_n(&page->waiting, IN_KERNEL, __ATOMIC_SEQ_CST);
		if (__atomic_load_n(&page->answered, __ATOMIC_SEQ_CST) == seen)
			rs_os_wait(&page->answered, seen, true, ms ? ms : 100);
		__atomic_store_n(&page->waiting, 0, __ATOMIC_RELAXED);
		if (!ms)
			take_defaults(program_mask);
	}
	return 0;
}

static long post(unsigned request, unsigned ms)
{
	page->request = request;
	__atomic_store_n(&page->waiting, 0, __ATOMIC_RELAXED);
	uint32_t asked = __atomic_add_fetch(&page->asked, 1, __ATOMIC_SEQ_CST);
	bool woken = __atomic_load_n(&page->sleeping, __ATOMIC_SEQ_CST) == IN_KERNEL;
	if (woken)
		rs_os_wake(&page->asked, true);
	return answered(asked, ms, woken);
}

static long map_at(uintptr_t at, size_t bytes)
{
	long p = RS_SYS6(SYS_mmap, at, bytes, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
	if (p < 0)
		return p;
	if ((uintptr_t)p != at) { /* a kernel that does not know the flag takes it for a wish */
		RS_SYS2(SYS_munmap, p, bytes);
		return -EEXIST;
	}
	RS_SYS3(SYS_madvise, at, bytes, MADV_NOHUGEPAGE); /* mostly holes */
	return 0;
}

/* Every thread of the process, on whichever processor, sees the code as it is now. membarrier(2). */
static long sync_core(void)
{
	if (!synced) {
		long r = RS_SYS3(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_SYNC_CORE, 0, 0);
		if (r < 0)
			return r;
		synced = true;
	}
	return RS_SYS3(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED_SYNC_CORE, 0, 0);
}

struct writing { const void *from; uintptr_t to; size_t bytes; long error; };

static void write_aside(void *arg)
{
	struct writing *w = arg;
	long fd = RS_SYS4(SYS_openat, AT_FDCWD, "/proc/self/mem", O_RDWR | O_CLOEXEC, 0);
	if (fd < 0) {
		w->error = fd;
		return;
	}
	while (w->error == 0 && w->bytes) {
		long n = RS_SYS4(SYS_pwrite64, fd, w->from, w->bytes, w->to);
		if (n <= 0) {
			w->error = n ? n : -EIO;
			break;
		}
		w->from = (const char *)w->from + n;
		w->to += (uintptr_t)n;
		w->bytes -= (size_t)n;
	}
	RS_SYS1(SYS_close, fd);
}

long rs_patch_write(uintptr_t at, const void *bytes, size_t n)
{
	struct writing w = {bytes, at, n, 0};
	rs_os_apart(write_aside, &w);
	if (w.error == 0)
		return 0;
	/* Where there is no /proc. */
	uintptr_t lo = at & -RS_PAGE, hi = (at + n + RS_PAGE - 1) & -RS_PAGE;
	long r = RS_SYS3(SYS_mprotect, lo, hi - lo, PROT_READ | PROT_WRITE | PROT_EXEC);
	if (r < 0)
		return r;
	rs_os_copy((void *)at, bytes, n);
	RS_SYS3(SYS_mprotect, lo, hi - lo, PROT_READ | PROT_EXEC);
	return 0;
}

/* Who reads the index may be in a handler, and preempted for long; then the run stays for another time. Trampolines (arg) nobody reads. */
static long unmap_run(uintptr_t at, size_t bytes)
{
	for (int i = 0; __atomic_load_n(&rs_patch_readers, __ATOMIC_SEQ_CST); i++) {
		if (i == 1000)
			return -EBUSY;
		RS_SYS0(SYS_sched_yield);
	}
	return RS_SYS2(SYS_munmap, at, bytes);
}

/* Where the coordinator of `guard` has memory for tables: no place that the program was given in the recording. */
#define STANDING_PLACE 0x380000000000ul
static uint64_t standing_bytes;
static bool standing;

static long do_op(struct rs_patch_op *op)
{
	switch (op->kind) {
	case RS_PATCH_DO_MAP:
		return map_at(op->address, op->value);
	case RS_PATCH_DO_UNMAP:
		return op->arg ? RS_SYS2(SYS_munmap, op->address, op->value) : unmap_run(op->address, op->value);
	case RS_PATCH_DO_SYNC:
		return sync_core();
	case RS_PATCH_DO_TRAP:
		return rs_trap_set(op->address, op->value);
	case RS_PATCH_DO_HANDLER:
		return rs_trap_begin();
	case RS_PATCH_DO_WRITE: {
		struct writing w = {page->bytes + op->arg % RS_PATCH_BYTES, op->address, op->value, 0};
		if (op->value > RS_PATCH_BYTES - op->arg % RS_PATCH_BYTES)
			return -EINVAL;
		rs_os_apart(write_aside, &w);
		return w.error;
	}
	case RS_PATCH_DO_RUN:
		if (op->arg >= RS_PATCH_RUNS)
			return -EINVAL;
		__atomic_store_n(&rs_patch_runs[op->arg], (const void *)(uintptr_t)op->address, __ATOMIC_SEQ_CST);
		return 0;
	case RS_PATCH_DO_STORE:
		if (op->arg > RS_PATCH_BYTES || op->value > RS_PATCH_BYTES - op->arg)
			return -EINVAL;
		rs_os_copy((void *)(uintptr_t)op->address, page->bytes + op->arg, op->value);
		return 0;
	case RS_PATCH_DO_RESERVE: {
		/* Each its own: the kernel puts what finds its place taken where the program's next would come to be. */
		uintptr_t wish = standing ? STANDING_PLACE + standing_bytes : 0;
		standing_bytes += (op->value + RS_PAGE - 1) & -(uint64_t)RS_PAGE;
		long p = RS_SYS6(SYS_mmap, wish, op->value, op->arg ? PROT_READ | PROT_WRITE : PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (p < 0)
			return p;
		op->address = (uint64_t)p;
		return 0;
	}
	case RS_PATCH_DO_FRAME:
		return map_frame(op->address, op->value, op->arg);
	case RS_PATCH_DO_DEBUGGER:
		describe(op->address, op->value);
		return 0;
	case RS_PATCH_DO_HEAP:
		return rs_vm_move_heap(op->address, op->value);
	case RS_PATCH_DO_COVER:
		if (op->arg > RS_PATCH_BYTES - sizeof(struct rs_patch_cover))
			return -EINVAL;
		return rs_cover(op->address, op->value, page->bytes + op->arg, RS_PATCH_BYTES - op->arg);
	case RS_PATCH_DO_PRISTINE:
		return rs_guard_race_pristine(op->address, op->value);
	case RS_PATCH_DO_FREED:
		__atomic_add_fetch(&rs_patch_generation, 1, __ATOMIC_SEQ_CST);
		return 0;
	}
	return -ENOSYS;
}

static void do_ops(void)
{
	uint32_t count = page->count, done = 0;
	long error = 0;
	__atomic_store_n(&page->waiting, AT_WORK, __ATOMIC_RELAXED);
	for (; error == 0 && done < count && done < RS_PATCH_OPS; done += error == 0)
		error = do_op(&page->op[done]);
	page->count = 0; /* not again, should Go be gone next */
	page->done = done;
	page->error = (int32_t)-error;
}

/* Tells Go that nobody does what it wants any more: it takes its plan back. */
static long settle(unsigned ms)
{
	long r = answered(page->asked, ms, false);
	while (r == 0 && page->more) {
		page->done = 0;
		page->error = ECANCELED;
		r = post(RS_PATCH_ASK_MORE, ms);
	}
	late = r == -ETIMEDOUT;
	return r;
}

/* What this processor has fetched of code that another one has changed is forgotten: iret is a serializing instruction (Intel SDM vol. 3, 9.3; AMD's manual vol. 2, 7.6.4), and the only one that
 * neither leaves a virtual machine nor is new. Code of ours has no shadow stack. The red zone is left alone. */
__attribute__((noinline)) void rs_serialize(void)
{
	uintptr_t t;
	__asm__ volatile("lea -128(%%rsp), %%rsp\n\t"
			 "mov %%ss, %k0\n\tpush %0\n\t"
			 "push %%rsp\n\taddq $8, (%%rsp)\n\t"
			 "pushfq\n\t"
			 "mov %%cs, %k0\n\tpush %0\n\t"
			 "lea 1f(%%rip), %0\n\tpush %0\n\t"
			 "iretq\n"
			 "1:\tlea 128(%%rsp), %%rsp"
			 : "=&r"(t)
			 :
			 : "memory", "cc");
}

/* Locked, signals blocked. */
static long converse(unsigned request, uintptr_t at)
{
	unsigned ms = request == RS_PATCH_ASK_SITE ? SITE_MS : request != RS_PATCH_ASK_SOON ? 0 : unheard < UNHEARD ? BRIEF : SOON_MS;
	long r = page ? 0 : -ESRCH;
	if (r == 0 && late)
		r = settle(ms);
	if (r == 0) {
		page->address = at;
		page->tid = rs_os_tid();
		page->threads = rs_live_threads;
		page->count = 0;
		__atomic_store_n(&page->turn, OPEN, __ATOMIC_RELAXED);
		r = post(request, ms);
		late = r == -ETIMEDOUT;
	}
	/* From the first operation on it is seen through: the text is right at every moment, but slow in between. */
	bool changes = r == 0 && page->more;
	if (changes)
		__atomic_add_fetch(&rs_patch_changes, 1, __ATOMIC_SEQ_CST);
	while (r == 0 && page->more) {
		do_ops();
		page->threads = rs_live_threads;
		r = post(RS_PATCH_ASK_MORE, 0);
	}
	/* What the text that is changed by now needs, before any of the program's code runs. */
	if (r == 0 || (r == -ESRCH && page && __atomic_load_n(&page->turn, __ATOMIC_ACQUIRE) == TAKEN))
		do_ops();
	if (changes)
		__atomic_add_fetch(&rs_patch_changes, 1, __ATOMIC_SEQ_CST);
	rs_serialize(); /* other threads are seen to by sync_core; where there are none nobody asks for that */
	if (r == -ESRCH)
		page = NULL;
	if (request == RS_PATCH_ASK_SOON)
		unheard = r == -ETIMEDOUT && ms == BRIEF ? unheard + 1 : 0;
	return r == 0 ? page->result : r;
}

static long ask(unsigned request, uintptr_t at, const uint64_t *own)
{
	if (!page || !rs_active)
		return -ESRCH;
	if (rs_sandboxed || (rs_in_vfork() && !(request == RS_PATCH_ASK_COVERED && rs_vfork.depth > 0))) /* whose parent waits for it: what is asked for is the parent's, too */
		return -EPERM;
	uint64_t mask = rs_os_no_signals();
	if (request != RS_PATCH_ASK_SOON) {
		rs_lock(&lock);
	} else if (!rs_lock_try(&lock)) { /* another thread asks, or has modules patched, which takes long */
		rs_os_signals(mask);
		return -EAGAIN;
	}
	program_mask = own ? *own : mask;
	long r = converse(request, at);
	rs_unlock(&lock);
	rs_os_signals(mask);
	tell_debugger(mask);
	return r;
}

long rs_patch_ask(unsigned request, uintptr_t at) { return ask(request, at, NULL); }

/* Its own mask blocks all signals. A thread that stands with the lock asks for what it cannot get while an epoch may be executed again. */
long rs_patch_standing(unsigned request, uintptr_t at)
{
	if (!page || !rs_active || rs_sandboxed)
		return -ESRCH;
	if (!rs_lock_try(&lock))
		return -EBUSY;
	program_mask = ~0ull;
	standing = true;
	standing_bytes = 0;
	long r = converse(request, at);
	standing = false;
	rs_unlock(&lock);
	return r;
}

bool rs_patch_put_off;
static size_t smallest = SIZE_MAX; /* of the stacks that were made meanwhile */

static void start(uint64_t mask)
{
	page->function[RS_PATCH_FUNC_SHARE_TABLE] = rs_share_begin();
	page->function[RS_PATCH_FUNC_SHARE_STRING] = (uintptr_t)rs_share_string;
	if (rs_config.races == 1 && !rs_config.guard) {
		page->function[RS_PATCH_FUNC_LOADER_STATE] = rs_loader_state();
		page->function[RS_PATCH_FUNC_LOADER_HOOK] = (uintptr_t)rs_loader_hook;
	}
	if (ask(RS_PATCH_ASK_START, 0, &mask) == 0 && page->function[RS_PATCH_FUNC_LOADER_STATE])
		rs_loader_hooked();
}

void rs_patch_start(uint64_t mask)
{
	rs_patch_put_off = rs_config.patch == 2;
	if (!page && !rs_patch_put_off)
		return;
	rs_patching = true;
	rs_calls_patching();
	if (rs_patch_put_off)
		rs_trap_begin(); /* what the program does with SIGTRAP until then is as if it had begun */
	else
		start(mask);
}

static void open_late(void *arg)
{
	long sock = rs_session_connect();
	*(long *)arg = sock;
	if (sock < 0)
		return;
	rs_patch_open((int)sock);
	RS_SYS1(SYS_close, sock);
}

/* Threads that nobody saw being made may have SIGTRAP blocked, as libc makes its own for timers: the first int3 would be the end. /proc/self/task has a link for each (fs/proc/base.c, proc_task_getattr), and two of its own. */
static bool has_others(void)
{
	struct stat st;
	return RS_SYS2(SYS_stat, "/proc/self/task", &st) == 0 && st.st_nlink > 3;
}

/* A handler that makes a thread in the middle of another's beginning is before the first of them is made, too: all signals are blocked. */
void rs_patch_threads(bool seen)
{
	if (RS_LIKELY(!rs_patch_put_off) || !rs_active || rs_sandboxed || rs_in_vfork() || (rs_config.guard && !seen))
		return;
	uint64_t mask = rs_os_no_signals();
	if (__atomic_exchange_n(&rs_patch_put_off, false, __ATOMIC_ACQ_REL)) {
		long why = 0;
		if (rs_thread_tls)
			rs_region_try(rs_thread_tls); /* what ripstop knows of a forked child, and of its end, it knows by that */
		if ((others = has_others()) && !rs_config.guard)
			rs_os_say("it has threads that were not seen being made (by timers, aio, io_uring, clone): its code is not patched, and races are not found; --full-from=start finds them", 0);
		else if (!others)
			rs_os_apart(open_late, &why);
		if (page) {
			start(mask);
			if (!rs_config.guard) {
				rs_cover_stack(smallest);
				rs_uring_late();
			}
		} else if (why < 0 && !rs_config.guard && !rs_session_over()) {
			refused = (int)-why;
			rs_os_say("its code is not patched, so races are not found: cannot connect to the session", why);
		}
		if (rs_thread_tls)
			rs_patch_say(rs_thread_tls);
	}
	rs_os_signals(mask);
	tell_debugger(mask);
}

void rs_patch_stack(size_t bytes)
{
	if (RS_UNLIKELY(rs_patch_put_off) && bytes && bytes < smallest)
		smallest = bytes;
}

void rs_patch_started(uint64_t mask) { tell_debugger(mask); }

void rs_patch_modules(void)
{
	if (page)
		rs_patch_ask(RS_PATCH_ASK_MODULES, 0);
}

/* The child's text leads to the trampolines that there are now: Go must not use their memory for others. */
void rs_patch_before_fork(void)
{
	if (page)
		__atomic_add_fetch(&page->forks, 1, __ATOMIC_SEQ_CST);
}

static uint32_t missing = UINT32_MAX; /* of the parent's sites, which are ours */

uint32_t rs_patch_missing(void) { return rs_patching && page ? page->unpatched : missing; }

/* The page is the parent's. */
void rs_patch_after_fork(void)
{
	missing = rs_patch_missing();
	page = NULL;
	late = false;
	unheard = 0;
	rs_patch_changes = 0;
	rs_pass_after_fork();
	lock.word = 0;
	rs_patch_readers = 0;
	synced = false;
}

/* For the engine's own tests: has the engine do what its client wants at an address. */
RS_EXPORT int ripstop_patch_test(uintptr_t at);
RS_EXPORT int ripstop_patch_test(uintptr_t at) { return (int)rs_patch_ask(RS_PATCH_ASK_TEST, at); }
/* Has the instruction at an address patched, as a fault there would, and without waiting for it. */
RS_EXPORT int ripstop_patch_soon(uintptr_t at);
RS_EXPORT int ripstop_patch_soon(uintptr_t at) { return (int)rs_patch_ask(RS_PATCH_ASK_SOON, at); }
/* And has the thread whose context it is, in a handler with all signals blocked, go on behind its instruction. */
RS_EXPORT int ripstop_patch_pass(void *context);
RS_EXPORT int ripstop_patch_pass(void *context) { return (int)rs_pass(context); }
/* And waiting. */
RS_EXPORT int ripstop_patch_site(uintptr_t at);
RS_EXPORT int ripstop_patch_site(uintptr_t at) { return (int)rs_patch_ask(RS_PATCH_ASK_SITE, at); }
