/* guardclock.c: the program's rdtsc and rdtscp while `guard` keeps a log. See guardlog.h; internal/hook/clocks.go finds them.
 *
 * In a nutshell. What the instruction gives is a result like a call's: an event without a ticket, whose object is the clock's lower 56 bits (the others are those of the epoch's beginning, or beside them) and whose result is the processor's number,
 * of rdtscp. A re-execution gives the same. Without an event: where no log is kept, in a thread that no epoch can follow, between before and after of another event.
 *
 * Ground rules: guard.h's; general registers only. What lies below the stack pointer is afterwards the same whichever way was gone. */
#include "calls.h"
#include "guardquick.h"
#include "guardsync.h"

/* done: 0: nothing was. */
struct rs_guard_clock { uint64_t ticks; uint32_t processor, done; };
struct rs_guard_clock rs_guard_clock_quick(bool processor) RS_HIDDEN;
struct rs_guard_clock rs_guard_clock_slow(bool processor, uintptr_t sp) RS_HIDDEN;


/* From a site's trampoline, the red zone and a return address on the stack. rax, rdx and, of rdtscp, rcx are as behind the instruction; all else is kept. The flags are in the place of rax, which the instruction writes: al gave OF (127 + 1 overflows), ah the others. */
#define HOOK(name, processor, store) \
	__asm__(".text\n.p2align 4\n.globl " name "\n.hidden " name "\n.type " name ", @function\n" \
		name ":\n" \
		".cfi_startproc\n" \
		"	lahf\n	seto %al\n	movzwl %ax, %eax\n" \
		"	pushq %rax\n	pushq %rcx\n	pushq %rsi\n	pushq %rdi\n	pushq %r8\n	pushq %r9\n	pushq %r10\n	pushq %r11\n" \
		".cfi_adjust_cfa_offset 64\n" \
		"	movl $" processor ", %edi\n" \
		"	call rs_guard_clock_quick\n" \
		"6:	movq %rdx, %rcx\n" \
		"	shrq $32, %rcx\n" \
		"	jz 2f\n" \
		"1:	movl %edx, %edx\n" \
		store \
		"	movq %rax, %rdx\n" \
		"	shrq $32, %rdx\n" \
		"	movl %eax, %ecx\n" \
		"	movl 56(%rsp), %eax\n" \
		"	movq %rcx, 56(%rsp)\n" \
		"	addb $127, %al\n	sahf\n" \
		"	popq %r11\n	popq %r10\n	popq %r9\n	popq %r8\n	popq %rdi\n	popq %rsi\n	popq %rcx\n	popq %rax\n" \
		".cfi_adjust_cfa_offset -64\n" \
		"	ret\n" \
		".cfi_adjust_cfa_offset 64\n" \
		"2:" RS_HOOK_KEEPS_BELOW \
		"	movl $" processor ", %edi\n" \
		"	leaq 8 + 64 + 8 + 128(%rsp), %rsi\n" \
		"	call rs_guard_clock_slow\n" \
		RS_HOOK_PUTS_BELOW \
		"	jmp 1b\n" \
		".cfi_endproc\n" \
		".size " name ", .-" name "\n")
HOOK("rs_clock_hook", "0", "");
HOOK("rs_clock_processor_hook", "1", "	movq %rdx, 48(%rsp)\n");

static uint64_t read_clock(bool with_processor, uint32_t *processor)
{
	uint32_t lo, hi, c = 0;
	if (with_processor)
		__asm__ volatile("rdtscp" : "=a"(lo), "=d"(hi), "=c"(c) : : "memory");
	else
		__asm__ volatile("rdtsc" : "=a"(lo), "=d"(hi) : : "memory");
	*processor = c;
	return (uint64_t)hi << 32 | lo;
}

/* Of a clock of 56 bits. What it said is not far from the epoch's beginning, on either side of it: processors' clocks may be apart. */
static uint64_t whole(uint64_t lower)
{
	uint64_t begun = rs_guard_world()->begun_ticks;
	return begun + (uint64_t)((int64_t)((lower - begun) << 8) >> 8);
}

static bool is_followed(const struct rs_guard_log *t) { return !t->outside && !t->inner && !(t->doing & RS_GUARD_ORDERED); }

/* A leaf that needs no more registers than it may change. */
struct rs_guard_clock rs_guard_clock_quick(bool processor)
{
	struct rs_guard_log *t = rs_guard_mine;
	struct rs_guard_clock c = {0};
	if (RS_UNLIKELY(!t || !is_followed(t) || !rs_guard_begin_quickly(t)))
		return c;
	c.ticks = read_clock(processor, &c.processor);
	rs_guard_append_quickly(t, RS_GUARD_WHAT(c.ticks, RS_GUARD_TSC), RS_GUARD_UNORDERED, (int32_t)c.processor);
	rs_guard_end_quickly(t);
	c.done = 1;
	return c;
}

struct rs_guard_clock rs_guard_clock_slow(bool processor, uintptr_t sp)
{
	struct rs_guard_log *t = rs_guard_on ? rs_guard_self() : NULL;
	struct rs_guard_clock c = {.done = 1};
	struct rs_guard_event was = {0};
	bool followed = t && rs_guard_mode() != RS_GUARD_OFF && is_followed(t);
	if (followed) {
		t->sp = sp;
		rs_guard_before(t, 0, RS_GUARD_TSC, &was);
	}
	if (was.what) {
		c.ticks = whole(was.what & 0xffffffffffffff);
		c.processor = (uint32_t)was.result;
	} else
		c.ticks = read_clock(processor, &c.processor);
	if (followed)
		rs_guard_after(t, c.ticks, RS_GUARD_TSC, (int32_t)c.processor, false);
	return c;
}
