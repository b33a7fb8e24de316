/* init.c: how the agent comes to a process and leaves it: the constructor, the environment, fork, detaching, liveness of the Go side. */
#include "alloc.h"
#include "calls.h"
#include "called.h"
#include "core.h"
#include "crash.h"
#include "guardlog.h"
#include "guardthread.h"
#include "heap.h"
#include "race.h"
#include "patch.h"
#include <elf.h>
#include <errno.h>
#include <sys/mman.h>
#include <sys/uio.h>

#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18
#endif

__thread struct rs_thread *rs_thread_tls;
struct rs_config rs_config;
struct rs_ctl *rs_ctl;
uint32_t rs_sandboxed;
struct rs_process rs_process;
char *rs_env_preload, *rs_env_session;

/* rs_active has a page to itself, which a fork wipes: a child whose birth we did not see (a raw clone by the program) must not write to
 * its parent's rings. */
static uint32_t active_page[RS_PAGE / 4] __attribute__((aligned(4096)));
extern uint32_t rs_active __attribute__((alias("active_page")));
static bool session_over; /* as rs_active, but lives through a fork */
static bool born_sandboxed;

/* --- environment ------------------------------------------------------------------------------------------------------------ */

static char preload_copy[192], session_copy[160];

static const char *value_of(const char *entry, const char *name)
{
	size_t n = 0;
	while (name[n] && entry[n] == name[n])
		n++;
	return !name[n] && entry[n] == '=' ? entry + n + 1 : NULL;
}

static bool separator(char c) { return c == ':' || c == ' '; }

/* Takes the element that lies in dir out of a LD_PRELOAD list, with one separator, in place; a copy goes to preload_copy. True if
 * nothing is left: then the variable was ours alone. */
static bool take_element(char *list, const char *dir)
{
	size_t n = rs_os_length(dir), start = 0, end;
	for (;; start = end + 1) {
		for (end = start; list[end] && !separator(list[end]);)
			end++;
		if (end - start > n && rs_os_equal(list + start, dir, n) && list[start + n] == '/')
			break;
		if (!list[end])
			return false;
	}
	static const char name[] = "LD_PRELOAD=";
	if (end - start + sizeof name <= sizeof preload_copy) {
		rs_os_copy(preload_copy, name, sizeof name - 1);
		rs_os_copy(preload_copy + sizeof name - 1, list + start, end - start);
		preload_copy[sizeof name - 1 + end - start] = 0;
	}
	if (start == 0 && !list[end])
		return true;
	if (list[end])
		end++; /* the separator behind it, else the one before */
	else
		start--;
	size_t i = 0;
	do
		list[start + i] = list[end + i];
	while (list[end + i++]);
	return false;
}

/* Environment strings lie one behind the other, and programs that write their title over them rely on it: close the gaps. What a string was
 * longer before, and strings that went, become zeros at the end. */
static void close_gaps(char **envp, char *first, char *end)
{
	char *at = first;
	for (char **e = envp; *e; e++) {
		size_t n = rs_os_length(*e) + 1;
		if (*e < at || *e + n > end)
			return; /* not as the kernel laid them out */
		if (*e != at)
			rs_os_copy(at, *e, n); /* downwards, from the lower end: may overlap */
		*e = at;
		at += n;
	}
	rs_os_clear(at, (size_t)(end - at));
}

/* Takes what `ripstop run` added out of the environment, as if it had never been there. False: no session. */
static bool clean_environment(char **envp)
{
	const char *dir = NULL;
	char *first = NULL, *end = NULL;
	bool ordered = true, profiling = false;
	for (char **e = envp; *e; e++) {
		const char *v = value_of(*e, "RIPSTOP_SESSION");
		if (v)
			dir = v;
		/* ld.so keeps pointers to the values of these. */
		if (value_of(*e, "LD_ORIGIN_PATH") || value_of(*e, "LD_PROFILE_OUTPUT") || value_of(*e, "GLIBC_TUNABLES"))
			profiling = true;
		if (!first)
			first = *e;
		else if (*e != end)
			ordered = false;
		end = *e + rs_os_length(*e) + 1;
	}
	size_t n = dir ? rs_os_length(dir) : 0;
	if (n == 0 || dir[0] != '/' || n >= sizeof rs_session_dir)
		return false;
	rs_os_copy(rs_session_dir, dir, n + 1);
	rs_os_copy(session_copy, "RIPSTOP_SESSION=", 16);
	rs_os_copy(session_copy + 16, dir, n + 1);
	char **to = envp;
	for (char **e = envp; *e; e++) {
		char *v = (char *)value_of(*e, "LD_PRELOAD");
		if (value_of(*e, "RIPSTOP_SESSION") || value_of(*e, "RIPSTOP_PAD") || (v && take_element(v, rs_session_dir))) {
			rs_os_clear(*e, rs_os_length(*e)); /* for readers of /proc/PID/environ, if the gap stays */
			continue;
		}
		*to++ = *e;
	}
	/* The auxiliary vector begins behind the array's NULL: some runtimes find it by walking there, ld.so has its address. So it stays where it is, and
	 * what is free now becomes entries to be ignored. With an odd number of them there is no such way (hence RIPSTOP_PAD): then the walkers
	 * find an empty vector, and the careful ones look in /proc. */
	size_t gone = 0;
	while (to[gone])
		gone++;
	for (size_t i = 0; i < gone; i++)
		to[i] = NULL;
	for (size_t i = 1; gone % 2 == 0 && i < gone; i += 2)
		to[i] = (char *)(uintptr_t)AT_IGNORE;
	if (ordered && !profiling)
		close_gaps(envp, first, end);
	return true;
}

/* --- start ---------------------------------------------------------------------------------------------------------------------- */

static int saved_argc;
static char **saved_argv;

static long map_ctl(int fd)
{
	long p = RS_SYS6(SYS_mmap, 0, RS_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (p < 0)
		return p;
	struct rs_ctl *c = (void *)p;
	/* cppcheck-suppress nullPointerRedundantCheck ; mmap does not return 0 */
	if (c->magic != RS_MAGIC || c->version != RS_WIRE_VERSION) {
		RS_SYS2(SYS_munmap, p, RS_PAGE);
		return -EPROTO;
	}
	RS_SYS3(SYS_madvise, p, RS_PAGE, MADV_DONTDUMP);
	rs_ctl = c;
	return 0;
}

static bool sane(const struct rs_config *c)
{
	for (int i = 0; i < 2; i++) {
		uint32_t n = i ? c->nest_bytes : c->lane_bytes;
		if (n < RS_PAGE || n > 1u << 30 || n & (n - 1))
			return false;
	}
	return true;
}

struct opening { uintptr_t stack_hi; struct rs_thread *t; const char *what; long why; };

static void open_session(void *arg)
{
	struct opening *o = arg;
	struct rs_welcome w;
	int fd = -1;
	o->what = "it is not watched: cannot connect to the session";
	long sock = rs_session_connect();
	if ((o->why = sock) < 0)
		return;
	o->what = "it is not watched: the session does not answer";
	o->why = rs_session_hello((int)sock);
	if (o->why == 0) {
		rs_modules_ask((int)sock);
		o->why = rs_session_welcome((int)sock, &w, &fd);
	}
	if (o->why == 0) {
		o->why = map_ctl(fd);
		o->what = "it is not watched: cannot map the session's control page";
		RS_SYS1(SYS_close, fd);
	}
	if (o->why == 0 && !sane(&w.config[0]))
		o->why = -EPROTO;
	if (o->why == 0) {
		rs_config = w.config[0];
		rs_os_say_begin();
		rs_race_live_begin();
		rs_called_begin();
		rs_process.id = __atomic_fetch_add(&rs_ctl->next_process, 1, __ATOMIC_RELAXED);
		rs_stack_init();
		rs_calls_begin();
		o->what = "it is not watched: cannot share memory with the session";
		bool known = rs_modules_answered((int)sock);
		if (!known) { /* the answer may still come, and would be taken for another one */
			RS_SYS1(SYS_close, sock);
			sock = rs_session_connect();
		}
		o->t = rs_thread_main(known ? (int)sock : -1, o->stack_hi, &o->why);
		if (!o->t && o->why == 0)
			o->why = -ENOMEM;
		if (o->t && rs_config.patch == 1 && sock >= 0)
			rs_patch_open((int)sock);
	}
	if (sock >= 0)
		RS_SYS1(SYS_close, sock);
}

static void start(char **envp)
{
	uintptr_t vdso = 0;
	char **e = envp;
	while (*e)
		e++;
	for (Elf64_auxv_t *a = (Elf64_auxv_t *)(e + 1); a->a_type != AT_NULL; a++)
		if (a->a_type == AT_SYSINFO_EHDR)
			vdso = a->a_un.a_val;
	if (!clean_environment(envp))
		return;
	rs_process.pid = rs_os_pid();
	uint64_t mask = rs_os_no_signals();
	rs_os_piece_begin();
	struct opening o = {.stack_hi = (uintptr_t)envp};
	rs_modules_init(vdso);
	rs_os_apart(open_session, &o);
	struct rs_thread *t = o.t;
	if (t) {
		/* A kernel before 4.14 refuses, and does not tell such children apart. */
		RS_SYS3(SYS_madvise, active_page, RS_PAGE, MADV_WIPEONFORK);
		rs_thread_init();
		rs_os_piece_end();
		if (rs_config.follow && preload_copy[0]) {
			rs_env_preload = preload_copy;
			rs_env_session = session_copy;
		}
		rs_heap_begin(rs_config.allocator);
		rs_active = 1;
		rs_begin_process(t);
		rs_heap_begun(t);
		rs_patch_say(t);
		bool guard = (rs_config.allocator & 0xff) == RS_ALLOCATOR_FREER;
		if (guard || (rs_config.races == 1 && !rs_config.guard))
			rs_crash_begin(guard);
		rs_patch_start(mask);
		if (rs_alloc.on)
			rs_real.free(rs_real.malloc(1)); /* what is not ours comes to libc's free, which dies another way as long as its heap has not begun */
		const uint64_t trap = 1ull << (SIGTRAP - 1);
		if (rs_trapping && mask & trap) {
			rs_trap_block(true);
			mask &= ~trap;
		}
	}
	rs_os_signals(mask);
	rs_patch_started(mask);
	if (t)
		rs_guard_session();
	if (!t) {
		rs_modules_end();
		rs_os_piece_end();
		rs_ctl = NULL;
		rs_os_clear(&rs_config, sizeof rs_config);
		if (!rs_nobody(o.why))
			rs_os_say(o.what, o.why);
	}
}

static __attribute__((constructor)) void constructor(int argc, char **argv, char **envp)
{
	saved_argc = argc;
	saved_argv = argv;
	rs_init();
	rs_real_init_maybe();
	start(envp);
	RS_GUARD_FORGET();
}

/* All that can be done before the constructor: nothing is known of a session yet. */
void rs_init(void)
{
	rs_real_init();
}

/* Asked of the kernel once, before there are threads; a forked child has it from its parent. */
size_t rs_exe(char *to, size_t room)
{
	static char path[1024];
	static size_t length;
	if (!length) {
		long n = RS_SYS3(SYS_readlink, "/proc/self/exe", path, sizeof path);
		length = n > 0 ? (size_t)n : 0;
	}
	size_t n = length < room ? length : room;
	rs_os_copy(to, path, n);
	return n;
}

void rs_begin_process(struct rs_thread *t)
{
	if (rs_process.begun)
		return;
	rs_process.begun = true;
	/* Path and arguments, as much as a modest record takes. */
	char tail[2048];
	long n = (long)rs_exe(tail, 1024);
	tail[n++] = 0;
	for (int i = 0; i < saved_argc && saved_argv[i]; i++) {
		size_t len = rs_os_length(saved_argv[i]) + 1;
		if ((size_t)n + len > sizeof tail)
			break;
		rs_os_copy(tail + n, saved_argv[i], len);
		n += (long)len;
	}
	uint64_t *w = rs_reserve(t, RS_EV_PROCESS, RS_PROCESS_WORDS + (unsigned)(n + 7) / 8);
	if (w) {
		rs_put_process(w, rs_process.pid, (uint32_t)RS_SYS0(SYS_getppid), rs_process.start, rs_process.parent_thread, rs_process.id,
			       rs_process.parent, (uint64_t)n);
		rs_put_bytes(w + RS_PROCESS_WORDS, tail, (size_t)n);
		rs_commit(t);
	}
	rs_thread_say_start(t);
	rs_modules_say(t);
}

/* --- fork ------------------------------------------------------------------------------------------------------------------------- */

void rs_init_after_fork(void)
{
	if (!rs_ctl || session_over)
		return;
	uint64_t mask = rs_os_no_signals();
	struct rs_thread *t = rs_thread_tls;
	rs_process.parent = rs_process.id;
	rs_process.parent_thread = t ? t->number : 0;
	rs_process.id = __atomic_fetch_add(&rs_ctl->next_process, 1, __ATOMIC_RELAXED);
	rs_process.pid = rs_os_pid();
	rs_process.start = RS_START_FORK;
	rs_process.begun = false;
	born_sandboxed = rs_sandboxed;
	rs_active = 1;
	rs_region_after_fork(t);
	rs_thread_after_fork(rs_thread_tls);
	rs_sync_after_fork(rs_thread_tls);
	rs_modules_after_fork();
	rs_stack_after_fork();
	if (rs_config.races && rs_thread_tls) {
		rs_thread_tls->race = NULL;
		rs_race_after_fork(rs_thread_tls->number);
	}
	rs_calls_after_fork_join(rs_thread_tls);
	rs_os_signals(mask);
}

/* --- leaving ------------------------------------------------------------------------------------------------------------------------ */

static bool detach(void)
{
	session_over = true;
	bool first = __atomic_exchange_n(&rs_active, 0, __ATOMIC_SEQ_CST) == 1;
	rs_env_preload = rs_env_session = NULL;
	rs_region_mark_detached();
	return first;
}

void rs_detach(void) { detach(); }

void rs_give_up(const char *what, long error)
{
	if (detach() && !rs_nobody(error))
		rs_os_say(what, error);
}

/* Go may live in another pid namespace, or have ended and its pid been given away: the pid alone proves neither life nor death. */
#define STALE_MS 1000
#define LOST_MS 30000

/* An exited process, a zombie included, has no memory to read: ESRCH. Any other answer comes from a living one, or from a sandbox. */
bool rs_go_dead(void)
{
	long pid = rs_ctl->go_pid;
	char byte;
	struct iovec local = {&byte, 1}, remote = {NULL, 1};
	if (rs_sandboxed)
		return false;
	return RS_SYS2(SYS_kill, pid, 0) == -ESRCH || RS_SYS6(SYS_process_vm_readv, pid, &local, 1, &remote, 1, 0) == -ESRCH;
}

/* Who waits asks more often. If nobody has asked for so long the process was stopped, and Go perhaps with it (Ctrl-Z, a paused machine). */
#define STOPPED_MS 2000

/* To be asked again and again by who waits for Go; *beat and *since begin at 0. */
bool rs_go_gone(uint32_t *beat, uint32_t *since)
{
	static uint32_t asked;
	if (!rs_active || __atomic_load_n(&rs_ctl->closing, __ATOMIC_RELAXED))
		return true;
	uint32_t now = rs_os_ms(), seen = __atomic_load_n(&rs_ctl->heartbeat_ms, __ATOMIC_RELAXED);
	bool stopped = now - __atomic_exchange_n(&asked, now, __ATOMIC_RELAXED) > STOPPED_MS;
	uint32_t stale = now - *since;
	if (seen == *beat && *since != 0) {
		if (stale > STALE_MS && rs_go_dead())
			return true;
		if (!stopped)
			return stale > LOST_MS;
	}
	*beat = seen;
	*since = now ? now : 1;
	return false;
}

/* Nobody but us can tell that this process is not watched, and only there. In a sandbox that its parent is in, too, the parent has said so. */
void rs_not_joined(long error)
{
	if (detach() && !(rs_sandboxed && born_sandboxed) && !rs_ctl->closing) {
		uint32_t i = __atomic_fetch_add(&rs_ctl->lost, 1, __ATOMIC_RELAXED);
		if (i < RS_MAX_LOST) {
			rs_ctl->lost_pid[i] = rs_process.pid;
			__atomic_store_n(&rs_ctl->lost_why[i], (uint32_t)-error + 1, __ATOMIC_RELEASE);
		}
	}
}

void rs_doorbell(void)
{
	if (!rs_ctl)
		return;
	__atomic_fetch_add(&rs_ctl->doorbell, 1, __ATOMIC_SEQ_CST);
	if (__atomic_load_n(&rs_ctl->sleeping, __ATOMIC_SEQ_CST))
		rs_os_wake(&rs_ctl->doorbell, true);
}
