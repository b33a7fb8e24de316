/* crashtext.c: what libraries know of an abort. glibc keeps the message of a failed assertion and of its own complaints in __abort_msg; libstdc++ keeps the exception for which std::terminate was called.
 *
 * Ground rules that bite here: called in a handler of a crash: memory is read by the kernel, and nothing is called but libstdc++'s __cxa_get_globals_fast, which computes an address of static TLS. The text of an exception is what its what() would return, which may be the program's function: its instructions
 * are followed one by one, with registers and a stack of ours, as long as they are among the few that such functions are made of. */
#include "crashtext.h"
#include "alloc.h"
#include "core.h"
#include "decode.h"
#include <sys/uio.h>

enum { TEXT = 1024 };

/* Of libstdc++, where the exception's allocation is followed by the object: struct __cxa_refcounted_exception (unwind-cxx.h). */
enum { HEADER = 112, HEADER_CLASS = 80, GLOBALS_CAUGHT = 0 };
#define CLASS_PRIMARY 0x474e5543432b2b00u   /* GNUCC++\0 */
#define CLASS_DEPENDENT 0x474e5543432b2b01u /* of rethrow_exception: its first word is the object */

static struct {
	const uintptr_t *abort_msg;
	void *(*globals)(void); /* __cxa_get_globals_fast: the address of a thread-local variable */
	uintptr_t unwinds;      /* a function of libgcc's */
	uintptr_t single, multiple; /* vtables of type_info of classes with one base, and with several */
} library;
static uint32_t aborts; /* tid that called abort */

void rs_crashtext_begin(void)
{
	library.abort_msg = rs_real_meant("__abort_msg", "GLIBC_PRIVATE");
	library.globals = (void *(*)(void))rs_real_meant("__cxa_get_globals_fast", "CXXABI_1.3");
	library.single = (uintptr_t)rs_real_meant("_ZTVN10__cxxabiv120__si_class_type_infoE", "CXXABI_1.3");
	library.unwinds = (uintptr_t)rs_real_meant("_Unwind_RaiseException", "GCC_3.0");
	library.multiple = (uintptr_t)rs_real_meant("_ZTVN10__cxxabiv121__vmi_class_type_infoE", "CXXABI_1.3");
}

bool rs_crashtext_aborts(struct rs_thread *t, uintptr_t pc)
{
	const uintptr_t of[] = {(uintptr_t)library.abort_msg, library.single, library.unwinds};
	const struct rs_module *m = rs_module_of(t, pc);
	for (unsigned i = 0; m && i < sizeof of / sizeof *of; i++)
		if (of[i] && rs_module_of(t, of[i]) == m)
			return true;
	return false;
}

bool rs_crashtext_of_heap(void) { return rs_alloc_says != NULL; }

void rs_crashtext_abort(void) { __atomic_store_n(&aborts, rs_os_tid(), __ATOMIC_RELAXED); }

static bool fetch(uintptr_t at, void *to, size_t n)
{
	struct iovec local = {to, n}, remote = {(void *)at, n};
	return RS_SYS6(SYS_process_vm_readv, rs_os_tid(), &local, 1, &remote, 1, 0) == (long)n;
}

static bool word(uintptr_t at, uint64_t *w) { return fetch(at, w, sizeof *w); }

/* The text at that address, up to a NUL; how much there is. */
static unsigned text(uintptr_t at, char *to, unsigned most)
{
	enum { PIECE = 16 };
	for (unsigned n = 0, piece; n < most; n += piece) {
		piece = PIECE - (at + n) % PIECE < most - n ? PIECE - (at + n) % PIECE : most - n;
		if (!fetch(at + n, to + n, piece))
			return n;
		for (unsigned i = n; i < n + piece; i++)
			if (!to[i])
				return i;
	}
	return most;
}

static void tell(struct rs_thread *t, unsigned kind, const char *s, unsigned n)
{
	uint64_t *w = n ? rs_reserve(t, RS_EV_CRASH_TEXT, RS_CRASH_TEXT_WORDS + (n + 7) / 8) : NULL;
	if (!w)
		return;
	rs_put_crash_text(w, (uint8_t)kind, n);
	rs_put_bytes(w + RS_CRASH_TEXT_WORDS, s, n);
	rs_commit(t);
}

static void tell_message(struct rs_thread *t)
{
	enum { MOST = 1 << 20 };
	uint64_t at;
	uint32_t size;
	char s[TEXT];
	if (rs_crashtext_of_heap()) {
		tell(t, RS_CRASH_TEXT_SAID, rs_alloc_says, (unsigned)rs_os_length(rs_alloc_says));
		return;
	}
	if (!library.abort_msg || __atomic_load_n(&aborts, __ATOMIC_RELAXED) == rs_os_tid() || !word((uintptr_t)library.abort_msg, &at) || !at || !fetch(at, &size, sizeof size) || size > MOST)
		return;
	tell(t, RS_CRASH_TEXT_SAID, s, text(at + sizeof size, s, size < TEXT ? size : TEXT));
}

/* --- what() ----------------------------------------------------------------------------------------------------------------------- */

struct machine { uint64_t r[16], stack[64]; uintptr_t pc; };

static bool put(struct machine *m, uintptr_t at, uint64_t v)
{
	uintptr_t i = at - (uintptr_t)m->stack;
	if (i % 8 || i >= sizeof m->stack)
		return false;
	m->stack[i / 8] = v;
	return true;
}

static bool push(struct machine *m, uint64_t v) { return put(m, m->r[RSP] -= 8, v); }

static bool pop(struct machine *m, uint64_t *v)
{
	m->r[RSP] += 8;
	return word(m->r[RSP] - 8, v);
}

static uintptr_t address(const struct machine *m, const struct rs_instruction *in)
{
	uint64_t a = (uint64_t)(int64_t)in->disp;
	if (in->base == 17)
		a += m->pc;
	else if (in->base < 16)
		a += m->r[in->base];
	return a + (in->index < 16 ? m->r[in->index] << in->scale : 0);
}

static int64_t immediate(const struct rs_instruction *in)
{
	const uint8_t *end = in->at + in->length;
	uint64_t v = 0;
	for (unsigned i = 1; i <= in->imm; i++)
		v = v << 8 | end[-(int)i];
	return in->imm == 1 ? (int8_t)v : in->imm == 4 ? (int32_t)v : (int64_t)v;
}

/* One instruction, of which m->pc is behind already; false: it is not one of those. */
static bool step(struct machine *m, const struct rs_instruction *in)
{
	bool wide = in->rex & 8;
	uint8_t op = in->op, more = in->reg & 7, low = (uint8_t)((op & 7) | (in->rex & 1) << 3);
	uint64_t v;
	if (in->map == 1)
		return op == 0x1e || op == 0x1f; /* endbr64, nop */
	if (in->map || in->small || (in->odd && op != 0xff && op != 0xc3))
		return false;
	if (op >= 0x50 && op <= 0x57)
		return push(m, m->r[low]);
	if (op >= 0x58 && op <= 0x5f)
		return pop(m, &m->r[low]);
	if (op >= 0xb8 && op <= 0xbf) {
		m->r[low] = wide ? (uint64_t)immediate(in) : (uint32_t)immediate(in);
		return true;
	}
	switch (op) {
	case 0x89:
		v = wide ? m->r[in->reg] : (uint32_t)m->r[in->reg];
		if (in->mod != 3)
			return wide && put(m, address(m, in), v);
		m->r[in->rm] = v;
		return true;
	case 0x8b:
		if (in->mod == 3)
			v = m->r[in->rm];
		else if (!wide || !word(address(m, in), &v))
			return false;
		m->r[in->reg] = wide ? v : (uint32_t)v;
		return true;
	case 0x8d:
		if (!wide || in->mod == 3)
			return false;
		m->r[in->reg] = address(m, in);
		return true;
	case 0x03: /* add: thunks of virtual bases */
		if (!wide || (in->mod == 3 ? (v = m->r[in->rm], false) : !word(address(m, in), &v)))
			return false;
		m->r[in->reg] += v;
		return true;
	case 0xc7:
		if (in->mod != 3 || more)
			return false;
		m->r[in->rm] = wide ? (uint64_t)immediate(in) : (uint32_t)immediate(in);
		return true;
	case 0x31:
	case 0x33:
		if (in->mod != 3 || in->reg != in->rm)
			return false;
		m->r[in->reg] = 0;
		return true;
	case 0x81:
	case 0x83:
		if (in->mod != 3 || !wide || (more != 0 && more != 5))
			return false;
		m->r[in->rm] += (uint64_t)(more ? -immediate(in) : immediate(in));
		return true;
	case 0xe8:
	case 0xe9:
	case 0xeb:
		if (op == 0xe8 && !push(m, m->pc))
			return false;
		m->pc += (uintptr_t)immediate(in);
		return true;
	case 0xff:
		if ((more != 2 && more != 4) || (in->mod == 3 ? (v = m->r[in->rm], false) : !word(address(m, in), &v)) || (more == 2 && !push(m, m->pc)))
			return false;
		m->pc = v;
		return true;
	case 0xc9:
		m->r[RSP] = m->r[RBP];
		return pop(m, &m->r[RBP]);
	case 0xc3:
		return pop(m, &m->pc);
	default:
		return op == 0x90 && !in->rex;
	}
}

/* What the function at pc returns for this argument; false: not known. */
static bool returns(uintptr_t pc, uint64_t arg, uint64_t *result)
{
	enum { STEPS = 200 };
	struct machine m;
	rs_os_clear(&m, sizeof m);
	m.r[RDI] = arg;
	m.r[RSP] = (uintptr_t)(m.stack + sizeof m.stack / 8 - 1); /* returns to 0 */
	m.pc = pc;
	for (unsigned i = 0; i < STEPS && m.pc; i++) {
		uint8_t code[15];
		unsigned n = sizeof code;
		struct rs_instruction in;
		while (n && !fetch(m.pc, code, n))
			n--;
		if (!rs_decode(&in, code, n))
			return false;
		m.pc += in.length;
		if (!step(&m, &in))
			return false;
	}
	*result = m.r[RAX];
	return !m.pc;
}

/* --- exceptions --------------------------------------------------------------------------------------------------------------------- */

static const char exception[] = "St9exception";

/* *object is one of this type: makes it the std::exception in it. */
static bool base_of(uintptr_t type, uintptr_t *object)
{
	enum { DEPTH = 16, BASES = 16, VIRTUAL = 1, PUBLIC = 2 };
	struct { uintptr_t type, object; } left[BASES];
	unsigned n = 1;
	left[0].type = type, left[0].object = *object;
	for (unsigned i = 0; n && i < DEPTH * BASES; i++) {
		uint64_t info[3], table, offset, base[2];
		uintptr_t o = left[--n].object, at = left[n].type;
		char name[sizeof exception];
		if (!fetch(at, info, 2 * sizeof *info))
			continue;
		if (text(info[1], name, sizeof name) == sizeof name - 1 && rs_os_equal(name, exception, sizeof name - 1)) {
			*object = o;
			return true;
		}
		if (info[0] == library.single + 16 && word(at + 16, &info[2]))
			left[n].type = info[2], left[n++].object = o;
		if (info[0] != library.multiple + 16 || !word(at + 16, &info[2]))
			continue;
		for (unsigned b = 0; b < (unsigned)(info[2] >> 32) && n < BASES && fetch(at + 24 + 16 * b, base, sizeof base); b++) {
			offset = (uint64_t)((int64_t)base[1] >> 8);
			if (base[1] & VIRTUAL && (!word(o, &table) || !word(table + offset, &offset)))
				continue;
			if (base[1] & PUBLIC)
				left[n].type = base[0], left[n++].object = o + offset;
		}
	}
	return false;
}

/* Has this thread called std::terminate, which called the handler? __terminate of libstdc++ calls what its argument says, and then, should that return, abort. */
static bool terminates(struct rs_thread *t, const uint64_t *g)
{
	enum { R_RBP = 10, R_RBX = 11, R_RSP = 15, R_RIP = 16, NEAR = 32 };
	struct rs_frame f = {.pc = g[R_RIP], .rsp = g[R_RSP], .rbp = g[R_RBP], .rbx = g[R_RBX], .has_rbp = true, .has_rbx = true, .gregs = g};
	uint64_t pcs[NEAR];
	unsigned n = rs_walk(t, &f, true, pcs, NEAR, NULL);
	const struct rs_module *in = rs_module_of(t, (uintptr_t)library.globals), *of;
	for (unsigned i = 1; in && i < n; i++) {
		uint8_t code[3];
		if ((of = rs_module_of(t, pcs[i])) && of->base == in->base && fetch(pcs[i] - 2, code, sizeof code) && code[0] == 0xff && (code[1] & 0xf8) == 0xd0 && (code[2] | 1) == 0xe9)
			return true;
	}
	return false;
}

static void tell_exception(struct rs_thread *t, const uint64_t *g)
{
	uint64_t caught, class, type, name, object, slot;
	char s[TEXT];
	if (!library.globals || !terminates(t, g) || !word((uintptr_t)library.globals() + GLOBALS_CAUGHT, &caught) || !caught || !word(caught + HEADER_CLASS, &class))
		return;
	object = caught + HEADER;
	if ((class != CLASS_PRIMARY && class != CLASS_DEPENDENT) || (class == CLASS_DEPENDENT && !word(caught, &object)))
		return;
	if (!word(object - HEADER, &type) || !word(type + 8, &name))
		return;
	unsigned n = text(name, s, TEXT), star = n && s[0] == '*'; /* a name that is to be compared by its address */
	tell(t, RS_CRASH_TEXT_EXCEPTION, s + star, n - star);
	uintptr_t at = object;
	if (base_of(type, &at) && word(at, &slot) && word(slot + 16, &slot) && returns(slot, at, &name))
		tell(t, RS_CRASH_TEXT_WHAT, s, text(name, s, TEXT));
}

void rs_crashtext_tell(struct rs_thread *t, const void *ucontext)
{
	enum { UCONTEXT_GREGS = 40 };
	tell_message(t);
	tell_exception(t, (const uint64_t *)((const char *)ucontext + UCONTEXT_GREGS));
}
