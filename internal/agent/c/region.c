/* region.c: shared memory: regions with their slots and rings, and who has which slot. Rare paths only; signals are blocked in all that takes the
 * lock. A store to a region never fails: pages are made to be there (MADV_POPULATE_WRITE) before they are written, since a memfd
 * page that cannot be had would kill the program with SIGBUS. */
#include "access.h"
#include "calls.h"
#include "core.h"
#include "guardlog.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/memfd.h>
#include <sys/mman.h>
#include <sys/resource.h>

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 8u
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#define MAX_HOMES 1024
#define MAX_REGION (6ul << 20) /* bytes: what one thread may cost before there are many; large rings, fewer slots */
#define FIRST_WORDS (4096u / 8) /* of a ring, touched at first */

static struct rs_home *homes[MAX_HOMES];
static uint32_t home_count;
static struct rs_lock lock;
static struct rs_region no_region;
struct rs_region *rs_counters = &no_region;

static uint64_t lane_bytes(unsigned lane) { return lane ? rs_config.nest_bytes : rs_config.lane_bytes; }

static uint64_t rings_offset(unsigned slots)
{
	return (sizeof(struct rs_region) + slots * sizeof(struct rs_slot) + RS_PAGE - 1) & -RS_PAGE;
}

static uint64_t rings_end(unsigned slots)
{
	return (rings_offset(slots) + slots * (lane_bytes(0) + lane_bytes(1)) + RS_PAGE - 1) & -RS_PAGE;
}

static uint64_t region_bytes(unsigned slots)
{
	return rings_end(slots) + (rs_config.calls ? (slots + 1) * sizeof(struct rs_calls) : 0);
}

/* A kernel that does not know the request faults pages in by and by, which works as long as there is memory. */
static long populate(void *p, uint64_t bytes)
{
	if (rs_sandboxed)
		return 0;
	uintptr_t lo = (uintptr_t)p & -RS_PAGE, hi = ((uintptr_t)p + bytes + RS_PAGE - 1) & -RS_PAGE;
	long r = -EAGAIN;
	/* With an end: where it is never done, it is as with a kernel that does not know the request. */
	for (int i = 0; i < 100 && (r == -EINTR || r == -EAGAIN); i++)
		r = RS_SYS3(SYS_madvise, lo, hi - lo, MADV_POPULATE_WRITE);
	return r == -ENOMEM || r == -EFAULT || r == -EHWPOISON ? -ENOMEM : 0;
}

long rs_region_present(void *p, uint64_t bytes) { return populate(p, bytes); }

long rs_region_populate(struct rs_thread *t, unsigned lane, uint64_t words)
{
	uint64_t size = t->mask[lane] + 1, have = t->home->populated[t->index][lane];
	uint64_t want = 2 * have > words ? 2 * have : words;
	want = ((want > FIRST_WORDS ? want : FIRST_WORDS) + 511) & ~511ull;
	if (want >= size)
		want = size;
	long r = populate(t->ring[lane] + have, (want - have) * 8);
	if (r == 0)
		t->home->populated[t->index][lane] = want == size ? UINT64_MAX : want;
	return r;
}

/* ftruncate would raise SIGXFSZ beyond the limit on file size, which memfds are subject to. While there is one thread, nobody sees the limit raised
 * for a moment. */
static long set_size(int fd, uint64_t bytes)
{
	struct rlimit64 was = {0}, more;
	if (RS_SYS4(SYS_prlimit64, 0, RLIMIT_FSIZE, 0, &was) < 0 || was.rlim_cur >= bytes)
		return RS_SYS2(SYS_ftruncate, fd, bytes);
	more.rlim_cur = bytes;
	more.rlim_max = was.rlim_max < bytes ? bytes : was.rlim_max; /* with CAP_SYS_RESOURCE only */
	if (rs_live_threads > 1 || RS_SYS4(SYS_prlimit64, 0, RLIMIT_FSIZE, &more, 0) < 0)
		return -EFBIG;
	long r = RS_SYS2(SYS_ftruncate, fd, bytes);
	RS_SYS4(SYS_prlimit64, 0, RLIMIT_FSIZE, &was, 0);
	return r;
}

static long make_memfd(uint64_t bytes)
{
	long fd = RS_SYS2(SYS_memfd_create, "ripstop", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
	if (fd == -EINVAL)
		fd = RS_SYS2(SYS_memfd_create, "ripstop", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0)
		return fd;
	long r = set_size((int)fd, bytes);
	if (r == 0)
		r = RS_SYS3(SYS_fcntl, fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW);
	if (r < 0) {
		RS_SYS1(SYS_close, fd);
		return r;
	}
	return fd;
}

/* The rings of a slot, or whose they are: who has moved has changed places. */
static unsigned rings_of(const struct rs_home *h, unsigned slot) { return slot == h->moved ? h->to : slot == h->to ? h->moved : slot; }

static void lay_out(const struct rs_home *h, struct rs_region *shm)
{
	unsigned slots = h->slots;
	shm->magic = RS_MAGIC;
	shm->version = RS_WIRE_VERSION;
	shm->pid = rs_process.pid;
	shm->process = rs_process.id;
	shm->bytes = h->bytes;
	shm->slots_offset = sizeof *shm;
	shm->slots = slots;
	shm->calls_offset = rs_config.calls ? rings_end(slots) : 0;
	struct rs_slot *s = (struct rs_slot *)(shm + 1);
	uint64_t at = rings_offset(slots);
	for (unsigned i = 0; i < slots; i++)
		for (unsigned lane = 0; lane < 2; lane++) {
			s[rings_of(h, i)].lane[lane].offset = at;
			s[rings_of(h, i)].lane[lane].bytes = lane_bytes(lane);
			at += lane_bytes(lane);
		}
}

/* Makes shared memory for h and tells Go. Where h has memory already, it takes its place, and what own's slot says is kept. */
static long make_region(struct rs_home *h, int sock, const struct rs_thread *own)
{
	long fd = make_memfd(h->bytes);
	if (fd < 0)
		return fd;
	struct rs_slot keep;
	if (own)
		rs_os_copy(&keep, own->slot, sizeof keep);
	long p = RS_SYS6(SYS_mmap, h->shm, h->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | (h->shm ? MAP_FIXED : 0), fd, 0);
	if (p < 0 && p > -4096) {
		RS_SYS1(SYS_close, fd);
		return p;
	}
	struct rs_region *shm = (void *)p;
	RS_SYS3(SYS_madvise, shm, h->bytes, MADV_DONTDUMP);
	/* With the beginning of the first ring, if it will be written at once. */
	bool ring = (!own || own->index == 0) && lane_bytes(0) > FIRST_WORDS * 8;
	long r = populate(shm, rings_offset(h->slots) + (ring ? FIRST_WORDS * 8 : 0));
	if (r == 0 && rs_config.calls)
		r = populate((char *)shm + rings_end(h->slots) + h->slots * sizeof(struct rs_calls), sizeof(struct rs_calls));
	if (r == 0) {
		h->populated[0][0] = ring ? FIRST_WORDS : 0;
		lay_out(h, shm);
		if (own) {
			rs_os_copy(keep.lane, own->slot->lane, sizeof keep.lane);
			rs_os_copy(own->slot, &keep, sizeof keep);
		}
		r = rs_session_region(sock, (int)fd);
	}
	RS_SYS1(SYS_close, fd);
	if (r < 0 && !h->shm)
		RS_SYS2(SYS_munmap, shm, h->bytes);
	if (r == 0) {
		h->shm = shm;
		h->slot = (struct rs_slot *)(shm + 1);
	}
	return r;
}

struct job { struct rs_home *home; const struct rs_thread *own; long result; };

static void job_make(void *arg)
{
	struct job *j = arg;
	long s = rs_session_connect();
	j->result = s;
	if (s >= 0) {
		j->result = make_region(j->home, (int)s, j->own);
		RS_SYS1(SYS_close, s);
	}
}

/* With other threads around, descriptors are made on the side: the program's next open must not get another number for our sake, and a
 * fork must not take one along. */
static long make(struct rs_home *h, int sock, const struct rs_thread *own)
{
	struct job j = {h, own, 0};
	if (sock >= 0)
		return make_region(h, sock, own);
	rs_os_apart(job_make, &j);
	return j.result;
}

static void become_counters(struct rs_region *shm)
{
	if (rs_counters != &no_region)
		return;
	rs_counters = shm;
	shm->stacks = no_region.stacks;
	shm->stack_drops = no_region.stack_drops;
	shm->locks_taken = no_region.locks_taken;
	__atomic_store_n(&shm->agent_bytes, rs_agent_bytes, __ATOMIC_RELAXED);
	rs_calls_region(shm);
}

static void place_rings(struct rs_thread *t)
{
	for (unsigned lane = 0; lane < 2; lane++)
		t->ring[lane] = (uint64_t *)((char *)t->home->shm + t->slot->lane[lane].offset);
}

static long add_home(int sock)
{
	if (home_count == MAX_HOMES)
		return -EMFILE;
	if (rs_sandboxed)
		return -EPERM;
	struct rs_home *h = rs_os_map(sizeof *h);
	if (!h)
		return -ENOMEM;
	/* Fewer threads to a region where address space or file size is short. */
	long r = -ENOMEM;
	for (unsigned slots = RS_THREADS_PER_REGION; slots && (r == -ENOMEM || r == -EFBIG); slots /= 4) {
		if (slots > 1 && region_bytes(slots) > MAX_REGION)
			continue;
		h->slots = slots;
		h->bytes = region_bytes(slots);
		r = make(h, sock, NULL);
	}
	if (r < 0) {
		rs_os_unmap(h, sizeof *h);
		return r;
	}
	for (unsigned i = 0; i < h->slots; i++) {
		struct rs_thread *t = &h->threads[i];
		t->home = h;
		t->index = i;
		t->slot = &h->slot[i];
		place_rings(t);
		for (unsigned lane = 0; lane < 2; lane++)
			t->mask[lane] = lane_bytes(lane) / 8 - 1;
	}
	h->attached = 1;
	become_counters(h->shm);
	homes[home_count] = h;
	__atomic_store_n(&home_count, home_count + 1, __ATOMIC_RELEASE);
	return 0;
}

/* A slot that is nobody's, Go may not have seen that its last thread has ended: then the new one's events follow that one's in the same rings. The lowest
 * is taken, whose pages are there already. */
static struct rs_thread *claim(struct rs_home *h)
{
	if (!h->attached)
		return NULL; /* a forked child that has not sent anything yet */
	uint64_t all = h->slots == 64 ? ~0ull : (1ull << h->slots) - 1, unclaimed;
	while ((unclaimed = all & ~__atomic_load_n(&h->claimed, __ATOMIC_ACQUIRE)) != 0) {
		unsigned i = (unsigned)__builtin_ctzll(unclaimed);
		if (!(__atomic_fetch_or(&h->claimed, 1ull << i, __ATOMIC_ACQ_REL) & 1ull << i))
			return &h->threads[i];
	}
	return NULL;
}

static struct rs_thread *claim_any(void)
{
	uint32_t n = __atomic_load_n(&home_count, __ATOMIC_ACQUIRE);
	for (uint32_t i = 0; i < n; i++) {
		struct rs_thread *t = claim(homes[i]);
		if (t)
			return t;
	}
	return NULL;
}

struct rs_thread *rs_region_claim(int sock, long *why)
{
	static uint32_t beat, since; /* several threads at once do no harm */
	*why = 0;
	struct rs_thread *t = claim_any();
	if (t) {
		since = 0;
		return t;
	}
	if (rs_guard_on && rs_config.guard) {
		/* Go hears of a region, once. */
		rs_guard_lost(RS_GUARD_LOST_THREAD);
		*why = -EAGAIN;
		if (rs_guard_mode() == RS_GUARD_REPLAY)
			return NULL;
	}
	uint64_t mask = rs_os_no_signals();
	rs_lock(&lock);
	t = claim_any();
	if (!t && (*why = add_home(sock)) == 0)
		t = claim_any();
	rs_unlock(&lock);
	rs_os_signals(mask);
	/* Refused means that Go listens no more. A directory that is gone may have been removed by anybody. */
	if (*why == -ECONNREFUSED || (*why && rs_active && rs_go_gone(&beat, &since)))
		rs_detach();
	return t;
}

void rs_region_each(void (*f)(struct rs_thread *t))
{
	for (uint32_t i = 0; i < __atomic_load_n(&home_count, __ATOMIC_ACQUIRE); i++)
		for (unsigned k = 0; k < homes[i]->slots; k++)
			if (__atomic_load_n(&homes[i]->claimed, __ATOMIC_ACQUIRE) >> k & 1 && homes[i]->threads[k].number)
				f(&homes[i]->threads[k]);
}

void rs_region_unclaim(struct rs_thread *t)
{
	__atomic_fetch_and(&t->home->claimed, ~(1ull << t->index), __ATOMIC_RELEASE);
}

long rs_region_try(struct rs_thread *t)
{
	struct rs_home *h = t->home;
	uint64_t mask = rs_os_no_signals();
	rs_lock(&lock);
	long r = 0;
	if (!h->attached) {
		r = rs_sandboxed ? -EPERM : rs_ctl->closing ? -ECONNREFUSED : make(h, -1, t);
		if (r == 0) {
			h->attached = 1;
			become_counters(h->shm);
			rs_begin_process(t);
		}
	}
	rs_unlock(&lock);
	rs_os_signals(mask);
	return r;
}

bool rs_region_attach(struct rs_thread *t)
{
	long r = rs_region_try(t);
	if (r < 0)
		rs_not_joined(r);
	return r == 0;
}

static void forget(struct rs_thread *t, bool own)
{
	for (unsigned lane = 0; lane < 2; lane++)
		t->head[lane] = t->limit[lane] = t->next[lane] = t->cached_tail[lane] = 0;
	if (own)
		return;
	/* Its thread is not here, and may have been in the middle of changing what these point to. */
	t->held = NULL;
	t->slow = 1;
	t->held_count = t->held_cap = 0;
	t->order_cache = t->unwind_cache = t->heap_recent = t->stack_memory = t->accesses = NULL;
}

/* The child must not write to its parent's rings. Private memory takes the place of its thread's region, so that slot and rings stay where they
 * are: for frames that hold pointers to them, and for an emission that the forking signal handler interrupted. */
void rs_region_after_fork(struct rs_thread *t)
{
	lock.word = 0;
	rs_calls_after_fork_forget();
	rs_counters = &no_region;
	rs_os_clear(&no_region, sizeof no_region);
	no_region.agent_bytes = rs_agent_bytes;
	struct rs_home *own = t ? t->home : NULL;
	for (uint32_t i = 0; i < home_count; i++)
		if (homes[i] != own)
			RS_SYS2(SYS_munmap, homes[i]->shm, homes[i]->bytes);
	home_count = 0;
	if (!own)
		return;
	struct rs_slot keep;
	rs_os_copy(&keep, t->slot, sizeof keep);
	own->attached = 0;
	long p = RS_SYS6(SYS_mmap, own->shm, own->bytes, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
	if (p < 0 && p > -4096) {
		/* The parent's memory is still there: nothing may be written from here on. */
		rs_own_by(NULL);
		rs_thread_tls = NULL;
		rs_active = 0;
		return;
	}
	RS_SYS3(SYS_madvise, own->shm, own->bytes, MADV_DONTDUMP);
	/* Its thread may be in the middle of an emission, below the handler that forked: what that still writes, no other ring may be. */
	if (t->emit_sp) {
		uint64_t all = own->slots == 64 ? ~0ull : (1ull << own->slots) - 1;
		own->stale |= 1ull << rings_of(own, t->index);
		if (own->stale != all) {
			own->moved = t->index;
			own->to = (uint32_t)__builtin_ctzll(all & ~own->stale);
		}
	}
	lay_out(own, own->shm);
	rs_os_copy(keep.lane, t->slot->lane, sizeof keep.lane);
	rs_os_copy(t->slot, &keep, sizeof keep);
	own->claimed = 1ull << t->index;
	rs_os_clear(own->populated, sizeof own->populated);
	for (unsigned i = 0; i < own->slots; i++) {
		forget(&own->threads[i], &own->threads[i] == t);
		place_rings(&own->threads[i]);
		if (own->stale >> rings_of(own, i) & 1)
			own->claimed |= 1ull << i; /* for good */
	}
	homes[0] = own;
	home_count = 1;
}

/* The slots say what the recording did, to others; what is executed again tells these. */
void rs_region_aside(void *room[RS_REGIONS_ASIDE])
{
	for (uint32_t i = 0; i < home_count && i < RS_REGIONS_ASIDE; i++) {
		struct rs_home *h = homes[i];
		if (!room[i])
			room[i] = rs_guard_map(RS_ARENA_OWN, RS_THREADS_PER_REGION * sizeof(struct rs_slot));
		for (uint32_t k = 0; room[i] && k < h->slots; k++) {
			struct rs_slot *s = (struct rs_slot *)room[i] + k;
			rs_os_copy(s, &h->slot[k], sizeof *s);
			h->threads[k].slot = s;
		}
	}
}

bool rs_silent(const struct rs_thread *t) { return !t->home->attached && !rs_config.all; }

void rs_region_mark_detached(void)
{
	uint32_t n = __atomic_load_n(&home_count, __ATOMIC_ACQUIRE);
	for (uint32_t i = 0; i < n; i++)
		if (homes[i]->attached)
			__atomic_store_n(&homes[i]->shm->detached, 1, __ATOMIC_RELAXED);
}

void rs_count_locks(void)
{
	uint32_t n = __atomic_load_n(&home_count, __ATOMIC_ACQUIRE);
	for (uint32_t i = 0; i < n; i++) {
		struct rs_home *h = homes[i];
		if (!h->attached)
			continue;
		for (uint64_t left = __atomic_load_n(&h->claimed, __ATOMIC_ACQUIRE); left; left &= left - 1) {
			unsigned j = (unsigned)__builtin_ctzll(left);
			h->slot[j].locks_taken = __atomic_load_n(&h->threads[j].locks_taken, __ATOMIC_RELAXED);
		}
	}
}
