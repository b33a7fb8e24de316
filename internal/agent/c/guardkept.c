/* guardkept.c: a file that was read from and is closed in the same epoch is read again by a descriptor as high as there may be, of which there are few. See guardkept.h.
 *
 * A duplicate is to change nothing that the program can tell. Locks are what it might:
 * - POSIX locks (fcntl) go when the process closes any descriptor of the file. So none may be closed once such a lock is taken: who takes one closes the file's duplicates first, for which the epoch ends (guardsys.c). Who closes a
 *   file while another thread locks it loses that lock natively, too; so nobody need be kept from making duplicates meanwhile.
 * - flock, locks of open files and leases last as long as any descriptor of the open file. A file with one is not duplicated. The kernel tells in fdinfo, which is read only once the process may have such a lock.
 *
 * Ground rules: calls.h's of rs_call_before. The arena holds all of our state. A slot is one word, taken and emptied by atomic instructions: who empties it closes what was in it, and nobody else does. */
#include "guardkept.h"
#include "os.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>

enum { KEPT = 64, FDS = 1 << 16, INHERITED = 256, YIELDS = 10000 };
enum { NONE = 0, FILLED_SOON = -1 };

struct duplicate { int32_t fd; uint64_t device, inode; };
static struct kept {
	uint32_t here, gone;       /* how many slots may be filled of `now`, and are of `before` or were emptied and are being closed */
	uint32_t bound;            /* a lock that is bound to an open file may be there */
	struct duplicate now[KEPT], before[KEPT]; /* of this epoch; of those before it */
} *kept;

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

static bool has_bound_lock(int32_t fd)
{
	char name[40] = "/proc/thread-self/fdinfo/", text[512];
	if (!__atomic_load_n(&kept->bound, __ATOMIC_SEQ_CST))
		return false;
	rs_guard_digits(name + 25, (uint64_t)fd);
	return rs_guard_read(AT_FDCWD, name, text, sizeof text) < 0 || contains(text, "FLOCK") || contains(text, "OFDLCK") || contains(text, "LEASE") || contains(text, "DELEG");
}

void rs_guard_kept_sees(const struct rs_call *c)
{
	if (c->number == SYS_flock || (c->number == SYS_fcntl && (c->arg[1] == F_OFD_SETLK || c->arg[1] == F_OFD_SETLKW || c->arg[1] == F_SETLEASE)))
		__atomic_store_n(&kept->bound, 1, __ATOMIC_SEQ_CST);
}

long rs_guard_kept_add(int32_t fd)
{
	struct rlimit limit;
	struct stat st;
	long r = RS_SYS2(SYS_getrlimit, RLIMIT_NOFILE, &limit);
	if (r < 0 || (r = RS_SYS2(SYS_fstat, fd, &st)) < 0)
		return r;
	if (has_bound_lock(fd))
		return -EBUSY;
	uint64_t most = limit.rlim_cur < FDS ? limit.rlim_cur : FDS;
	long own = most <= 2 * KEPT ? -EMFILE : RS_SYS3(SYS_fcntl, fd, F_DUPFD_CLOEXEC, most - KEPT);
	for (uint32_t i = 0; own >= 0 && i < KEPT; i++) {
		int32_t none = NONE;
		if (!__atomic_compare_exchange_n(&kept->now[i].fd, &none, FILLED_SOON, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
			continue;
		__atomic_fetch_add(&kept->here, 1, __ATOMIC_SEQ_CST);
		kept->now[i].device = st.st_dev, kept->now[i].inode = st.st_ino;
		__atomic_store_n(&kept->now[i].fd, (int32_t)own, __ATOMIC_SEQ_CST);
		return own;
	}
	if (own >= 0)
		RS_SYS1(SYS_close, own);
	return own >= 0 ? -EMFILE : own;
}

static void empty(struct duplicate *of, uint32_t *count)
{
	if (!__atomic_load_n(count, __ATOMIC_SEQ_CST))
		return;
	for (uint32_t i = 0; i < KEPT; i++) {
		int32_t fd = __atomic_load_n(&of[i].fd, __ATOMIC_ACQUIRE);
		if (fd <= 0 || !__atomic_compare_exchange_n(&of[i].fd, &fd, NONE, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
			continue;
		RS_SYS1(SYS_close, fd);
		__atomic_fetch_sub(count, 1, __ATOMIC_SEQ_CST);
	}
}

void rs_guard_kept_drop(void) { empty(kept->before, &kept->gone); }

void rs_guard_kept_drop_all(void)
{
	empty(kept->now, &kept->here);
	empty(kept->before, &kept->gone);
}

bool rs_guard_kept_has(int32_t fd)
{
	struct stat st;
	rs_guard_kept_drop();
	/* Who else has emptied a slot closes what was in it, now (unless a vfork child was killed there). */
	for (unsigned i = 0; i < YIELDS && __atomic_load_n(&kept->gone, __ATOMIC_SEQ_CST); i++)
		RS_SYS0(SYS_sched_yield);
	if (!__atomic_load_n(&kept->here, __ATOMIC_SEQ_CST) || RS_SYS2(SYS_fstat, fd, &st) < 0)
		return false;
	for (uint32_t i = 0; i < KEPT; i++)
		if (__atomic_load_n(&kept->now[i].fd, __ATOMIC_ACQUIRE) != NONE && kept->now[i].device == st.st_dev && kept->now[i].inode == st.st_ino)
			return true;
	return false;
}

/* Threads close them. What they have not closed for a whole epoch, as nobody made a call, may stay where it is. */
void rs_guard_kept_epoch(void)
{
	uint32_t to = 0;
	for (uint32_t i = 0; i < KEPT; i++) {
		while (to < KEPT && kept->before[to].fd != NONE)
			to++;
		if (to == KEPT || kept->now[i].fd <= 0)
			continue;
		kept->before[to] = kept->now[i];
		kept->now[i].fd = NONE;
		kept->here--;
		kept->gone++;
	}
}

long rs_guard_kept_begin(void)
{
	struct kept *k = rs_guard_map(sizeof *k);
	if (!k)
		return -ENOMEM;
	/* Who executed us may have left us one. */
	for (int32_t fd = 3; fd < INHERITED && !k->bound; fd++)
		k->bound = RS_SYS2(SYS_fcntl, fd, F_GETFD) >= 0;
	kept = k;
	return 0;
}
