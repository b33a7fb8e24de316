/* new.c: C++ operator new and delete, all 20 replaceable forms.
 *
 * Ground rules: as heap.c. Exceptions (bad_alloc, or what a new_handler throws) pass through our frames: nothing of ours is
 * open across the call.
 *
 * Exporting these names from a preloaded object changes who wins: a reference that natively would have found the definition of a
 * library now finds ours. So ours must end where the native lookup would have: the next definition in the global scope (a
 * replacement by a library of the program, or libstdc++), or, where there is none (a C program that dlopens a C++ plugin), the one
 * in the local scope of the calling object, found once per object by its link map. A replacement in the executable wins over us, as it does
 * natively, and is seen through malloc.
 */
#define _GNU_SOURCE 1
#include "heap.h"
#include "os.h"
#include <dlfcn.h>
#include <link.h>

typedef void *(*fn1)(size_t);
typedef void *(*fn2)(size_t, uintptr_t);
typedef void *(*fn3)(size_t, uintptr_t, uintptr_t);
typedef void (*del3)(void *, uintptr_t, uintptr_t);

enum op { NEW, NEW_ARRAY, NEW_NT, NEW_ARRAY_NT, NEW_AL, NEW_ARRAY_AL, NEW_AL_NT, NEW_ARRAY_AL_NT,
	DEL, DEL_ARRAY, DEL_SZ, DEL_ARRAY_SZ, DEL_NT, DEL_ARRAY_NT, DEL_AL, DEL_ARRAY_AL, DEL_SZ_AL, DEL_ARRAY_SZ_AL,
	DEL_AL_NT, DEL_ARRAY_AL_NT, OPS };

static const char *const names[OPS] = {
	"_Znwm", "_Znam", "_ZnwmRKSt9nothrow_t", "_ZnamRKSt9nothrow_t", "_ZnwmSt11align_val_t", "_ZnamSt11align_val_t",
	"_ZnwmSt11align_val_tRKSt9nothrow_t", "_ZnamSt11align_val_tRKSt9nothrow_t",
	"_ZdlPv", "_ZdaPv", "_ZdlPvm", "_ZdaPvm", "_ZdlPvRKSt9nothrow_t", "_ZdaPvRKSt9nothrow_t", "_ZdlPvSt11align_val_t",
	"_ZdaPvSt11align_val_t", "_ZdlPvmSt11align_val_t", "_ZdaPvmSt11align_val_t", "_ZdlPvSt11align_val_tRKSt9nothrow_t",
	"_ZdaPvSt11align_val_tRKSt9nothrow_t"};

static void *global[OPS]; /* definition in the global scope, once found */

/* Definitions in local scopes, by calling object. Lost when full: then looked up each time. */
#define LOCALS 64
static struct { void *map; void *fn; unsigned op; } locals[LOCALS];
static unsigned locals_used;

/* The real operator that this thread called last. libstdc++'s sized delete jumps to the plain one: then the caller by return address is
 * ourselves, and in truth the module of that operator. */
RS_TLS uintptr_t last_real;

extern const char __ehdr_start[] __attribute__((visibility("hidden")));
extern const char _end[] __attribute__((visibility("hidden")));

static bool ours(uintptr_t p) { return p >= (uintptr_t)__ehdr_start && p < (uintptr_t)_end; }

/* dladdr looks at every symbol of the object, and libLLVM has a hundred thousand: it is for a glibc before 2.35. */
static struct link_map *object_of(uintptr_t pc)
{
	static int (*find)(void *, struct dl_find_object *);
	static bool asked;
	if (!__atomic_load_n(&asked, __ATOMIC_ACQUIRE)) {
		__atomic_store_n(&find, (int (*)(void *, struct dl_find_object *))rs_real_find("_dl_find_object", ""), __ATOMIC_RELAXED);
		__atomic_store_n(&asked, true, __ATOMIC_RELEASE);
	}
	struct dl_find_object found;
	if (find)
		return find((void *)pc, &found) == 0 ? found.dlfo_link_map : NULL;
	Dl_info info;
	struct link_map *map = NULL;
	return dladdr1((void *)pc, &info, (void **)&map, RTLD_DL_LINKMAP) ? map : NULL;
}

static void *find_local(enum op op, uintptr_t pc)
{
	struct link_map *map = object_of(ours(pc) ? last_real : pc);
	if (!map || !map->l_name[0]) /* the program's scope is the global one, where we are the only ones */
		return NULL;
	unsigned n = __atomic_load_n(&locals_used, __ATOMIC_ACQUIRE);
	for (unsigned i = 0; i < n && i < LOCALS; i++)
		if (locals[i].map == map && locals[i].op == op && locals[i].fn)
			return locals[i].fn;
	void *handle = dlopen(map->l_name, RTLD_LAZY | RTLD_NOLOAD);
	if (!handle)
		return NULL;
	void *fn = dlsym(handle, names[op]);
	dlclose(handle);
	if (fn) {
		n = __atomic_fetch_add(&locals_used, 1, __ATOMIC_ACQ_REL);
		if (n < LOCALS) {
			locals[n].map = map;
			locals[n].op = op;
			__atomic_store_n(&locals[n].fn, fn, __ATOMIC_RELEASE);
		}
	}
	return fn;
}

/* Any definition but ours. A destructor whose last act is a delete jumps to it, and then the return address is that of its own caller: of libc, when
 * the process ends. The definitions of all local scopes are nearly always those of one libstdc++. */
static void *find_any(enum op op)
{
	struct link_map *own = object_of((uintptr_t)__ehdr_start), *map = own;
	if (!own)
		return NULL;
	while (map->l_prev)
		map = map->l_prev;
	void *fn = NULL;
	for (map = map->l_next; map && !fn; map = map->l_next) { /* the first is the program, whose scope is the global one */
		void *handle = map != own && map->l_name[0] ? dlopen(map->l_name, RTLD_LAZY | RTLD_NOLOAD) : NULL;
		if (handle) {
			fn = dlsym(handle, names[op]);
			dlclose(handle);
		}
	}
	return fn;
}

static void *real_op(enum op op, uintptr_t pc)
{
	void *fn = __atomic_load_n(&global[op], __ATOMIC_RELAXED);
	if (RS_LIKELY(fn != NULL))
		return fn;
	fn = dlsym(RTLD_NEXT, names[op]);
	if (fn)
		__atomic_store_n(&global[op], fn, __ATOMIC_RELEASE);
	else
		fn = find_local(op, pc);
	if (!fn)
		fn = find_any(op);
	if (!fn) { /* The caller refers to an operator that nobody defines: natively it would not have been loaded. */
		static const char text[] = "ripstop: agent: BUG: no definition of an operator new or delete was found\n";
		RS_SYS3(SYS_write, 2, text, sizeof text - 1);
		RS_SYS2(SYS_kill, RS_SYS0(SYS_getpid), SIGABRT);
	}
	last_real = (uintptr_t)fn;
	return fn;
}

/* The runtime's operator calls malloc, a replacement by the program may do anything, such as take locks: it is seen like any code, and
 * heap.c sees to it that the block is told once. */
static void *got(void *p, size_t n, unsigned kind, uintptr_t pc, void *fp)
{
	rs_heap_got(p, n, kind, pc, fp);
	return p;
}

#define PC RS_CALLER()
#define FP __builtin_frame_address(0)

#define DEFINE_NEW(sym, op, kind, params, type, ...) \
	RS_EXPORT void *sym params; \
	RS_EXPORT void *sym params \
	{ \
		type real = (type)real_op(op, PC); \
		rs_heap_operator(); \
		return got(real(__VA_ARGS__), n, RS_ALLOC_##kind, PC, FP); \
	}
DEFINE_NEW(_Znwm, NEW, NEW, (size_t n), fn1, n)
DEFINE_NEW(_Znam, NEW_ARRAY, NEW_ARRAY, (size_t n), fn1, n)
DEFINE_NEW(_ZnwmRKSt9nothrow_t, NEW_NT, NEW, (size_t n, uintptr_t a), fn2, n, a)
DEFINE_NEW(_ZnamRKSt9nothrow_t, NEW_ARRAY_NT, NEW_ARRAY, (size_t n, uintptr_t a), fn2, n, a)
DEFINE_NEW(_ZnwmSt11align_val_t, NEW_AL, NEW, (size_t n, uintptr_t a), fn2, n, a)
DEFINE_NEW(_ZnamSt11align_val_t, NEW_ARRAY_AL, NEW_ARRAY, (size_t n, uintptr_t a), fn2, n, a)
DEFINE_NEW(_ZnwmSt11align_val_tRKSt9nothrow_t, NEW_AL_NT, NEW, (size_t n, uintptr_t a, uintptr_t b), fn3, n, a, b)
DEFINE_NEW(_ZnamSt11align_val_tRKSt9nothrow_t, NEW_ARRAY_AL_NT, NEW_ARRAY, (size_t n, uintptr_t a, uintptr_t b), fn3, n, a, b)

#define DEFINE_DEL(sym, op, kind, params, a, b) \
	RS_EXPORT void sym params; \
	RS_EXPORT void sym params \
	{ \
		del3 real = (del3)real_op(op, PC); \
		rs_heap_give(p, RS_ALLOC_##kind, PC, FP); \
		real(p, a, b); \
		rs_heap_operator(); \
	}
DEFINE_DEL(_ZdlPv, DEL, DELETE, (void *p), 0, 0)
DEFINE_DEL(_ZdaPv, DEL_ARRAY, DELETE_ARRAY, (void *p), 0, 0)
DEFINE_DEL(_ZdlPvm, DEL_SZ, DELETE, (void *p, size_t x), x, 0)
DEFINE_DEL(_ZdaPvm, DEL_ARRAY_SZ, DELETE_ARRAY, (void *p, size_t x), x, 0)
DEFINE_DEL(_ZdlPvRKSt9nothrow_t, DEL_NT, DELETE, (void *p, uintptr_t x), x, 0)
DEFINE_DEL(_ZdaPvRKSt9nothrow_t, DEL_ARRAY_NT, DELETE_ARRAY, (void *p, uintptr_t x), x, 0)
DEFINE_DEL(_ZdlPvSt11align_val_t, DEL_AL, DELETE, (void *p, uintptr_t x), x, 0)
DEFINE_DEL(_ZdaPvSt11align_val_t, DEL_ARRAY_AL, DELETE_ARRAY, (void *p, uintptr_t x), x, 0)
DEFINE_DEL(_ZdlPvmSt11align_val_t, DEL_SZ_AL, DELETE, (void *p, uintptr_t x, uintptr_t y), x, y)
DEFINE_DEL(_ZdaPvmSt11align_val_t, DEL_ARRAY_SZ_AL, DELETE_ARRAY, (void *p, uintptr_t x, uintptr_t y), x, y)
DEFINE_DEL(_ZdlPvSt11align_val_tRKSt9nothrow_t, DEL_AL_NT, DELETE, (void *p, uintptr_t x, uintptr_t y), x, y)
DEFINE_DEL(_ZdaPvSt11align_val_tRKSt9nothrow_t, DEL_ARRAY_AL_NT, DELETE_ARRAY, (void *p, uintptr_t x, uintptr_t y), x, y)
