/* guardkept.c: a file that was read from and is closed in the same epoch stays open for the epoch's re-execution, in the coordinator's table of descriptors. See guardkept.h.
 *
 * A duplicate is to change nothing that the program can tell:
 * - It has no number in the program's table, so nobody meets it who goes through all numbers, lists /proc/self/fd, or puts something of his own there. The price is that only the coordinator can use it: it is asked for the duplicate
 *   before the close, and in a re-execution for each call on it, which it makes in the program's memory.
 * - POSIX locks (fcntl) go when any descriptor of the file is closed in the table whose they are: that is not ours.
 * - What waits for the last close of who may write (IN_CLOSE_WRITE, ETXTBSY, leases) is not to wait for ours: of a file that could be written to by the descriptor, too, only its place is kept (O_PATH), and it is opened again, for reading, when a
 *   re-execution asks for something of it. One without a name is kept as it is: nobody else can wait for its close.
 * - What has no name any more takes room on its device as long as anybody has it: of that there is not much.
 * - flock, locks of open files and leases last as long as any descriptor of the open file. A file with one is not duplicated. The kernel tells in fdinfo, which is read only once the process may have such a lock. Who takes one
 *   lets go of the file's duplicates first, for which the epoch ends (guardsys.c).
 *
 * Ground rules: calls.h's of rs_call_before. The arena holds all of our state. Who asks is in an event, or outside; the coordinator answers wherever it waits for threads that run. */
#include "guardepoch.h"
#include "guardkept.h"
#include "guardlog.h"
#include "os.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <sys/stat.h>

enum { KEPT = 512, INHERITED = 256, WAIT_MS = 100 };
static const uint64_t UNNAMED_BYTES = 256 << 20; /* that natively are free again */
enum { FREE, TAKEN, ASKED, ANSWERED }; /* state */
enum { ADD, CALL, DROP };

struct duplicate { int32_t fd; bool place; /* O_PATH */ uint64_t device, inode; };
static struct kept {
	uint32_t state;            /* futex, of the one question */
	uint32_t open;             /* the coordinator answers */
	uint32_t here;             /* how many there are, the coordinator's to change */
	uint64_t unnamed;          /* bytes of those without a name, likewise */
	uint32_t bound;            /* a lock that is bound to an open file may be there */
	int task;                  /* the coordinator's /proc/self/task */
	uint32_t what, tid;
	uint64_t call[7];          /* CALL: number, arguments; ADD: descriptor, device, inode, whether its place is enough */
	long answer;
	struct duplicate of[KEPT];
} *kept;

/* --- on the coordinator ------------------------------------------------------------------------------------------------------------------ */

static bool contains(const char *text, const char *word)
{
	for (; *text; text++) {
		unsigned i = 0;
		while (word[i] && text[i] == word[i])
			i++;
		if (!word[i])
			return true;
	}
	return false;
}

/* The name, in kept->task, of what tells of a thread's descriptor. */
static const char *name_of(char *name, uint32_t tid, const char *what, uint32_t fd)
{
	char *end = rs_guard_digits(name, tid);
	while (*what)
		*end++ = *what++;
	rs_guard_digits(end, fd);
	return name;
}

/* own is ours, of the thread's. That one tells as much, if it is still the same file: then our own directory in /proc is not needed (guard.c, begin). */
static bool has_bound_lock(uint32_t tid, uint32_t fd, int32_t own, uint64_t inode)
{
	char name[40], text[512], same[32] = "\nino:\t";
	if (!__atomic_load_n(&kept->bound, __ATOMIC_SEQ_CST))
		return false;
	rs_os_copy(rs_guard_digits(same + 6, inode), "\n", 2);
	long n = rs_guard_read(kept->task, name_of(name, tid, "/fdinfo/", fd), text, sizeof text);
	if (n <= 0 || !contains(text, same))
		n = rs_guard_read(kept->task, name_of(name, rs_os_tid(), "/fdinfo/", (uint32_t)own), text, sizeof text);
	return n < 0 || contains(text, "FLOCK") || contains(text, "OFDLCK") || contains(text, "LEASE") || contains(text, "DELEG");
}

/* A descriptor of ours opened anew. */
static long open_again(int32_t own, int flags)
{
	char name[40];
	return rs_guard_open(kept->task, name_of(name, rs_os_tid(), "/fd/", (uint32_t)own), flags);
}

/* Its place alone; without a name in our own directory in /proc (guard.c, begin), but where a container refuses the call. */
static long place_of(int32_t own)
{
	long at = RS_SYS3(428 /* open_tree */, own, "", 0x1000 /* AT_EMPTY_PATH */ | O_CLOEXEC);
	return at < 0 ? open_again(own, O_PATH) : at;
}

static long add(uint32_t tid, uint64_t fd, uint64_t device, uint64_t inode, bool place)
{
	struct stat st;
	if (kept->here == KEPT)
		return -EMFILE;
	long own = rs_guard_files_borrow(tid, (uint32_t)fd);
	if (own < 0)
		return own;
	/* Where the kernel knows no tasks it was the first thread's, which may have a table of its own. */
	if (RS_SYS2(SYS_fstat, own, &st) < 0 || st.st_dev != device || st.st_ino != inode || (!place && has_bound_lock(tid, (uint32_t)fd, (int32_t)own, st.st_ino))) {
		RS_SYS1(SYS_close, own);
		return -EBUSY;
	}
	uint64_t bytes = st.st_nlink ? 0 : (uint64_t)st.st_blocks * 512;
	if (kept->unnamed + bytes > UNNAMED_BYTES) {
		RS_SYS1(SYS_close, own);
		return -EFBIG;
	}
	if (place) {
		long at = place_of((int32_t)own);
		RS_SYS1(SYS_close, own);
		if (at < 0)
			return at;
		own = at;
	}
	kept->unnamed += bytes;
	kept->of[kept->here] = (struct duplicate){(int32_t)own, place, device, inode};
	__atomic_store_n(&kept->here, kept->here + 1, __ATOMIC_RELEASE);
	return own;
}

static void drop(void)
{
	uint32_t n = kept->here;
	for (uint32_t i = 0; i < n; i++)
		RS_SYS1(SYS_close, kept->of[i].fd);
	kept->unnamed = 0;
	__atomic_store_n(&kept->here, 0, __ATOMIC_RELEASE);
}

/* What is asked of a file whose place alone is kept says why not, if it cannot be opened. */
static void make_readable(void)
{
	for (uint32_t i = 0; i < kept->here; i++) {
		long fd = kept->of[i].place ? open_again(kept->of[i].fd, O_RDONLY) : -1;
		if (fd < 0)
			continue;
		if (RS_SYS3(SYS_dup3, fd, kept->of[i].fd, O_CLOEXEC) >= 0)
			kept->of[i].place = false;
		RS_SYS1(SYS_close, fd);
	}
}

void rs_guard_kept_answer(void)
{
	const uint64_t *a = kept ? kept->call : NULL;
	if (!a || __atomic_load_n(&kept->state, __ATOMIC_SEQ_CST) != ASKED)
		return;
	if (kept->what == ADD)
		kept->answer = add(kept->tid, a[0], a[1], a[2], a[3]);
	else if (kept->what == CALL)
		make_readable(), kept->answer = RS_SYS6(a[0], a[1], a[2], a[3], a[4], a[5], a[6]);
	else
		drop();
	__atomic_store_n(&kept->state, ANSWERED, __ATOMIC_RELEASE);
	rs_os_wake(&kept->state, false);
}

void rs_guard_kept_epoch(void) { drop(); }

void rs_guard_kept_back(void)
{
	if (kept)
		__atomic_store_n(&kept->state, FREE, __ATOMIC_RELEASE);
}

void rs_guard_kept_open(int task)
{
	if (!kept)
		return;
	kept->task = task;
	__atomic_store_n(&kept->open, 1, __ATOMIC_RELEASE);
}

void rs_guard_kept_shut(void)
{
	if (kept)
		__atomic_store_n(&kept->open, 0, __ATOMIC_RELEASE);
}

/* --- on threads of the program -------------------------------------------------------------------------------------------------------------- */

static long ask(uint32_t what, const uint64_t call[7])
{
	uint32_t free = FREE, nothing = RS_GUARD_ASK_NOTHING;
	if (!__atomic_load_n(&kept->open, __ATOMIC_ACQUIRE))
		return -EBUSY;
	for (; !__atomic_compare_exchange_n(&kept->state, &free, TAKEN, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE); free = FREE)
		rs_os_wait(&kept->state, free, false, WAIT_MS);
	kept->what = what;
	kept->tid = rs_os_tid();
	if (call)
		rs_os_copy(kept->call, call, sizeof kept->call);
	__atomic_store_n(&kept->state, ASKED, __ATOMIC_SEQ_CST);
	/* It sleeps, or it waits for an end, or it looks here before it sleeps. */
	if (__atomic_compare_exchange_n(rs_guard_request, &nothing, RS_GUARD_LOOK, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED))
		rs_os_wake(rs_guard_request, true);
	else
		rs_os_wake(&rs_guard_world()->ended, false);
	for (uint32_t state; (state = __atomic_load_n(&kept->state, __ATOMIC_ACQUIRE)) != ANSWERED;)
		rs_os_wait(&kept->state, state, false, WAIT_MS);
	long answer = kept->answer;
	__atomic_store_n(&kept->state, FREE, __ATOMIC_RELEASE);
	rs_os_wake(&kept->state, false);
	return answer;
}

long rs_guard_kept_add(int32_t fd, bool place)
{
	struct stat st;
	long r = RS_SYS2(SYS_fstat, fd, &st);
	return r < 0 ? r : ask(ADD, (const uint64_t[7]){(uint32_t)fd, st.st_dev, st.st_ino, place});
}

long rs_guard_kept_call(const struct rs_call *c) { return ask(CALL, (const uint64_t[7]){c->number, c->arg[0], c->arg[1], c->arg[2], c->arg[3], c->arg[4], c->arg[5]}); }

void rs_guard_kept_drop(void)
{
	if (kept && __atomic_load_n(&kept->here, __ATOMIC_SEQ_CST))
		ask(DROP, NULL);
}

void rs_guard_kept_sees(const struct rs_call *c)
{
	if (rs_guard_kept_matters(c))
		__atomic_store_n(&kept->bound, 1, __ATOMIC_SEQ_CST);
}

bool rs_guard_kept_has(int32_t fd)
{
	struct stat st;
	uint32_t n = __atomic_load_n(&kept->here, __ATOMIC_ACQUIRE);
	if (!n || RS_SYS2(SYS_fstat, fd, &st) < 0)
		return false;
	for (uint32_t i = 0; i < n; i++)
		if (kept->of[i].device == st.st_dev && kept->of[i].inode == st.st_ino)
			return true;
	return false;
}

long rs_guard_kept_begin(void)
{
	struct kept *k = rs_guard_map(RS_ARENA_OWN, sizeof *k);
	if (!k)
		return -ENOMEM;
	/* Who executed us may have left us one. */
	for (int32_t fd = 3; fd < INHERITED && !k->bound; fd++)
		k->bound = RS_SYS2(SYS_fcntl, fd, F_GETFD) >= 0;
	kept = k;
	return 0;
}
