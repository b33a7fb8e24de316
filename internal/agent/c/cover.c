/* cover.c: code that nobody has run yet (cover.h).
 *
 * The first thread that comes to a covered instruction asks the engine, which patches what lies around it; the thread then goes on there. Where nobody answers (ripstop has ended, or this is a forked child) the instruction is
 * given its first byte back, one by one as they are met, and is executed as it is. What it was is read from the module's file, which stays mapped: a killed ripstop leaves nothing that the program cannot do without it.
 *
 * Ground rules: entries are made and emptied under the lock of requests; handlers read them without. No memory is had but for the table. */
#include "cover.h"
#include "patch.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/stat.h>

enum {
	MOST = 1024,
	INT3 = 0xcc,
	SPARE = 16 << 10 /* Of a stack, beside two signals' frames: who measures a smaller one knows of no frame of ours, nor of what our handler takes. */
};

/* hi 0: none. */
static struct covered { uintptr_t lo, hi; const uint8_t *file; } table[MOST];
static uint32_t used;
static bool all; /* nothing is covered any more of what was */
static size_t least; /* of a stack that has room for another signal's frame; what libc knows is asked where no handler runs */

static struct covered *find(uintptr_t at)
{
	uint32_t n = __atomic_load_n(&used, __ATOMIC_ACQUIRE);
	for (struct covered *c = table; c < table + n; c++)
		if (at < __atomic_load_n(&c->hi, __ATOMIC_ACQUIRE) && at >= c->lo)
			return c;
	return NULL;
}

/* --- the engine's --------------------------------------------------------------------------------------------------------------- */

struct opening { const struct rs_patch_cover *file; size_t bytes; long at; };

static void open_file(void *arg)
{
	struct opening *o = arg;
	struct stat st;
	long fd = RS_SYS4(SYS_openat, AT_FDCWD, (const char *)(o->file + 1), O_RDONLY | O_CLOEXEC, 0);
	if (fd < 0) {
		o->at = fd;
		return;
	}
	o->at = RS_SYS2(SYS_fstat, fd, &st);
	if (o->at == 0 && (st.st_dev != o->file->dev || st.st_ino != o->file->ino))
		o->at = -ESTALE;
	if (o->at == 0)
		o->at = RS_SYS6(SYS_mmap, 0, o->bytes, PROT_READ, MAP_PRIVATE, fd, o->file->offset);
	RS_SYS1(SYS_close, fd);
}

long rs_cover(uintptr_t lo, size_t bytes, const void *file, size_t room)
{
	struct covered *c = find(lo);
	if (!bytes) {
		if (c) {
			size_t n = c->hi - c->lo;
			__atomic_store_n(&c->hi, 0, __ATOMIC_RELEASE);
			RS_SYS2(SYS_munmap, c->file, n);
		}
		return 0;
	}
	const struct rs_patch_cover *f = file;
	bool ends = false;
	for (size_t i = sizeof *f; i < room && !ends; i++)
		ends = !((const char *)file)[i];
	if (!ends || c || lo + bytes < lo)
		return -EINVAL;
	for (c = table; c < table + used && c->hi; c++)
		;
	if (c == table + MOST)
		return -ENOSPC;
	struct opening o = {f, bytes, 0};
	rs_os_apart(open_file, &o);
	if (o.at < 0)
		return o.at;
	RS_SYS3(SYS_madvise, o.at, bytes, MADV_DONTDUMP);
	least = 2 * getauxval(AT_MINSIGSTKSZ) + SPARE;
	c->lo = lo;
	c->file = (const uint8_t *)o.at;
	__atomic_store_n(&all, false, __ATOMIC_RELAXED);
	__atomic_store_n(&c->hi, lo + bytes, __ATOMIC_RELEASE);
	if (c == table + used)
		__atomic_store_n(&used, used + 1, __ATOMIC_RELEASE);
	return 0;
}

/* --- the program's -------------------------------------------------------------------------------------------------------------- */

static bool is_int3(uintptr_t at) { return *(const volatile uint8_t *)at == INT3; }

uintptr_t rs_cover_met(uintptr_t at)
{
	struct covered *c = find(at);
	if (!c)
		return 0;
	const uint8_t *was = &c->file[at - c->lo];
	if (*was == INT3)
		return 0;
	/* It may be what it was by now, by another thread; or int3 for good, which leads to its trampoline. */
	if (!is_int3(at) || (rs_patch_ask(RS_PATCH_ASK_COVERED, at) == 0 && (!is_int3(at) || rs_trap_leads(at))))
		return at;
	if (rs_patch_write(at, was, 1) < 0) {
		rs_os_say("code that was to be patched when it is first run cannot be given back: the program stops at an int3", 0);
		return 0;
	}
	rs_serialize();
	return at;
}

void rs_cover_all(void)
{
	if (RS_UNLIKELY(__atomic_load_n(&used, __ATOMIC_RELAXED) != 0) && !__atomic_load_n(&all, __ATOMIC_RELAXED) && rs_patch_ask(RS_PATCH_ASK_COVERED, 0) == 0)
		__atomic_store_n(&all, true, __ATOMIC_RELAXED);
}

void rs_cover_stack(size_t bytes)
{
	if (bytes && bytes < least)
		rs_cover_all();
	rs_patch_stack(bytes);
}

void rs_cover_handler(const ucontext_t *uc)
{
	const stack_t *s = &uc->uc_stack;
	if (!(s->ss_flags & SS_DISABLE) && (uintptr_t)__builtin_frame_address(0) - (uintptr_t)s->ss_sp < s->ss_size)
		rs_cover_stack(s->ss_size);
}

/* What makecontext is. */
__attribute__((used)) static uintptr_t of_context(const ucontext_t *uc)
{
	if (RS_UNLIKELY(!rs_real.makecontext))
		rs_real_init();
	rs_cover_stack(uc->uc_stack.ss_size);
	return (uintptr_t)rs_real.makecontext;
}

/* Any number of arguments, some on the stack, are the real one's. */
__asm__(".text\n"
	".globl makecontext\n"
	".type makecontext, @function\n"
	"makecontext:\n"
	"	.cfi_startproc\n"
	"	push %rdi\n	.cfi_adjust_cfa_offset 8\n"
	"	push %rsi\n	.cfi_adjust_cfa_offset 8\n"
	"	push %rdx\n	.cfi_adjust_cfa_offset 8\n"
	"	push %rcx\n	.cfi_adjust_cfa_offset 8\n"
	"	push %r8\n	.cfi_adjust_cfa_offset 8\n"
	"	push %r9\n	.cfi_adjust_cfa_offset 8\n"
	"	push %rax\n	.cfi_adjust_cfa_offset 8\n"
	"	call of_context\n"
	"	mov %rax, %r11\n"
	"	pop %rax\n	.cfi_adjust_cfa_offset -8\n"
	"	pop %r9\n	.cfi_adjust_cfa_offset -8\n"
	"	pop %r8\n	.cfi_adjust_cfa_offset -8\n"
	"	pop %rcx\n	.cfi_adjust_cfa_offset -8\n"
	"	pop %rdx\n	.cfi_adjust_cfa_offset -8\n"
	"	pop %rsi\n	.cfi_adjust_cfa_offset -8\n"
	"	pop %rdi\n	.cfi_adjust_cfa_offset -8\n"
	"	jmp *%r11\n"
	"	.cfi_endproc\n"
	".size makecontext, . - makecontext\n");
