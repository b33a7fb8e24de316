/* uring.c: what a thread did before it handed a request to the kernel is before what another does that takes its completion: io_uring (io_uring_setup(2), io_uring_enter(2)) and
 * Linux's own asynchronous I/O (io_submit(2), io_getevents(2)). Where all accesses are told.
 *
 * A completion of io_uring is seen in memory that the kernel shares with the program, often without a system call: whoever takes one has read the tail of the completion queue (io_uring(7)). The kernel's write to it
 * is told here in its place, as an atomic instruction of the thread that submits, before its call: so that word is an atomic, and reading it takes what was given. That is more order than there is, since
 * all that was submitted to a ring is before all that is completed there; never less. Of io_submit the word is the context's first, on which those who take events tell an access likewise.
 *
 * Not seen: submissions that a thread of the kernel's polls for (IORING_SETUP_SQPOLL), rings in memory of the program's own (IORING_SETUP_NO_MMAP), what was made before the process was watched.
 *
 * Ground rules: as access.c's; also called in the hook of system calls, on the program's stack. */
#include "uring.h"
#include "access.h"

enum { RSP = 4, RBP = 5 };
enum { SETUP = 425, ENTER = 426, PGETEVENTS = 333 }; /* asm/unistd.h of kernels that may be newer than the headers */

/* linux/io_uring.h: of struct io_uring_params, and what mmap's offset asks for. */
enum { PARAMS_FLAGS = 8, SQPOLL = 2, PARAMS_FEATURES = 20, PARAMS_CQ_TAIL = 84, SINGLE_MMAP = 1, REGISTERED_RING = 16 };
#define SQ_RING 0ull
#define CQ_RING 0x8000000ull
static const char ring_name[] = "anon_inode:[io_uring]"; /* of descriptors and of what is mapped */

#define TAKEN UINT32_MAX
#define UNKNOWN (UINT32_MAX - 1)

enum { RINGS = 64 };
static struct ring {
	uint32_t used;         /* the descriptor, plus one; a closed one's is given again. TAKEN: not told yet; UNKNOWN: which one it is nobody knows */
	uint32_t tail;         /* where the word lies in what is mapped */
	uint64_t from;         /* of what is mapped: mmap's offset */
	uintptr_t at;          /* the word, 0: not mapped yet */
} rings[RINGS];

bool rs_uring_has(unsigned n) { return n == SETUP || n == ENTER || n == SYS_mmap || n == SYS_io_submit || n == SYS_io_getevents || n == PGETEVENTS; }

static struct ring *ring_of(int fd)
{
	for (unsigned i = 0; i < RINGS; i++)
		if (__atomic_load_n(&rings[i].used, __ATOMIC_ACQUIRE) == (uint32_t)fd + 1)
			return &rings[i];
	return NULL;
}

/* Said once, and once of rings that the kernel polls. */
static void say(bool polled)
{
	static bool said[2];
	struct rs_thread *t = rs_thread_tls;
	if (t && !__atomic_exchange_n(&said[polled], true, __ATOMIC_RELAXED))
		rs_notice(t, RS_NOTICE_KERNEL_REQUESTS, 0, polled);
}

/* A descriptor is nobody else's before the call that makes it has returned. */
static void made(int fd, uintptr_t params)
{
	uint32_t flags, features, tail, none = 0;
	if (rs_kernel_peek(&flags, params + PARAMS_FLAGS, sizeof flags) != sizeof flags || rs_kernel_peek(&features, params + PARAMS_FEATURES, sizeof features) != sizeof features || rs_kernel_peek(&tail, params + PARAMS_CQ_TAIL, sizeof tail) != sizeof tail)
		return;
	say(flags & SQPOLL);
	struct ring *r = ring_of(fd);
	for (unsigned i = 0; !r && i < RINGS; i++, none = 0)
		if (__atomic_compare_exchange_n(&rings[i].used, &none, TAKEN, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
			r = &rings[i];
	if (!r)
		return;
	r->tail = tail;
	r->from = features & SINGLE_MMAP ? SQ_RING : CQ_RING;
	__atomic_store_n(&r->at, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&r->used, (uint32_t)fd + 1, __ATOMIC_RELEASE);
}

/* Only for the first time: later the number may be another file's. */
void rs_uring_mapped(uintptr_t at, int fd, uint64_t offset)
{
	struct ring *r = fd >= 0 ? ring_of(fd) : NULL;
	uintptr_t none = 0;
	if (r && offset == r->from)
		__atomic_compare_exchange_n(&r->at, &none, at + r->tail, false, __ATOMIC_RELEASE, __ATOMIC_RELAXED);
}

/* The descriptor is a ring still. */
static bool is_open(unsigned fd)
{
	char path[] = "/proc/self/fd/0000000000", found[sizeof ring_name] = {0};
	char *end = path + sizeof path - 1, *begin = end;
	do
		*--begin = (char)('0' + fd % 10);
	while (fd /= 10);
	rs_os_copy(path + sizeof "/proc/self/fd/" - 1, begin, (size_t)(end - begin + 1));
	return RS_SYS3(SYS_readlink, path, found, sizeof found) == sizeof ring_name - 1 && rs_os_equal(found, ring_name, sizeof ring_name - 1);
}

static void tell(const struct rs_called *c, uintptr_t at)
{
	if (!at)
		return;
	struct rs_access_context x = {.site = c->pc - 1, .next = c->pc, .addr = {at}, .data = READ | WRITE | ATOMIC, .info = 4};
	x.gpr[RSP] = c->rsp;
	x.gpr[RBP] = c->rbp;
	rs_access(&x);
}

void rs_uring_before(const struct rs_called *c, unsigned n, const long a[6])
{
	if (n == SYS_io_submit && a[1] > 0) {
		say(false);
		tell(c, (uintptr_t)a[0]);
	}
	if (n != ENTER || (uint32_t)a[1] == 0)
		return;
	/* A registered ring has a number of its own, a duplicate another descriptor. */
	struct ring *r = a[3] & REGISTERED_RING ? NULL : ring_of((int)a[0]);
	if (r) {
		tell(c, __atomic_load_n(&r->at, __ATOMIC_ACQUIRE));
		return;
	}
	for (unsigned i = 0; i < RINGS; i++) {
		uint32_t used = __atomic_load_n(&rings[i].used, __ATOMIC_ACQUIRE);
		if (used && used != TAKEN && (used == UNKNOWN || is_open(used - 1)))
			tell(c, __atomic_load_n(&rings[i].at, __ATOMIC_ACQUIRE));
	}
}

void rs_uring_after(const struct rs_called *c, unsigned n, const long a[6], long result)
{
	if (n == SETUP && result >= 0)
		made((int)result, (uintptr_t)a[1]);
	if ((n == SYS_io_getevents || n == PGETEVENTS) && result > 0)
		tell(c, (uintptr_t)a[0]);
	if (n == SYS_mmap && (unsigned long)result <= -4096ul)
		rs_uring_mapped((uintptr_t)result, (int)a[4], (uint64_t)a[5]);
}

/* --- rings that were made before accesses are told ------------------------------------------------------------------------------------ */

/* Where the word lies in what is mapped, and by which of mmap's offsets: the same for all rings, which is what a new one says. False: it cannot be had. */
static bool ask_kernel(uint32_t *tail, uint64_t *from)
{
	uint32_t params[30] = {0}; /* struct io_uring_params */
	long fd = RS_SYS2(SETUP, 1, params);
	if (fd < 0)
		return false;
	RS_SYS1(SYS_close, fd);
	*tail = params[PARAMS_CQ_TAIL / 4];
	*from = params[PARAMS_FEATURES / 4] & SINGLE_MMAP ? SQ_RING : CQ_RING;
	return true;
}

static uint64_t hex(const char **p)
{
	uint64_t n = 0;
	for (;; ++*p) {
		unsigned d = (unsigned char)**p, digit = d - '0' < 10 ? d - '0' : d - 'a' < 6 ? d - 'a' + 10 : 16;
		if (digit == 16)
			return n;
		n = n << 4 | digit;
	}
}

/* A line of /proc/self/maps that ends at `end`: "7f00-7f01 rw-s 00000000 00:0e 1045   anon_inode:[io_uring]" (proc(5)). */
static void found(const char *line, const char *end)
{
	uint32_t tail, none = 0;
	uint64_t from;
	if (end - line < (long)sizeof ring_name || !rs_os_equal(end - sizeof ring_name + 1, ring_name, sizeof ring_name - 1) || !ask_kernel(&tail, &from))
		return;
	uintptr_t at = hex(&line);
	while (*line != ' ')
		line++;
	line += sizeof " rw-s " - 1;
	if (hex(&line) != from)
		return;
	say(false);
	for (unsigned i = 0; i < RINGS; i++, none = 0)
		if (__atomic_compare_exchange_n(&rings[i].used, &none, TAKEN, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {
			rings[i].at = at + tail;
			__atomic_store_n(&rings[i].used, UNKNOWN, __ATOMIC_RELEASE);
			return;
		}
}

static void look(void *arg)
{
	(void)arg;
	static char text[8192];
	size_t have = 0;
	long n, fd = RS_SYS4(SYS_openat, AT_FDCWD, "/proc/self/maps", O_RDONLY | O_CLOEXEC, 0);
	while ((n = RS_SYS3(SYS_read, fd, text + have, sizeof text - have)) > 0) {
		const char *line = text;
		for (const char *p = text + have; p < text + have + n; p++)
			if (*p == '\n') {
				found(line, p);
				line = p + 1;
			}
		have = (size_t)(text + have + n - line);
		if (have == sizeof text)
			have = 0; /* no line of a ring */
		for (size_t i = 0; i < have; i++)
			text[i] = line[i];
	}
	if (fd >= 0)
		RS_SYS1(SYS_close, fd);
}

void rs_uring_late(void) { rs_os_apart(look, NULL); }
