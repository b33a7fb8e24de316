/* module.c: the loaded ELF objects: which there are, which is at an address, their unwind tables.
 *
 * A new object is noticed when dl.c says so, or at the latest when a stack leads into it. Lookups take no lock: entries are changed in an order
 * that a reader survives, and tables, once mapped, stay. Lock order: the dynamic linker's (inside dl_iterate_phdr) before ours; so nothing
 * of the linker's but the lock-free _dl_find_object is called with our lock held. Signals are blocked under the lock. */
#include "called.h"
#include "core.h"
#include "guardfork.h"
#include "heap.h"
#include "patch.h"
#include "race.h"
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/stat.h>

enum { BATCH = 64, MAX_RETRIES = 5, RETRY_MS = 2000 };

struct rs_module *rs_modules;
static struct rs_module_request *requests; /* parallel to modules: id, build-id, path */
uint32_t rs_module_count;
static uint32_t next_id = 1;
static uint32_t sweep;
static uint32_t needed;                    /* modules whose table was not asked for yet */
static uint32_t retries, retry_at;
static struct rs_lock lock;
static uintptr_t vdso_base;
uint32_t rs_modules_generation = 1;

static int (*real_iterate)(int (*)(struct dl_phdr_info *, size_t, void *), void *);
static int (*real_find_object)(void *, struct dl_find_object *);

/* --- what there is ------------------------------------------------------------------------------------------------------------ */

struct object { uintptr_t base, end, bias, eh_frame_hdr; const char *name; uint8_t build_id[32]; uint32_t build_id_len; };

static void find_build_id(struct object *o, uintptr_t p, uintptr_t end)
{
	while (end - p >= sizeof(Elf64_Nhdr)) {
		const Elf64_Nhdr *n = (const Elf64_Nhdr *)p;
		uintptr_t name = p + sizeof *n, desc = name + ((n->n_namesz + 3ul) & ~3ul), next = desc + ((n->n_descsz + 3ul) & ~3ul);
		if (next > end || next <= p)
			return;
		if (n->n_type == NT_GNU_BUILD_ID && n->n_namesz == 4 && rs_os_equal((const void *)name, "GNU", 4) && n->n_descsz <= sizeof o->build_id) {
			rs_os_copy(o->build_id, (const void *)desc, n->n_descsz);
			o->build_id_len = n->n_descsz;
			return;
		}
		p = next;
	}
}

static bool read_headers(struct object *o, const Elf64_Phdr *ph, unsigned n)
{
	uintptr_t lo = UINTPTR_MAX, hi = 0;
	for (unsigned i = 0; i < n; i++)
		if (ph[i].p_type == PT_LOAD && ph[i].p_memsz) {
			lo = ph[i].p_vaddr < lo ? ph[i].p_vaddr : lo;
			hi = ph[i].p_vaddr + ph[i].p_memsz > hi ? ph[i].p_vaddr + ph[i].p_memsz : hi;
		}
	if (hi <= lo)
		return false;
	o->base = (lo & -RS_PAGE) + o->bias;
	o->end = ((hi + RS_PAGE - 1) & -RS_PAGE) + o->bias;
	for (unsigned i = 0; i < n; i++) {
		uintptr_t at = ph[i].p_vaddr + o->bias;
		if (ph[i].p_type == PT_GNU_EH_FRAME)
			o->eh_frame_hdr = at;
		/* A note that is not loaded is not there to be read. */
		for (unsigned j = 0; ph[i].p_type == PT_NOTE && !o->build_id_len && j < n; j++)
			if (ph[j].p_type == PT_LOAD && ph[j].p_flags & PF_R && ph[i].p_vaddr >= ph[j].p_vaddr &&
			    ph[i].p_vaddr + ph[i].p_filesz <= ph[j].p_vaddr + ph[j].p_filesz)
				find_build_id(o, at, at + ph[i].p_filesz);
	}
	return true;
}

/* An absolute path, as far as it can be told; "" for the vdso. */
static void set_path(struct rs_module_request *q, const struct object *o)
{
	char *to = (char *)q->path;
	size_t room = sizeof q->path - 1, n = 0;
	if (o->base == vdso_base) {
		to[0] = 0;
		return;
	}
	if (!o->name || !o->name[0]) {
		n = rs_exe(to, room);
	} else {
		if (o->name[0] != '/') {
			long r = RS_SYS2(SYS_getcwd, to, room);
			n = r > 1 ? (size_t)r - 1 : 0;
			if (n && to[n - 1] != '/' && n < room)
				to[n++] = '/';
		}
		for (const char *s = o->name; *s && n < room; s++)
			to[n++] = *s;
	}
	to[n] = 0;
}

static void say(struct rs_thread *t, const struct rs_module *m, uintptr_t end, const struct rs_module_request *q)
{
	const char *path = m->base == vdso_base ? "[vdso]" : (const char *)q->path;
	size_t len = rs_os_length(path), n = q->build_id_len + len;
	uint8_t tail[sizeof q->build_id + sizeof q->path];
	rs_os_copy(tail, q->build_id, q->build_id_len);
	rs_os_copy(tail + q->build_id_len, path, len);
	uint64_t *w = rs_reserve(t, RS_EV_MODULE, RS_MODULE_WORDS + (unsigned)(n + 7) / 8);
	if (w) {
		rs_put_module(w, m->base, end, m->bias, m->id, q->build_id_len, n);
		rs_put_bytes(w + RS_MODULE_WORDS, tail, n);
		rs_commit(t);
	}
}

/* --- those whose accesses are not told ---------------------------------------------------------------------------------------------- */

/* By the beginnings of their names, as internal/access has them, and internal/engine what is glibc's. */
static const char *const left_out_names[] = {"libstdc++.so", "libgcc_s.so", "libm.so", "libm-2.", "libgomp.so", "libomp.so", "libiomp5.so", "libc.so.", "libc-2.", "libpthread", "ld-linux", "ld-2.", "libripstop.so"};
enum { LEFT_OUT = 16, PATCHED = 7 }; /* PATCHED: so many of them are not glibc's, nor ours */
static struct { uintptr_t base, end; bool glibc; } left_out[LEFT_OUT]; /* end 0: free; glibc: or ours */

static bool begins(const char *path, size_t from, size_t to)
{
	const char *name = path;
	for (const char *s = path; *s; s++)
		if (*s == '/')
			name = s + 1;
	for (size_t i = from; i < to; i++) {
		const char *a = left_out_names[i], *b = name;
		while (*a && *a == *b)
			a++, b++;
		if (!*a)
			return true;
	}
	return false;
}

bool rs_is_glibc(const char *path) { return begins(path, PATCHED, sizeof left_out_names / sizeof *left_out_names); }
static bool is_left_out(const char *path) { return begins(path, 0, sizeof left_out_names / sizeof *left_out_names); }

/* Locked. One too many is as if it were the program's. */
static void leave_out(uintptr_t base, uintptr_t end, bool glibc)
{
	for (unsigned i = 0; i < LEFT_OUT; i++)
		if (!left_out[i].end) {
			left_out[i].base = base;
			left_out[i].glibc = glibc;
			__atomic_store_n(&left_out[i].end, end, __ATOMIC_RELEASE);
			return;
		}
}

static void leave_in(uintptr_t base)
{
	for (unsigned i = 0; i < LEFT_OUT; i++)
		if (left_out[i].end && left_out[i].base == base)
			__atomic_store_n(&left_out[i].end, 0, __ATOMIC_RELEASE);
}

bool rs_left_out(uintptr_t pc)
{
	for (unsigned i = 0; i < LEFT_OUT; i++)
		if (pc < __atomic_load_n(&left_out[i].end, __ATOMIC_ACQUIRE) && pc >= left_out[i].base)
			return true;
	return false;
}

bool rs_not_patched(uintptr_t pc)
{
	for (unsigned i = 0; i < LEFT_OUT; i++)
		if (pc < __atomic_load_n(&left_out[i].end, __ATOMIC_ACQUIRE) && pc >= left_out[i].base)
			return left_out[i].glibc;
	return false;
}

/* --- which there are ------------------------------------------------------------------------------------------------------------------ */

static void new_generation(void) { __atomic_add_fetch(&rs_modules_generation, 1, __ATOMIC_RELEASE); }

static void forget(struct rs_thread *t, struct rs_module *m)
{
	if (m->table == RS_TABLE_NEEDED)
		needed--;
	uintptr_t base = m->base, size = m->end - m->base;
	__atomic_store_n(&m->end, 0, __ATOMIC_RELEASE);
	leave_in(base);
	new_generation();
	if (t) {
		rs_sync_memory_unmapped(t, base, size); /* what is mapped there next has other locks at the same addresses */
		RS_EMIT(t, MODULE_GONE, module_gone, m->id);
	}
}

/* Locked. t NULL: nothing is sent. False: it was there. */
static bool add(struct rs_thread *t, const struct object *o)
{
	struct rs_module *m = NULL;
	for (uint32_t i = 0; i < rs_module_count; i++) {
		struct rs_module *x = &rs_modules[i];
		if (x->end && x->base == o->base && x->end == o->end && x->bias == o->bias && requests[i].build_id_len == o->build_id_len &&
		    rs_os_equal(requests[i].build_id, o->build_id, o->build_id_len)) {
			x->seen = sweep;
			return false;
		}
		if (x->end && x->base < o->end && o->base < x->end)
			forget(t, x);
	}
	/* An entry of its own again for a library that comes back: its table is still mapped. */
	for (uint32_t i = 0; i < rs_module_count && o->build_id_len; i++)
		if (!rs_modules[i].end && rs_modules[i].table == RS_TABLE_HAS && requests[i].build_id_len == o->build_id_len &&
		    rs_os_equal(requests[i].build_id, o->build_id, o->build_id_len))
			m = &rs_modules[i];
	/* An entry with a table is not given to others: a reader may still be in the table. */
	for (uint32_t i = 0; i < rs_module_count && !m; i++)
		if (!rs_modules[i].end && rs_modules[i].table != RS_TABLE_HAS)
			m = &rs_modules[i];
	if (!m) {
		if (rs_module_count == RS_MAX_MODULES) {
			if (t)
				rs_notice(t, RS_NOTICE_LIMIT, 0, RS_MAX_MODULES);
			return true;
		}
		m = &rs_modules[rs_module_count];
	}
	struct rs_module_request *q = &requests[m - rs_modules];
	if (m->table == RS_TABLE_HAS)
		m->rows_base += o->bias - m->bias;
	else {
		m->table = o->eh_frame_hdr ? RS_TABLE_NEEDED : RS_TABLE_NONE;
		needed += m->table == RS_TABLE_NEEDED;
	}
	m->id = next_id++;
	m->base = o->base;
	m->bias = o->bias;
	m->seen = sweep;
	q->id = m->id;
	q->base = o->base;
	q->bias = o->bias;
	q->eh_frame_hdr = o->eh_frame_hdr;
	q->build_id_len = o->build_id_len;
	rs_os_copy(q->build_id, o->build_id, sizeof q->build_id);
	set_path(q, o);
	/* An allocator of the program's reads and writes blocks that are free. Its atomics are told, as of the others (internal/access). */
	if (o->name && o->name[0] && (is_left_out((const char *)q->path) || (uintptr_t)rs_real.malloc - o->base < o->end - o->base))
		leave_out(o->base, o->end, rs_is_glibc((const char *)q->path));
	if (t)
		say(t, m, o->end, q);
	__atomic_store_n(&m->end, o->end, __ATOMIC_RELEASE);
	if (m == &rs_modules[rs_module_count])
		__atomic_store_n(&rs_module_count, rs_module_count + 1, __ATOMIC_RELEASE);
	new_generation();
	rs_guard_fork_loads(o->base, o->bias);
	return true;
}

static int add_listed(struct dl_phdr_info *info, size_t size, void *t)
{
	(void)size;
	struct object o = {.bias = info->dlpi_addr, .name = info->dlpi_name};
	if (!read_headers(&o, info->dlpi_phdr, info->dlpi_phnum))
		return 0;
	uint64_t mask = rs_os_no_signals();
	rs_lock(&lock);
	bool is_new = add(t, &o);
	rs_unlock(&lock);
	rs_os_signals(mask);
	if (is_new) {
		rs_heap_imports(info);
		rs_heap_say_past(t);
	}
	return 0;
}

static int find_allocator(struct dl_phdr_info *info, size_t size, void *arg)
{
	(void)size, (void)arg;
	rs_heap_allocator(info);
	return 0;
}

/* The object at pc by the linker's lock-free table. */
static bool find_object(uintptr_t pc, struct object *o)
{
	struct dl_find_object f;
	if (!real_find_object || real_find_object((void *)pc, &f) != 0)
		return false;
	const Elf64_Ehdr *e = f.dlfo_map_start;
	*o = (struct object){.bias = f.dlfo_link_map->l_addr, .name = f.dlfo_link_map->l_name};
	if (rs_os_equal(e->e_ident, ELFMAG, SELFMAG) && e->e_phentsize == sizeof(Elf64_Phdr) &&
	    e->e_phoff + e->e_phnum * sizeof(Elf64_Phdr) <= RS_PAGE &&
	    read_headers(o, (const Elf64_Phdr *)((uintptr_t)e + e->e_phoff), e->e_phnum) && o->base <= pc && pc < o->end)
		return true;
	o->base = (uintptr_t)f.dlfo_map_start;
	o->end = (uintptr_t)f.dlfo_map_end;
	o->eh_frame_hdr = (uintptr_t)f.dlfo_eh_frame;
	return o->base <= pc && pc < o->end;
}

void rs_modules_init(uintptr_t vdso)
{
	vdso_base = vdso;
	real_iterate = (int (*)(int (*)(struct dl_phdr_info *, size_t, void *), void *))rs_real_find("dl_iterate_phdr", "");
	real_find_object = (int (*)(void *, struct dl_find_object *))rs_real_find("_dl_find_object", "");
	rs_modules = rs_os_map(RS_MAX_MODULES * sizeof *rs_modules);
	requests = rs_os_map(RS_MAX_MODULES * sizeof *requests);
	if (!rs_modules || !requests || !real_iterate) {
		rs_modules = NULL;
		return;
	}
	real_iterate(find_allocator, NULL);
	real_iterate(add_listed, NULL);
}

void rs_modules_say(struct rs_thread *t)
{
	for (uint32_t i = 0; rs_modules && i < rs_module_count; i++)
		if (rs_modules[i].end)
			say(t, &rs_modules[i], rs_modules[i].end, &requests[i]);
}

void rs_modules_come(struct rs_thread *t)
{
	if (!rs_modules || !rs_active)
		return;
	__atomic_store_n(&rs_race_loads, t->number, __ATOMIC_RELAXED);
	real_iterate(add_listed, t);
	__atomic_store_n(&rs_race_loads, 0, __ATOMIC_RELAXED);
}

void rs_modules_changed(struct rs_thread *t, bool asked)
{
	if (!rs_modules || !rs_active)
		return;
	uint32_t mine = __atomic_add_fetch(&sweep, 1, __ATOMIC_ACQ_REL);
	real_iterate(add_listed, t);
	uint64_t mask = rs_os_no_signals();
	rs_lock(&lock);
	for (uint32_t i = 0; i < rs_module_count; i++) {
		struct rs_module *m = &rs_modules[i];
		struct object o;
		/* Not in the list: gone, or in another namespace than the caller's. */
		if (m->end && (int32_t)(m->seen - mine) < 0 && !(find_object(m->base, &o) && o.base == m->base && o.end == m->end))
			forget(t, m);
	}
	rs_unlock(&lock);
	rs_os_signals(mask);
	if (t && !asked)
		rs_patch_modules();
}

/* In the child there is nobody else to hold the lock; if somebody did at the fork, an entry may be half made. */
void rs_modules_after_fork(void)
{
	if (lock.word) {
		lock.word = 0;
		needed = 0;
		for (uint32_t i = 0; i < RS_MAX_MODULES && rs_modules; i++) {
			rs_modules[i].end = 0;
			rs_modules[i].table = RS_TABLE_NONE;
		}
		rs_module_count = 0;
		new_generation();
	}
}

/* --- tables --------------------------------------------------------------------------------------------------------------------- */

/* Maps the table in fd, or copies it if whoever has the file could still change or shorten it under us. What is no memfd (EINVAL) is a file of Go's cache, which
 * nobody changes. Where there are epochs it is copied, too: a mapping of the file would lie where one of the program's lay earlier in the epoch, and will again, and a rollback would have to find the file. */
static const void *map_table(int fd, uint64_t *bytes)
{
	struct stat st;
	if (RS_SYS2(SYS_fstat, fd, &st) < 0 || st.st_size < (long)sizeof(struct rs_unwind_header) || st.st_size > 1l << 30)
		return NULL;
	uint64_t n = (uint64_t)st.st_size;
	*bytes = n;
	long seals = RS_SYS3(SYS_fcntl, fd, F_GET_SEALS, 0);
	if (!rs_os_placed() && (seals == -EINVAL || (seals >= 0 && seals & F_SEAL_SHRINK && seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE)))) {
		long p = RS_SYS6(SYS_mmap, 0, n, PROT_READ, MAP_PRIVATE, fd, 0);
		if (p < 0 && p > -4096)
			return NULL;
		RS_SYS3(SYS_madvise, p, n, MADV_DONTDUMP);
		return (void *)p;
	}
	char *copy = rs_os_map(n);
	for (uint64_t at = 0; copy && at < n;) {
		long r = RS_SYS4(SYS_pread64, fd, copy + at, n - at, at);
		if (r <= 0) {
			rs_os_unmap(copy, n);
			return NULL;
		}
		at += (uint64_t)r;
	}
	return copy;
}

/* What the header promises must lie in the file. The rows' rule numbers are checked where they are used. */
static bool use_table(struct rs_module *m, const void *p, uint64_t bytes)
{
	const struct rs_unwind_header *h = p;
	if (!h || h->magic != RS_MAGIC || h->version != RS_WIRE_VERSION || h->rules == 0 ||
	    h->rules > (bytes - sizeof *h) / sizeof(struct rs_unwind_rule) || h->rows_offset % 8 ||
	    h->rows_offset < sizeof *h + h->rules * sizeof(struct rs_unwind_rule) || h->rows_offset > bytes ||
	    h->rows > (bytes - h->rows_offset) / sizeof(struct rs_unwind_row) ||
	    h->pages > (bytes - h->rows_offset - h->rows * sizeof(struct rs_unwind_row)) / sizeof(uint32_t))
		return false;
	m->rules = (const struct rs_unwind_rule *)(h + 1);
	m->rows = (const struct rs_unwind_row *)((const char *)p + h->rows_offset);
	m->rule_count = h->rules;
	m->row_count = h->rows;
	m->pages = (const uint32_t *)(m->rows + h->rows);
	m->page_count = h->pages;
	m->rows_base = h->base + m->bias;
	return true;
}

struct fetch { unsigned n; struct rs_module *m[BATCH]; struct rs_module_request q[BATCH]; const void *table[BATCH]; uint64_t bytes[BATCH]; long result; };

static void receive_tables(struct fetch *f, int sock)
{
	int fds[BATCH];
	f->result = rs_session_tables(sock, f->n, fds);
	for (unsigned i = 0; f->result == 0 && i < f->n; i++)
		if (fds[i] >= 0) {
			f->table[i] = map_table(fds[i], &f->bytes[i]);
			RS_SYS1(SYS_close, fds[i]);
		}
}

static void fetch(void *arg)
{
	struct fetch *f = arg;
	long sock = rs_session_connect();
	if ((f->result = sock) < 0)
		return;
	if ((f->result = rs_session_ask_tables((int)sock, f->q, f->n)) == 0)
		receive_tables(f, (int)sock);
	RS_SYS1(SYS_close, sock);
}

/* From the at'th module on, as many as go into a message. */
static uint32_t gather(struct fetch *f, uint32_t at)
{
	rs_os_clear(f, sizeof *f);
	for (; at < rs_module_count && f->n < BATCH; at++)
		if (rs_modules[at].end && rs_modules[at].table == RS_TABLE_NEEDED) {
			f->m[f->n] = &rs_modules[at];
			rs_os_copy(&f->q[f->n++], &requests[at], sizeof *requests);
		}
	return at;
}

static void use_tables(const struct fetch *f)
{
	for (unsigned i = 0; i < f->n; i++, needed--) {
		bool ok = use_table(f->m[i], f->table[i], f->bytes[i]);
		__atomic_store_n(&f->m[i]->table, ok ? RS_TABLE_HAS : RS_TABLE_NONE, __ATOMIC_RELEASE);
	}
	new_generation();
}

static struct fetch *asked; /* with the hello, and not answered yet */

/* Nearly every program soon wants the tables of what it was started with: they come with the first answer, and not by a message of their own. */
void rs_modules_ask(int sock)
{
	if (!rs_modules || !needed || !(asked = rs_os_map(sizeof *asked)))
		return;
	gather(asked, 0);
	if (rs_session_ask_tables(sock, asked->q, asked->n) < 0) {
		rs_os_unmap(asked, sizeof *asked);
		asked = NULL;
	}
}

/* False: there was no answer in time. What was not answered is asked for again when it is needed. */
bool rs_modules_answered(int sock)
{
	if (!asked)
		return true;
	receive_tables(asked, sock);
	bool answered = asked->result == 0;
	if (answered && (rs_config.stack_depth || rs_config.alloc_depth))
		use_tables(asked);
	rs_os_unmap(asked, sizeof *asked);
	asked = NULL;
	return answered;
}

/* There is no session. */
void rs_modules_end(void)
{
	rs_module_count = needed = 0;
	if (asked)
		rs_os_unmap(asked, sizeof *asked);
	if (rs_modules)
		rs_os_unmap(rs_modules, RS_MAX_MODULES * sizeof *rs_modules);
	if (requests)
		rs_os_unmap(requests, RS_MAX_MODULES * sizeof *requests);
	rs_modules = NULL;
	requests = NULL;
	asked = NULL;
}

/* Locked. Asks for all tables that are needed. Modules without answer are asked for again some times: the first compilation of a large program
 * may take longer than a program should wait. */
static void fetch_tables(struct rs_thread *t)
{
	if (rs_sandboxed || !rs_active || __atomic_load_n(&rs_ctl->closing, __ATOMIC_RELAXED) ||
	    (retries && (int32_t)(rs_os_ms() - retry_at) < 0))
		return;
	struct fetch *f = rs_os_map(sizeof *f);
	if (!f)
		return;
	for (uint32_t at = 0; needed && at < rs_module_count;) {
		at = gather(f, at);
		if (f->n == 0)
			break;
		rs_os_apart(fetch, f);
		if (f->result < 0) {
			rs_notice(t, RS_NOTICE_NO_UNWIND_TABLE, (int)-f->result, 0);
			if (++retries > MAX_RETRIES)
				for (unsigned i = 0; i < f->n; i++, needed--)
					f->m[i]->table = RS_TABLE_NONE;
			retry_at = rs_os_ms() + RETRY_MS;
			break;
		}
		use_tables(f);
	}
	rs_os_unmap(f, sizeof *f);
}

/* --- lookup ------------------------------------------------------------------------------------------------------------------------ */

const struct rs_module *rs_module_of(struct rs_thread *t, uintptr_t pc)
{
	if (!rs_modules)
		return NULL;
	struct rs_module *m = rs_module_known(pc);
	struct object o;
	if (m && __atomic_load_n(&m->table, __ATOMIC_ACQUIRE) != RS_TABLE_NEEDED)
		return m;
	bool found = m || find_object(pc, &o);
	if (!found)
		return m;
	uint64_t mask = rs_os_no_signals();
	rs_lock(&lock);
	if (!m)
		add(t, &o);
	if (needed)
		fetch_tables(t);
	rs_unlock(&lock);
	rs_os_signals(mask);
	return rs_module_known(pc);
}
