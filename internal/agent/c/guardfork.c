/* guardfork.c: epochs of forked children. See guardfork.h; docs/decisions.md, 42.
 *
 * A fork takes neither the coordinator along, nor what the kernel knows of written pages, nor the arena's content. So a child begins as a program does, but later: most children execute another program soon, and what that costs them is to stay what it is natively.
 * Until then it is native (rs_guard_forget). What each module has from the parent it replaces where it begins: nothing in the child waits for it, as the fork left one thread, outside of all events.
 *
 * Ground rules: calls.h's of rs_call_before. The beginning itself runs apart: on a stack of ours, with the program's vector registers kept. */
#include "guardfork.h"
#include "checkshared.h"
#include "core.h"
#include "dispatch.h"
#include "guardepoch.h"
#include "guardstack.h"
#include "guardsync.h"
#include "guardsys.h"
#include "patch.h"
#include "proc.h"
#include "thread.h"
#include <elf.h>
#include <fcntl.h>

/* AGE: who lives that long is worth an epoch, and what its first checkpoint costs. Of a clock of any speed SOON has passed before that. */
enum { AGE_MS = 200, SOON_TICKS = 50000000, STACK = 48 << 10, VECTORS = 16 << 10, SHARE = 8 /* of the memory that is to be had */, MOST_KB = 256 << 10 };

uint32_t rs_guard_young;
__thread uint32_t rs_guard_young_outside;
RS_TLS uint32_t plainly;     /* the thread's next child may be recorded */
static uint64_t born_ns, born_ticks;
static bool put_off;                /* it began as rs_guard_fork_put_off says, or its parent did */
static bool strange;                /* it has code whose calls are not seen */
static char *apart;                 /* STACK bytes, and room for vector registers */

/* --- the fork --------------------------------------------------------------------------------------------------------------------------- */

/* Not where functions of ours that have to do with the log are below, or what they have begun: they would go on in the child's. */
void rs_guard_fork_begins(void)
{
	struct rs_guard_log *t = rs_guard_on ? rs_guard_self() : NULL;
	struct rs_guard_within handler;
	uint32_t i = 0;
	if (!rs_guard_on)
		plainly = plainly && rs_guard_young_outside <= 1; /* the fork */
	else
		plainly = t && rs_guard_mode() == RS_GUARD_RECORD && rs_guard_world()->session && t->outside == 1 && !t->half && !t->doing && !t->young && !rs_guard_stack_within(t, &i, &handler);
}

void rs_guard_fork_put_off(void)
{
	rs_guard_young = plainly = put_off = 1;
	rs_guard_stack_put_off();
}

void rs_guard_fork_child(void)
{
	bool was = rs_guard_young;
	rs_guard_young_outside = 0;
	rs_guard_young = plainly && !strange && rs_thread_tls && rs_active && !rs_sandboxed;
	if (!rs_guard_young) {
		if (was)
			rs_guard_sys_forget();
		return;
	}
	born_ns = rs_os_now_ns();
	born_ticks = __builtin_ia32_rdtsc();
	if (!was)
		rs_guard_sys_young();
}

/* --- what it loads ------------------------------------------------------------------------------------------------------------------------ */

/* Does `mov $number, %eax` come shortly before a system call's instruction? Of 1,393 libraries 29 have such, and those of which it is known that they make calls of their own. */
static bool makes_calls(const uint8_t *code, size_t n)
{
	enum { NEAR = 32, NUMBERS = 1024 };
	for (size_t i = 1; i < n; i++) {
		if (code[i] != 0x05 || code[i - 1] != 0x0f)
			continue;
		for (size_t k = 6; k <= NEAR && k <= i; k++) {
			uint32_t number;
			rs_os_copy(&number, code + i - k + 1, sizeof number);
			if (code[i - k] == 0xb8 && number < NUMBERS)
				return true;
		}
	}
	return false;
}

/* A child's modules are patched by nobody, but for those that it has from its parent: a call that the hook does not see would be made once more where an epoch is executed again. */
void rs_guard_fork_loads(uintptr_t base, uintptr_t bias)
{
	Elf64_Ehdr e;
	Elf64_Phdr p;
	if (rs_process.start != RS_START_FORK || strange || !(rs_guard_young || (rs_guard_on && rs_guard_mode())))
		return;
	if (!rs_peek(&e, base, sizeof e) || !rs_os_equal(e.e_ident, ELFMAG, SELFMAG))
		return;
	for (unsigned i = 0; i < e.e_phnum && rs_peek(&p, base + e.e_phoff + i * sizeof p, sizeof p) && !strange; i++)
		strange = p.p_type == PT_LOAD && (p.p_flags & (PF_X | PF_R)) == (PF_X | PF_R) && makes_calls((const uint8_t *)(bias + p.p_vaddr), p.p_filesz);
	if (!strange)
		return;
	if (rs_guard_young)
		rs_guard_sys_forget();
	rs_guard_young = 0;
	rs_guard_off();
}

/* --- the beginning ---------------------------------------------------------------------------------------------------------------------- */

/* Calls f on the stack that ends at top, where the vector registers are kept meanwhile. */
void rs_guard_fork_apart(char *top, void (*f)(void)) RS_HIDDEN;
__asm__(".text\n.p2align 4\n.globl rs_guard_fork_apart\n.hidden rs_guard_fork_apart\n.type rs_guard_fork_apart, @function\n"
	"rs_guard_fork_apart:\n"
	".cfi_startproc\n"
	"	pushq %rbp\n"
	".cfi_adjust_cfa_offset 8\n.cfi_rel_offset %rbp, 0\n"
	"	movq %rsp, %rbp\n"
	".cfi_def_cfa_register %rbp\n"
	"	pushq %rbx\n"
	".cfi_offset %rbx, -24\n"
	"	movq %rdi, %rbx\n"
	"	movl $-1, %eax\n	movl $-1, %edx\n"
	"	xsave64 (%rbx)\n"
	"	movq %rbx, %rsp\n"
	"	call *%rsi\n"
	"	movl $-1, %eax\n	movl $-1, %edx\n"
	"	xrstor64 (%rbx)\n"
	"	leaq -8(%rbp), %rsp\n"
	"	popq %rbx\n"
	".cfi_restore %rbx\n"
	"	popq %rbp\n"
	".cfi_def_cfa %rsp, 8\n.cfi_restore %rbp\n"
	"	ret\n"
	".cfi_endproc\n"
	".size rs_guard_fork_apart, .-rs_guard_fork_apart\n");

static uint64_t number_behind(const char *text, const char *name)
{
	for (; *text; text++) {
		size_t n = 0;
		while (name[n] && text[n] == name[n])
			n++;
		if (name[n])
			continue;
		uint64_t v = 0;
		for (text += n; *text == ' '; text++)
			;
		for (; *text >= '0' && *text <= '9'; text++)
			v = v * 10 + (uint64_t)(*text - '0');
		return v;
	}
	return 0;
}

/* What children share with their parent each of their checkpoints copies: many large ones may be more than the machine has, and half a millisecond for each MiB is long for a child that, say, writes down what its parent had. */
static bool is_too_large(void)
{
	char text[512];
	if (rs_guard_read(AT_FDCWD, "/proc/meminfo", text, sizeof text) <= 0)
		return true;
	uint64_t there_kb = number_behind(text, "MemAvailable:");
	if (rs_guard_read(AT_FDCWD, "/proc/self/statm", text, sizeof text) <= 0)
		return true;
	const char *p = text;
	while (*p && *p != ' ')
		p++;
	uint64_t kb = number_behind(p, " ") * (RS_PAGE >> 10);
	return kb > MOST_KB || kb > there_kb / SHARE;
}

/* Of who can write to more memory that others see than a checkpoint keeps (checkshared.h) no epoch is ever executed again: servers with large tables. Or it cannot be told. */
static bool shares(void)
{
	enum { MODES = 4, PATH = 5 /* fields behind the addresses, at spaces */ };
	static const char ours[] = "/memfd:ripstop";
	char text[1024];
	long n, fd = rs_guard_open(AT_FDCWD, "/proc/self/maps", O_RDONLY);
	uint64_t lo = 0, hi = 0, bytes = 0;
	uint32_t field = 0, at = 0, same = 0;
	bool writes = false;
	if (fd < 0)
		return true;
	while ((n = RS_SYS3(SYS_read, fd, text, sizeof text)) > 0)
		for (long i = 0; i < n; i++) {
			char c = text[i];
			if (c == '\n') {
				bytes += writes && same + 1 < sizeof ours ? hi - lo : 0;
				lo = hi = 0;
				field = at = same = 0;
				writes = false;
			} else if (c == ' ' && field < PATH) {
				field++;
				at = 0;
			} else {
				if (field == 0 && c == '-') {
					lo = hi;
					hi = 0;
				} else if (field == 0)
					hi = hi << 4 | (uint64_t)(c <= '9' ? c - '0' : c - 'a' + 10);
				else if (field == 1)
					writes = at == 1 ? c == 'w' : at == MODES - 1 ? writes && c == 's' : writes;
				else if (field == PATH && c != ' ' && same + 1 < sizeof ours)
					same = c == ours[same] ? same + 1 : 0;
				at++;
			}
		}
	RS_SYS1(SYS_close, fd);
	return bytes > RS_SHARED_MOST || n < 0;
}

/* No forked child, whose epochs begin at its second thread, wherever it makes that: a library that is loaded may have threads at once. */
static bool is_late(void) { return put_off && rs_process.start != RS_START_FORK; }

static void begin(void)
{
	uint32_t word = rs_config.guard;
	struct rs_thread *t = rs_thread_tls;
	uint64_t mask = rs_os_no_signals(); /* a handler would find half of it */
	if (put_off)
		rs_guard_bind();
	if (is_late())
		rs_guard_session_late(rs_guard_young_outside);
	else if (!rs_session_over() && rs_guard_alone() && !rs_guard_limited() && !is_too_large() && !shares() && rs_region_try(t) == 0 && rs_guard_begin_session(word & 2, word & 8, rs_guard_epoch_ms(word)) < 0)
		rs_guard_undo();
	/* What was blocked then; while an epoch is executed again all are. */
	if (rs_guard_mode() != RS_GUARD_REPLAY)
		rs_os_signals(mask);
}

static __attribute__((noinline)) void live(uintptr_t sp)
{
	const struct rs_thread *t = rs_thread_tls;
	uint32_t a = 0xd, b = 0, c = 0, d = 0;
	/* Another time: in what no epoch can follow; a vfork child; a function of ours, or an emission that a handler interrupted. */
	if ((rs_guard_young_outside && !is_late()) || rs_in_vfork() || (t && (t->inside || t->emit_sp)) || !rs_guard_stack_free(sp))
		return;
	rs_guard_young = 0;
	rs_guard_sys_forget(); /* calls are as before the first epoch */
	__asm__("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
	if (!t || !rs_active || rs_sandboxed || rs_dispatch_on || (rs_live_threads != 1 && !is_late()) || b > VECTORS)
		return;
	if (!apart)
		apart = rs_os_map(STACK + VECTORS);
	if (apart)
		rs_guard_fork_apart(apart + STACK, begin);
}

void rs_guard_fork_creates(uintptr_t sp)
{
	if (RS_UNLIKELY(rs_guard_young))
		live(sp);
}

void rs_guard_fork_called(const struct rs_call *c)
{
	/* In a sandbox nothing is asked of the kernel; of what is not patched not all calls are seen. */
	if (!rs_sandboxed && !rs_patch_put_off && __builtin_ia32_rdtsc() - born_ticks > SOON_TICKS && rs_os_now_ns() - born_ns > AGE_MS * 1000000ull)
		live((uintptr_t)c + RS_CALL_FRAME);
}
