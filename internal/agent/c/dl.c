/* dl.c: dlopen, dlmopen and dlclose, after which other modules are loaded.
 *
 * glibc's dlopen asks by its return address who called: that module's RPATH, RUNPATH and $ORIGIN count, and for all that the new module
 * loads later its chain of loaders. So it may be called from here only when that makes no difference; otherwise it is jumped to, with the
 * caller's return address, and the new module is noticed when code of it is first met (as are those that glibc loads by itself). dlsym
 * is not interposed at all.
 *
 * A namespace of dlmopen has a libc of its own and no preloaded libraries: what is called there goes past us, which is said once. Of its threads
 * those are known that call into the program's namespace. A library loaded with RTLD_DEEPBIND finds libc's functions before ours, too: it shares the
 * program's libc, so what it allocates and frees there is not known (heap.c).
 *
 * That each of these calls comes after those before it, and what is patched before initialisers run, is loader.c's. */
#include "proc.h"
#include "heap.h"
#include "loader.h"
#include <dlfcn.h>
#include <elf.h>
#include <link.h>

struct paths {
	uintptr_t caller;
	unsigned index;
	bool caller_runpath; /* the caller has search paths of its own */
	bool rpath;          /* a module other than the program has an RPATH, which its loaded modules inherit */
};

static int look(struct dl_phdr_info *info, size_t size, void *arg)
{
	(void)size;
	struct paths *p = arg;
	bool main_program = p->index++ == 0, is_caller = false;
	const ElfW(Dyn) *dyn = NULL;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *ph = &info->dlpi_phdr[i];
		uintptr_t at = info->dlpi_addr + ph->p_vaddr;
		if (ph->p_type == PT_DYNAMIC)
			dyn = (const ElfW(Dyn) *)at;
		else if (ph->p_type == PT_LOAD && p->caller - at < ph->p_memsz)
			is_caller = true;
	}
	for (; dyn && dyn->d_tag != DT_NULL; dyn++) {
		if (dyn->d_tag == DT_RPATH && !main_program)
			p->rpath = true;
		if (dyn->d_tag == DT_RUNPATH && is_caller)
			p->caller_runpath = true;
	}
	return 0;
}

/* Would glibc do the same if we called? */
static bool caller_is_equal(const char *file, uintptr_t caller)
{
	if (!file || !*file)
		return true;
	bool slash = false;
	for (const char *s = file; *s; s++) {
		if (*s == '$')
			return false;
		slash |= *s == '/';
	}
	struct paths p = {.caller = caller};
	dl_iterate_phdr(look, &p);
	return !p.rpath && (slash || !p.caller_runpath);
}

/* Before a library is loaded with RTLD_DEEPBIND, and when it was or may have been. */
static void binds_past_us(int mode)
{
	if (mode & RTLD_DEEPBIND)
		rs_heap_bypassed();
}

static void bound_past_us(struct rs_thread *t, int mode)
{
	if (mode & RTLD_DEEPBIND)
		rs_notice(t, RS_NOTICE_DEEPBIND, 0, 0);
}

/* A call has given what it loaded. Where it failed there may be objects that the engine has been told of, and that have gone. */
static void came(const void *result, int mode, struct rs_loading l)
{
	struct rs_thread *t = result || rs_loader_asked(l) ? rs_self() : NULL;
	if (!t)
		return;
	if (result)
		bound_past_us(t, mode);
	rs_modules_changed(t, result && rs_loader_asked_all(l));
}

/* The result of dlopen in *result, or false: jump to rs_dlopen_real. */
bool rs_dlopen(const char *file, int mode, uintptr_t caller, void **result) __attribute__((visibility("hidden")));
void *(*rs_dlopen_real)(const char *, int) __attribute__((visibility("hidden")));

bool rs_dlopen(const char *file, int mode, uintptr_t caller, void **result)
{
	rs_dlopen_real = RS_REAL(dlopen);
	binds_past_us(mode);
	struct rs_thread *t = rs_self();
	if (!t)
		return false;
	if (!caller_is_equal(file, caller)) {
		rs_loader_enter(NULL, !(mode & RTLD_GLOBAL));
		rs_guard_lost(RS_GUARD_LOST_MODULE);
		bound_past_us(t, mode);
		return false;
	}
	struct rs_loading l = rs_loader_enter(t, !(mode & RTLD_GLOBAL));
	rs_guard_out(RS_GUARD_LOST_MODULE);
	*result = rs_dlopen_real(file, mode);
	came(*result, mode, l);
	rs_loader_leave(l);
	rs_guard_in();
	return true;
}

__asm__(".text\n.p2align 4\n.globl dlopen\n.type dlopen, @function\ndlopen:\n"
	".cfi_startproc\n"
	"	pushq %rbp\n"
	".cfi_def_cfa_offset 16\n"
	".cfi_offset %rbp, -16\n"
	"	movq %rsp, %rbp\n"
	".cfi_def_cfa_register %rbp\n"
	"	pushq %rdi\n"
	"	pushq %rsi\n"
	"	subq $16, %rsp\n"
	"	movq 8(%rbp), %rdx\n"
	"	movq %rsp, %rcx\n"
	"	call rs_dlopen\n"
	"	movzbl %al, %edx\n"
	"	movq (%rsp), %rax\n"
	"	movq -8(%rbp), %rdi\n"
	"	movq -16(%rbp), %rsi\n"
	"	leave\n"
	".cfi_def_cfa %rsp, 8\n"
	".cfi_restore %rbp\n"
	"	testl %edx, %edx\n"
	"	jz 1f\n"
	"	ret\n"
	"1:	jmp *rs_dlopen_real(%rip)\n"
	".cfi_endproc\n"
	".size dlopen, .-dlopen\n");

bool rs_namespaces;

/* As rs_dlopen. */
bool rs_dlmopen(Lmid_t space, const char *file, int mode, uintptr_t caller, void **result) __attribute__((visibility("hidden")));
void *(*rs_dlmopen_real)(Lmid_t, const char *, int) __attribute__((visibility("hidden")));

bool rs_dlmopen(Lmid_t space, const char *file, int mode, uintptr_t caller, void **result)
{
	rs_dlmopen_real = RS_REAL(dlmopen);
	if (space == LM_ID_NEWLM)
		rs_namespaces = true;
	if (space == LM_ID_BASE)
		binds_past_us(mode);
	struct rs_thread *t = rs_self();
	if (!t)
		return false;
	bool equal = caller_is_equal(file, caller);
	rs_guard_lost(RS_GUARD_LOST_MODULE);
	struct rs_loading l = rs_loader_enter(equal ? t : NULL, false);
	if (equal)
		*result = rs_dlmopen_real(space, file, mode);
	t = equal && !*result ? NULL : rs_self();
	if (t && space == LM_ID_NEWLM)
		rs_notice(t, RS_NOTICE_NAMESPACE, 0, 0);
	if (t && space == LM_ID_BASE)
		bound_past_us(t, mode);
	if (equal) {
		came(*result, 0, l);
		rs_loader_leave(l);
	}
	return equal;
}

__asm__(".text\n.p2align 4\n.globl dlmopen\n.type dlmopen, @function\ndlmopen:\n"
	".cfi_startproc\n"
	"	pushq %rbp\n"
	".cfi_def_cfa_offset 16\n"
	".cfi_offset %rbp, -16\n"
	"	movq %rsp, %rbp\n"
	".cfi_def_cfa_register %rbp\n"
	"	pushq %rdi\n"
	"	pushq %rsi\n"
	"	pushq %rdx\n"
	"	subq $8, %rsp\n"
	"	movq 8(%rbp), %rcx\n"
	"	movq %rsp, %r8\n"
	"	call rs_dlmopen\n"
	"	movzbl %al, %ecx\n"
	"	movq (%rsp), %rax\n"
	"	movq -8(%rbp), %rdi\n"
	"	movq -16(%rbp), %rsi\n"
	"	movq -24(%rbp), %rdx\n"
	"	leave\n"
	".cfi_def_cfa %rsp, 8\n"
	".cfi_restore %rbp\n"
	"	testl %ecx, %ecx\n"
	"	jz 1f\n"
	"	ret\n"
	"1:	jmp *rs_dlmopen_real(%rip)\n"
	".cfi_endproc\n"
	".size dlmopen, .-dlmopen\n");

RS_EXPORT int dlclose(void *handle)
{
	rs_guard_out(RS_GUARD_LOST_MODULE);
	struct rs_loading l = rs_loader_enter(rs_self(), false);
	int r = RS_REAL(dlclose)(handle);
	struct rs_thread *t;
	if (r == 0 && (t = rs_self()))
		rs_modules_changed(t, false);
	rs_loader_leave(l);
	rs_guard_in();
	return r;
}
