/* called.c: accesses that functions of the C library make for their callers, told as if an instruction where they were called made them (access.c).
 *
 * They are no mov instructions, whatever their size: no atomic is accessed so, and so they order nothing, but for rs_called_change. */
#include "called.h"
#include "access.h"
#include "patch.h"
#include <dlfcn.h>
#include <errno.h>

enum { RSP = 4, RBP = 5, RCX = 1 };
enum { SECOND = 16 }; /* bits of a Call's data for each access */

extern const struct rs_called_real *const __start_rs_called_reals[] RS_HIDDEN, *const __stop_rs_called_reals[] RS_HIDDEN;

/* What an allocator of the program's calls while a name is looked up, which allocates and frees. */
static void *plain_set(void *to, int x, size_t n)
{
	for (size_t i = 0; i < n; i++)
		((volatile char *)to)[i] = (char)x;
	return to;
}

static void *plain_move(void *to, const void *from, size_t n)
{
	volatile char *t = to;
	const volatile char *f = from;
	if ((uintptr_t)t < (uintptr_t)f)
		for (size_t i = 0; i < n; i++)
			t[i] = f[i];
	else
		while (n--)
			t[n] = f[n];
	return to;
}

static void *plain(const char *name)
{
	static const char *const names[] = {"memset", "memcpy", "memmove"};
	for (unsigned i = 0; i < 3; i++)
		if (rs_os_length(name) == rs_os_length(names[i]) && rs_os_equal(name, names[i], rs_os_length(name)))
			return i ? (void *)plain_move : (void *)plain_set;
	return NULL;
}

static void find(void)
{
	size_t n = ((uintptr_t)__stop_rs_called_reals - (uintptr_t)__start_rs_called_reals) / sizeof *__start_rs_called_reals;
	for (size_t i = 0; i < n; i++) {
		const struct rs_called_real *r = __start_rs_called_reals[i];
		if (!*r->to)
			*r->to = plain(r->name);
	}
	for (size_t i = 0; i < n; i++) {
		const struct rs_called_real *r = __start_rs_called_reals[i];
		void *real = *r->to && *r->to != plain(r->name) ? NULL : rs_real_find(r->name, "");
		if (real)
			*r->to = real;
	}
}

void rs_called_find(void) { rs_real_quietly(find); }

static bool told; /* all accesses are */

void rs_called_begin(void)
{
	if (!rs_config.all || !rs_config.patch)
		return;
	rs_called_find();
	dlerror(); /* a miss must not be the program's first dlerror() */
	rs_syscall_tells();
	told = true;
}

bool rs_called_told(void) { return told && !rs_config.lines; }

struct rs_called rs_called_by(uintptr_t function, uintptr_t pc, const uint64_t *fp)
{
	bool wanted = told && rs_active && !rs_patch_put_off && !rs_left_out(pc);
	return (struct rs_called){wanted ? rs_self() : NULL, function, pc, (uintptr_t)fp + 16, fp[0]};
}

/* n elements of size bytes. */
static void tell(const struct rs_called *c, uint64_t data, const void *first, const void *second, size_t n, unsigned size)
{
	if (!n)
		return;
	struct rs_access_context x = {.site = c->pc - 1, .next = c->function, .addr = {(uintptr_t)first, (uintptr_t)second}, .data = data, .info = size | (uint64_t)size << 32};
	x.gpr[RCX] = n;
	x.gpr[RSP] = c->rsp;
	x.gpr[RBP] = c->rbp;
	int e = errno;
	rs_access(&x);
	errno = e;
}

void rs_called_read(const struct rs_called *c, const void *p, size_t n)
{
	if (c->t)
		tell(c, READ | REPEATED | CALLED, p, NULL, n, 1);
}

void rs_called_write(const struct rs_called *c, const void *p, size_t n)
{
	if (c->t)
		tell(c, WRITE | REPEATED | CALLED, p, NULL, n, 1);
}

void rs_called_copy(const struct rs_called *c, const void *to, const void *from, size_t n)
{
	if (c->t)
		tell(c, (READ | REPEATED | CALLED) | (WRITE | REPEATED | CALLED) << SECOND, from, to, n, 1);
}

void rs_called_change(const struct rs_called *c, const void *p, size_t n)
{
	if (c->t)
		tell(c, READ | WRITE | ATOMIC | CALLED, p, NULL, 1, (unsigned)n);
}
