// Errors of the heap and who makes them, a kind a function. Each is run with x = 1, which is wrong, and with x = 0, its clean twin. The line above a function states the rule, the block's size, the offset of the first wrong byte, functions of the program at the top of
// the stacks that allocated and freed the block (if not the case), and how the process ends, if not by exit(0). With --epochs the write that is told last is that of the line that ends in `// wrong`, if any (`writer=maybe`: the epoch may have begun too late). `missed` is an error that is not seen, for the reason that follows.
#define _GNU_SOURCE
#include <fcntl.h>
#include <malloc.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>
#include <wchar.h>

/* The compiler does not know what comes out. */
static void *hide(const void *p)
{
	__asm__ volatile("" : "+r"(p) : : "memory");
	return (void *)p;
}
/* In each case by itself: the stacks of a place that is called often are not all looked at. */
#define make(n) hide(malloc(n))
#define drop(p) do { free(hide(p)); __asm__ volatile("" ::: "memory"); } while (0)
#define must(x) do { if (!(x)) abort(); } while (0)

/* --- behind the end: stores ------------------------------------------------------------------------------------------------------ */

// case byte_loop: heap-overflow size=10 first=10
static void byte_loop(size_t x)
{
	char *p = make(10);
	for (size_t i = 0; i < 10 + x; i++)
		p[i] = 'x'; // wrong
	drop(p);
}

// case int_index: heap-overflow size=40 first=40
static void int_index(size_t x)
{
	int *p = make(40);
	p[9 + x] = 7; // wrong
	drop(p);
}

// case double_index: heap-overflow size=80 first=80
static void double_index(size_t x)
{
	double *p = make(80), *q = hide(&(double){2.5});
	p[9 + x] = *q; // wrong
	drop(p);
}

struct item { int id; char name[20]; struct item *next; };
// case struct_member: heap-overflow size=96 first=96
static void struct_member(size_t x)
{
	struct item *p = make(3 * sizeof *p);
	p[2 + x].id = 3; // wrong
	drop(p);
}

// case member_array: heap-overflow size=32 first=32
static void member_array(size_t x)
{
	struct { long n; char name[24]; } *p = make(sizeof *p);
	char *name = hide(p->name);
	for (size_t i = 0; i < 24 + 3 * x; i++)
		name[i] = 'n'; // wrong
	drop(p);
}

// case flexible_array: heap-overflow size=28 first=28
static void flexible_array(size_t x)
{
	struct { int n; int tail[]; } *p = make(sizeof *p + 6 * sizeof(int));
	p->n = (int)(6 + x);
	for (int i = 0; i < p->n; i++)
		p->tail[i] = i + 1; // wrong
	drop(p);
}

// case terminator: heap-overflow size=16 first=16
static void terminator(size_t x)
{
	char *p = make(16);
	size_t n = 15 + x;
	memset(p, 'a', n);
	p[n] = 0; // wrong
	drop(p);
}

// case zero_size: heap-overflow size=0 first=0
static void zero_size(size_t x)
{
	char *p = make(0);
	if (x)
		*p = 1; // wrong
	drop(p);
}

// case set_bit: heap-overflow size=8 first=8
static void set_bit(size_t x)
{
	unsigned char *p = make(8);
	memset(p, 0, 8);
	p[7 + x] |= 0x20; // wrong
	drop(p);
}

// case atomic_add: heap-overflow size=64 first=64
static void atomic_add(size_t x)
{
	int *p = make(64);
	memset(p, 0, 64);
	__atomic_fetch_add(&p[15 + x], 5, __ATOMIC_SEQ_CST); // wrong
	drop(p);
}

// case wide_store: heap-overflow size=100 first=100
static void wide_store(size_t x)
{
	char *p = make(100);
	__asm__ volatile("pxor %%xmm7, %%xmm7\n\tmovups %%xmm7, (%0)" : : "r"(p + 84 + 8 * x) : "xmm7", "memory"); // wrong
	drop(p);
}

// case string_store: heap-overflow size=50 first=50
static void string_store(size_t x)
{
	char *p = make(50), *to = p;
	size_t n = 50 + 2 * x;
	__asm__ volatile("rep stosb" : "+D"(to), "+c"(n) : "a"(1) : "memory"); // wrong
	drop(p);
}

// case transposed: heap-overflow size=96 first=96
static void transposed(size_t x)
{
	long *m = make(3 * 4 * sizeof *m);
	size_t width = 4 - x; /* taken for height */
	for (size_t r = 0; r < 3 + x; r++)
		for (size_t c = 0; c < width + x; c++)
			m[r * 4 + c] = 1; // wrong
	drop(m);
}

/* --- behind the end: functions of libc ------------------------------------------------------------------------------------------------ */

// case copy_string: heap-overflow size=5 first=5
static void copy_string(size_t x)
{
	char *p = make(5);
	strcpy(p, hide(x ? "a string too long" : "ok")); // wrong
	drop(p);
}

// case append_string: heap-overflow size=6 first=6
static void append_string(size_t x)
{
	char *p = hide(strdup("hello"));
	strcat(p, hide(x ? "!" : "")); // wrong
	drop(p);
}

// case print: heap-overflow size=8 first=8
static void print(size_t x)
{
	char *p = make(8);
	sprintf(p, "%s %zu", (char *)hide(x ? "number" : "no"), x + 17); // wrong
	drop(p);
}

// case print_wide: heap-overflow size=20 first=20
static void print_wide(size_t x)
{
	wchar_t *p = make(5 * sizeof *p);
	wcscpy(p, hide(x ? L"12345" : L"1234")); // wrong
	drop(p);
}

// case scan: heap-overflow size=7 first=7
static void scan(size_t x)
{
	char *p = make(7);
	must(sscanf(hide(x ? "1234567 8" : "12345 6"), "%s", p) == 1); // wrong
	drop(p);
}

// case copy_memory: heap-overflow size=40 first=40
static void copy_memory(size_t x)
{
	int from[12] = {0};
	char *p = make(40);
	memcpy(p, hide(from), 40 + 8 * x); // wrong
	drop(p);
}

// case move_memory: heap-overflow size=300 first=300
static void move_memory(size_t x)
{
	char *p = make(300);
	memset(p, 3, 300);
	memmove(p + 10 + x, p, 290); // wrong
	drop(p);
}

// case set_memory: heap-overflow size=1000 first=1000
static void set_memory(size_t x)
{
	char *p = make(1000);
	memset(p, 'A', 1000 + 10 * x); // wrong
	drop(p);
}

static int by_value(const void *a, const void *b) { return (*(const int *)a > *(const int *)b) - (*(const int *)a < *(const int *)b); }
// case sort: heap-overflow size=16 first=16
static void sort(size_t x)
{
	int *p = make(16);
	p[0] = 4, p[1] = 3, p[2] = 2, p[3] = 1;
	qsort(p, 4 + x, sizeof *p, by_value); // wrong
	drop(p);
}

// case gets_line: heap-overflow size=10 first=10
static void gets_line(size_t x)
{
	FILE *f = fmemopen(hide("eleven bytes and more\n"), 22, "r");
	char *p = make(10);
	must(f && fgets(p, (int)(10 + 4 * x), f)); // wrong
	drop(p);
	fclose(f);
}

// case join_path: heap-overflow size=12 first=12
static void join_path(size_t x)
{
	char *p = make(12), *end = stpcpy(p, hide("/usr/lib"));
	*end++ = '/';
	stpcpy(end, hide(x ? "file" : "fi")); // wrong
	drop(p);
}

/* --- behind the end: the kernel --------------------------------------------------------------------------------------------------------- */

static void filled_pipe(int fd[2]) { must(pipe(fd) == 0 && write(fd[1], "twenty-four bytes or so", 24) == 24); }
static void shut(int fd[2]) { close(fd[0]), close(fd[1]); }

// case kernel_read: heap-overflow size=20 first=20
static void kernel_read(size_t x)
{
	int fd[2];
	char *p = make(20);
	filled_pipe(fd);
	must(read(fd[0], p, 20 + 4 * x) > 0); // wrong
	shut(fd);
	drop(p);
}

// case kernel_readv: heap-overflow size=10 first=10
static void kernel_readv(size_t x)
{
	int fd[2];
	char *p = make(10), head[8];
	struct iovec v[2] = {{head, 8}, {p, 10 + 2 * x}};
	filled_pipe(fd);
	must(readv(fd[0], v, 2) > 0); // wrong
	shut(fd);
	drop(p);
}

// case kernel_pread: heap-overflow size=30 first=30
static void kernel_pread(size_t x)
{
	int fd = open("/proc/self/exe", O_RDONLY);
	char *p = make(30);
	must(fd >= 0 && pread(fd, p, 30 + 6 * x, 0) > 0); // wrong
	close(fd);
	drop(p);
}

// case kernel_recv: heap-overflow size=16 first=16
static void kernel_recv(size_t x)
{
	int fd[2];
	char *p = make(16);
	must(socketpair(AF_UNIX, SOCK_STREAM, 0, fd) == 0 && send(fd[1], "a message of some length", 24, 0) == 24);
	must(recv(fd[0], p, 16 + 5 * x, 0) > 0); // wrong
	shut(fd);
	drop(p);
}

// case kernel_recvmsg: heap-overflow size=12 first=12
static void kernel_recvmsg(size_t x)
{
	int fd[2];
	char *p = make(12);
	struct iovec v = {p, 12 + 3 * x};
	struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1};
	must(socketpair(AF_UNIX, SOCK_DGRAM, 0, fd) == 0 && send(fd[1], "a message of some length", 24, 0) == 24);
	must(recvmsg(fd[0], &m, 0) > 0); // wrong
	shut(fd);
	drop(p);
}

// case kernel_cwd: heap-overflow size=1 first=1
static void kernel_cwd(size_t x)
{
	must(chdir("/") == 0);
	char *p = make(1 + !x);
	must(getcwd(p, 100)); // wrong
	drop(p);
}

// case kernel_stat: heap-overflow size=100 first=100
static void kernel_stat(size_t x)
{
	struct stat *p = make(x ? 100 : sizeof *p);
	must(stat("/", p) == 0); // wrong
	drop(p);
}

// case kernel_uname: heap-overflow size=380 first=380
static void kernel_uname(size_t x)
{
	struct utsname *p = make(x ? sizeof *p - 10 : sizeof *p);
	must(uname(p) == 0); // wrong
	drop(p);
}

// case kernel_pipe: heap-overflow size=4 first=4
static void kernel_pipe(size_t x)
{
	int *p = make(x ? 4 : 8);
	must(pipe(p) == 0); // wrong
	shut(p);
	drop(p);
}

// case kernel_poll: heap-overflow size=14 first=14
static void kernel_poll(size_t x)
{
	int fd[2];
	struct pollfd *p = make(x ? 14 : 16), *last = p + 1;
	filled_pipe(fd);
	p->fd = last->fd = fd[0];
	p->events = last->events = POLLIN;
	must(poll(p, 2, 0) == 2); // wrong
	shut(fd);
	drop(p);
}

// case kernel_random: heap-overflow size=10 first=10
static void kernel_random(size_t x)
{
	char *p = make(10);
	volatile char *first = p + 10;
	char was = x ? *first : 0;
	do
		must(getrandom(p, 10 + 12 * x, 0) > 0); // wrong
	while (x && *first == was); // one time in 256 it is that byte itself that comes
	drop(p);
}

// case vdso_time: heap-overflow size=8 first=8
static void vdso_time(size_t x)
{
	struct timespec *p = make(x ? 8 : sizeof *p);
	volatile unsigned char *first = (unsigned char *)&p->tv_nsec, was = *first;
	do
		must(clock_gettime(CLOCK_REALTIME, p) == 0); // wrong
	while (*first == was); // one time in 256 it is that byte itself that the clock writes
	drop(p);
}

// case stdio_read: heap-overflow size=20 first=20
static void stdio_read(size_t x)
{
	FILE *f = fopen("/proc/self/exe", "r");
	char *p = make(20);
	must(f && fread(p, 1, 20 + 9 * x, f) > 0); // wrong
	fclose(f);
	drop(p);
}

/* --- behind the end: kinds of blocks ------------------------------------------------------------------------------------------------------ */

// case cleared: heap-overflow size=36 first=36
static void cleared(size_t x)
{
	int *p = hide(calloc(9, sizeof *p));
	p[8 + x] = 1; // wrong
	drop(p);
}

// case grown: heap-overflow size=90 first=90
static void grown(size_t x)
{
	char *p = hide(realloc(make(30), 90));
	p[89 + x] = 1; // wrong
	drop(p);
}

// case shrunk: heap-overflow size=30 first=39
static void shrunk(size_t x)
{
	char *p = hide(realloc(make(40), x ? 30 : 40));
	p[39] = 1; // wrong
	drop(p);
}

// case before_grown: heap-overflow size=30 first=30
static void before_grown(size_t x)
{
	char *p = make(30);
	p[29 + x] = 1; // wrong
	drop(hide(realloc(p, 3000)));
}

// case array_grown: heap-overflow size=48 first=48
static void array_grown(size_t x)
{
	int *p = hide(reallocarray(make(4), 12, sizeof *p));
	p[11 + x] = 1; // wrong
	drop(p);
}

// case aligned_to_line: heap-overflow size=100 first=100
static void aligned_to_line(size_t x)
{
	char *p = hide(memalign(64, 100));
	p[99 + x] = 1; // wrong
	drop(p);
}

// case aligned_to_page: heap-overflow size=5000 first=5000
static void aligned_to_page(size_t x)
{
	void *q;
	must(posix_memalign(&q, 4096, 5000) == 0);
	char *p = hide(q);
	p[4999 + x] = 1; // wrong
	drop(p);
}

// case large: heap-overflow size=100000 first=100000
static void large(size_t x)
{
	char *p = make(100000);
	p[99999 + x] = 1; // wrong
	drop(p);
}

// case huge: heap-overflow size=3000000 first=3000000
static void huge(size_t x)
{
	char *p = make(3000000);
	p[2999999 + x] = 1; // wrong
	drop(p);
}

// case never_freed: heap-overflow size=24 first=24 alone=
static void never_freed(size_t x)
{
	static char *kept;
	kept = make(24);
	kept[23 + x] = 1; // wrong
}

/* --- in front of the beginning ------------------------------------------------------------------------------------------------------------- */

/* p is not the first block of its span. */
enum { ROW = 16 };
#define MAKE_ROW(p, n) char *row[ROW], *p; for (int i = 0; i < ROW; i++) row[i] = make(n); p = row[ROW / 2]
#define DROP_ROW() for (int i = 0; i < ROW; i++) drop(row[i])

// case one_before: heap-underflow size=100
static void one_before(size_t x)
{
	MAKE_ROW(p, 100);
	p[(ssize_t)-x] = 1; // wrong
	DROP_ROW();
}

// case header: heap-underflow size=200
static void header(size_t x)
{
	MAKE_ROW(p, 200);
	int *length = hide(p - 4 * x);
	*length = 200; // wrong
	DROP_ROW();
}

// case backwards: heap-underflow size=72
static void backwards(size_t x)
{
	MAKE_ROW(p, 72);
	for (char *at = p + 71; at >= p - x; at--)
		*at = ' '; // wrong
	DROP_ROW();
}

/* --- written after it was freed ------------------------------------------------------------------------------------------------------------- */

// case freed_word: use-after-free-write size=40 first=8
static void freed_word(size_t x)
{
	long *p = make(40);
	if (x)
		drop(p);
	p[1] = 1; // wrong
	if (!x)
		drop(p);
}

// case freed_member: use-after-free-write size=96 first=32
static void freed_member(size_t x)
{
	struct item *p = make(3 * sizeof *p);
	if (x)
		drop(p);
	p[1].id = 7; // wrong
	if (!x)
		drop(p);
}

// case freed_set: use-after-free-write size=60 first=0
static void freed_set(size_t x)
{
	char *p = make(60);
	if (x)
		drop(p);
	memset(hide(p), 0, 60); // wrong
	if (!x)
		drop(p);
	hide(NULL); /* no call above is the last */
}

// case freed_string: use-after-free-write size=32 first=0
static void freed_string(size_t x)
{
	char *p = make(32);
	if (x)
		drop(p);
	strcpy(hide(p), hide("some text")); // wrong
	if (!x)
		drop(p);
	hide(NULL); /* no call above is the last */
}

// case freed_kernel: use-after-free-write size=50 first=0
static void freed_kernel(size_t x)
{
	int fd[2];
	char *p = make(50);
	filled_pipe(fd);
	if (x)
		drop(p);
	must(read(fd[0], hide(p), 24) == 24); // wrong
	shut(fd);
	if (!x)
		drop(p);
	hide(NULL); /* no call above is the last */
}

// case freed_count: use-after-free-write size=16 first=0
static void freed_count(size_t x)
{
	struct { int refs; long data; } *p = make(sizeof *p);
	p->refs = 1 + !x;
	if (--p->refs == 0)
		drop(p);
	hide(p);
	p->refs--; // wrong
	if (!x)
		drop(p);
}

// case freed_list: use-after-free-write size=32 first=24
static void freed_list(size_t x)
{
	struct item *head = make(sizeof *head), *second = make(sizeof *second);
	head->next = second;
	second->next = NULL;
	if (x)
		drop(second); /* and still in the list */
	struct item *at = hide(head);
	at = at->next;
	at->next = head; // wrong
	drop(head);
	if (!x)
		drop(second);
}

// case freed_moved: use-after-free-write size=24 first=4
static void freed_moved(size_t x)
{
	int *p = make(24), *element = hide(p + 1), *q = hide(realloc(p, 5000));
	if (!x)
		element = q + 1;
	*element = 1; // wrong
	drop(q);
}

// case freed_buffer: use-after-free-write size=512 first=0
static void freed_buffer(size_t x)
{
	char *p = make(512);
	FILE *f = fopen("/dev/null", "w");
	must(f && setvbuf(f, p, _IOFBF, 512) == 0);
	if (x)
		drop(p);
	fputs("to a buffer that is gone", f); // wrong
	fclose(f);
	if (!x)
		drop(p);
}

// case freed_behind: use-after-free-write size=20 first=21
static void freed_behind(size_t x)
{
	char *p = make(20);
	if (x)
		drop(p);
	p[21 - 2 * !x] = 1; // wrong
	if (!x)
		drop(p);
}

// case freed_flushed: use-after-free-write size=40 first=0 alone=
static void freed_flushed(size_t x)
{
	char *p = make(40);
	if (x)
		drop(p);
	p[0] = 1; // wrong
	if (!x)
		drop(p);
	for (int i = 0; i < 40000; i++)
		drop(make(40)); /* until quarantine has let it go */
}

/* --- by other threads -------------------------------------------------------------------------------------------------------------------------- */

static sem_t begun, done;
static void *volatile work;
static volatile size_t amount;

static void *stores(void *unused)
{
	(void)unused;
	sem_wait(&begun);
	char *p = work;
	for (size_t i = 0; i < amount; i++)
		p[i] = 't'; // wrong other_stores
	sem_post(&done);
	pause();
	return NULL;
}

static void *frees(void *unused)
{
	(void)unused;
	sem_wait(&begun);
	drop(work);
	sem_post(&done);
	pause();
	return NULL;
}

/* The epoch in which a thread is made is not executed again: no write in it has a writer. When the next one begins is not for the program to know, hence writer=maybe. */
static void have(void *(*f)(void *))
{
	pthread_t t;
	must(sem_init(&begun, 0, 0) == 0 && sem_init(&done, 0, 0) == 0 && pthread_create(&t, NULL, f, NULL) == 0);
}

// case other_stores: heap-overflow size=48 first=48 writer=maybe alone=
static void other_stores(size_t x)
{
	have(stores);
	work = make(48);
	amount = 48 + x;
	sem_post(&begun);
	sem_wait(&done);
	drop(work);
}

// case other_frees: use-after-free-write size=48 first=5 free=frees writer=maybe alone=
static void other_frees(size_t x)
{
	char *p = make(48);
	have(frees);
	work = x ? p : make(48);
	sem_post(&begun);
	sem_wait(&done);
	p[5] = 1; // wrong
	if (!x)
		drop(p);
}

/* --- freed wrongly -------------------------------------------------------------------------------------------------------------------------------- */

// case twice: double-free and=crash ends=SIGABRT
static void twice(size_t x)
{
	char *p = make(40);
	drop(p);
	if (x)
		drop(p);
}

// case twice_by_realloc: double-free and=crash ends=SIGABRT
static void twice_by_realloc(size_t x)
{
	char *p = make(40), *q = hide(realloc(p, 4000));
	drop(x ? p : q);
}

// case inside: invalid-free and=crash ends=SIGABRT
static void inside(size_t x)
{
	char *p = make(100);
	drop(p + 48 * x);
}

// case automatic: invalid-free and=crash ends=SIGABRT
static void automatic(size_t x)
{
	_Alignas(16) char here[32];
	drop(x ? hide(here) : make(32));
}

// case literal: invalid-free and=crash ends=SIGABRT
static void literal(size_t x)
{
	static _Alignas(16) char fixed[64] = "static";
	drop(x ? hide(fixed) : hide(strdup(fixed)));
}

/* --- what is not seen ------------------------------------------------------------------------------------------------------------------------------- */

// case reads_behind: missed reads are not looked at
static void reads_behind(size_t x)
{
	char *p = make(10);
	memset(p, 1, 10);
	hide(&(char){p[9 + x]});
	drop(p);
}

// case reads_freed: missed reads are not looked at
static void reads_freed(size_t x)
{
	char *p = make(10);
	memset(p, 1, 10);
	if (x)
		drop(p);
	hide(&(char){((char *)hide(p))[1]});
	if (!x)
		drop(p);
}

// case leaps: missed it is beyond the guard bytes
static void leaps(size_t x)
{
	int *p = make(64 * sizeof *p);
	p[63 + 251 * x] = 1;
	drop(p);
}

// case inside_struct: missed it stays in its block
static void inside_struct(size_t x)
{
	struct { char name[8]; long n; } *p = make(sizeof *p);
	char *name = hide(p->name);
	name[7 + x] = 0;
	drop(p);
}

// case same_bytes: missed what is written is what was there
static void same_bytes(size_t x)
{
	volatile char *p = make(10);
	memset((char *)p, 1, 10);
	p[9 + x] = p[9 + x];
	drop((char *)p);
}

// case freed_far: missed of a freed block the first 128 bytes are looked at
static void freed_far(size_t x)
{
	char *p = make(1000);
	if (x)
		drop(p);
	p[500] = 1;
	if (!x)
		drop(p);
}

// case handed_out_again: missed alone= the block is another's by then
static void handed_out_again(size_t x)
{
	char *p = make(40), *q = NULL;
	if (x)
		drop(p);
	for (int i = 0; i < 40000 && q != p; i++) {
		if (q)
			drop(q);
		q = make(40);
	}
	p[0] = 1;
	drop(q);
	if (!x)
		drop(p);
}

static const struct { const char *name; void (*f)(size_t); } cases[] = {
#define C(f) {#f, f}
	C(byte_loop), C(int_index), C(double_index), C(struct_member), C(member_array), C(flexible_array), C(terminator), C(zero_size), C(set_bit), C(atomic_add), C(wide_store), C(string_store), C(transposed), C(copy_string), C(append_string), C(print), C(print_wide), C(scan),
	C(copy_memory), C(move_memory), C(set_memory), C(sort), C(gets_line), C(join_path), C(kernel_read), C(kernel_readv), C(kernel_pread), C(kernel_recv), C(kernel_recvmsg), C(kernel_cwd), C(kernel_stat), C(kernel_uname), C(kernel_pipe), C(kernel_poll), C(kernel_random), C(vdso_time),
	C(stdio_read), C(cleared), C(grown), C(shrunk), C(before_grown), C(array_grown), C(aligned_to_line), C(aligned_to_page), C(large), C(huge), C(never_freed), C(one_before), C(header), C(backwards), C(freed_word), C(freed_member), C(freed_set), C(freed_string), C(freed_kernel), C(freed_count),
	C(freed_list), C(freed_moved), C(freed_buffer), C(freed_behind), C(freed_flushed), C(other_stores), C(other_frees), C(twice), C(twice_by_realloc), C(inside), C(automatic), C(literal), C(reads_behind), C(reads_freed), C(leaps), C(inside_struct), C(same_bytes), C(freed_far),
	C(handed_out_again)};

/* Arguments are cases, one after the other; "clean" at the end: their twins; alone: all twins. */
int main(int argc, char **argv)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	size_t x = strcmp(argv[argc - 1], "clean") != 0, n = sizeof cases / sizeof *cases;
	for (size_t i = 0; argc == 2 && !x && i < n; i++)
		cases[i].f(0);
	for (int a = 1; a < argc; a++)
		for (size_t i = 0; i < n; i++)
			if (strcmp(cases[i].name, argv[a]) == 0)
				cases[i].f(x);
	puts("ok");
	return 0;
}
