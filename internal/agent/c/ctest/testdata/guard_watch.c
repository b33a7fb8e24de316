// Threads that write to a block under a lock, and now and then beyond what is theirs of it. Each epoch is re-executed with watches on what lies beyond; the last hit must be the last wrong write: its thread, its value, its instruction.
// (refuse N COMMAND …: executes the command, with perf_event_open failing by error N.)
// A line an epoch: "well", or what is wrong; a line of what the last one's watches were, and one of the last hit of the last. The arguments: how it is written, epochs, flags of rs_guard_begin, how many bytes beyond are watched (0: none of the watches is asked for),
// more descriptors that may be open (0: no limit of ours; negative: as many debug registers does each thread have in use itself), and how far behind the agent's pthread_create rs_guard_begin, _checkpoint, _again, _last, _watch and _watches are.
#define _GNU_SOURCE 1
#include "../../guardwatch.h"
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/hw_breakpoint.h>
#include <linux/filter.h>
#include <linux/perf_event.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

enum { CLEAN, BYTE, WIDE, VECTOR, STRCPY, MEMSET, REP, HOT, READ_PIPE, READ_FILE, KINDS };
static const char *const kinds[KINDS] = {"clean", "byte", "wide", "vector", "strcpy", "memset", "rep", "hot", "pipe", "file"};
enum { OFTEN = 1000000 };
enum { THREADS = 4, QUOTA = 60, OBJECT = 40, BEYOND = 152 };
struct block { char object[OBJECT], beyond[BEYOND]; };
static struct block *block;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER, start = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t started = PTHREAD_COND_INITIALIZER, finished = PTHREAD_COND_INITIALIZER;
static unsigned quota, ready, what, wrong[3];
static int registers;
static int pipes[2], file;
static char alternate[THREADS][1 << 16];
static volatile size_t more = OBJECT + 8; // so that it is libc's memset
static volatile int trapped;
// No rollback touches it.
static struct shared { char line[100][200]; struct rs_guard_watched w; unsigned more[100]; } *shared;
static uint32_t culprit, times; // under lock
static char value;

extern char __executable_start[], byte_written[], wide_written[], vector_written[], rep_write[], rep_written[];
__attribute__((noinline)) static void byte_store(char *p, int v) { __asm__ volatile("movb %b1, (%0)\nbyte_written: nop" : : "r"(p), "q"(v) : "memory"); }
__attribute__((noinline)) static void wide_store(char *p, int v) { __asm__ volatile("lock addq %1, (%0)\nwide_written: nop" : : "r"(p), "r"(v * 0x0101010101010101l) : "memory", "cc"); }
// Its first half is the object's.
__attribute__((noinline)) static void vector_store(char *p, int v) { __asm__ volatile("movd %1, %%xmm0\npunpcklbw %%xmm0, %%xmm0\npshuflw $0, %%xmm0, %%xmm0\npunpcklqdq %%xmm0, %%xmm0\nmovups %%xmm0, (%0)\nvector_written: nop" : : "r"(p), "r"(v) : "memory", "xmm0"); }
__attribute__((noinline)) static void rep_store(char *p, int v, size_t n) { __asm__ volatile("rep_write: rep stosb\nrep_written: nop" : "+D"(p), "+c"(n) : "a"(v) : "memory"); }

static void fail(const char *s)
{
	fprintf(stderr, "%s\n", s);
	_exit(3);
}

// Under the lock. What is right is right up to the last byte; what is wrong begins in the object, or right behind it.
static void right(int v)
{
	static char text[OBJECT];
	memset(text, 'a' + v % 26, OBJECT - 1);
	byte_store(block->object + OBJECT - 1, v);
	vector_store(block->object + OBJECT - 16, v);
	strcpy(block->object, text);
	memset(block->object, v, OBJECT);
	rep_store(block->object, v, OBJECT);
	if (what >= READ_PIPE && (syscall(SYS_write, pipes[1], text, OBJECT) != OBJECT || syscall(SYS_read, pipes[0], block->object, OBJECT) != OBJECT || syscall(SYS_pread64, file, block->object, OBJECT, v) != OBJECT))
		fail("read");
}

static void wrongly(int v)
{
	char text[OBJECT + 9];
	char *b = block->beyond;
	memset(text, 'A' + v % 26, sizeof text);
	text[OBJECT + 8] = 0;
	switch (what) {
	case CLEAN: return;
	case BYTE: byte_store(b, v); break;
	case WIDE: wide_store(b, v); break;
	case VECTOR: vector_store(b - 8, v); break;
	case STRCPY: strcpy(block->object, text); break;
	case MEMSET: memset(block->object, v, more); break;
	case REP: rep_store(block->object, v, OBJECT + 8); break;
	case READ_PIPE:
		if (syscall(SYS_write, pipes[1], text, OBJECT + 1) != OBJECT + 1 || syscall(SYS_read, pipes[0], block->object, 200) != OBJECT + 1)
			fail("read");
		break;
	case READ_FILE:
		if (syscall(SYS_pread64, file, block->object, OBJECT + 1, v) != OBJECT + 1)
			fail("pread");
	}
	culprit = (uint32_t)gettid();
	value = b[0];
	times++;
}

// As a debugger would, or the program itself.
static void use_registers(int n)
{
	static long unused[4];
	for (int i = 0; i < n; i++) {
		struct perf_event_attr a = {.type = PERF_TYPE_BREAKPOINT, .size = sizeof a, .bp_type = HW_BREAKPOINT_W, .bp_addr = (uintptr_t)&unused[i], .bp_len = 8, .exclude_kernel = 1, .exclude_hv = 1};
		if (syscall(SYS_perf_event_open, &a, 0, -1, -1, 0) < 0)
			fail("perf_event_open");
	}
}

static void *thread(void *arg)
{
	use_registers(registers);
	unsigned seed = (unsigned)(intptr_t)arg + 1;
	char *other = alternate[(intptr_t)arg];
	sigset_t all;
	sigfillset(&all);
	// Whoever blocks SIGTRAP does not keep it from us.
	if ((intptr_t)arg % 2)
		pthread_sigmask(SIG_BLOCK, &all, NULL);
	for (unsigned turn = 0;; turn++) {
		if (turn % QUOTA == 0) {
			pthread_mutex_lock(&start);
			ready++;
			pthread_cond_signal(&finished);
			while (turn >= quota)
				pthread_cond_wait(&started, &start);
			pthread_mutex_unlock(&start);
		}
		pthread_mutex_lock(&lock);
		right(rand_r(&seed) & 127);
		for (int i = 0; what == HOT && turn % QUOTA == 0 && i < OFTEN; i++)
			byte_store(block->object, i);
		for (int i = 0; i < 3; i++)
			if (wrong[i] % THREADS == (unsigned)(intptr_t)arg && wrong[i] / THREADS % QUOTA == turn % QUOTA)
				wrongly(1 + (rand_r(&seed) & 63));
		if (what >= READ_PIPE && turn % 7 == 0) {
			stack_t set = {.ss_sp = other, .ss_size = sizeof alternate[0] / (1 + turn % 2)}, was;
			if (syscall(SYS_sigaltstack, &set, &was) != 0 || (was.ss_sp != NULL && was.ss_sp != other))
				fail("sigaltstack");
		}
		pthread_mutex_unlock(&lock);
	}
	return NULL;
}

static void trap(int sig) { trapped = sig; }

static const char *judge(unsigned beyond)
{
	struct rs_guard_watched *w = &shared->w;
	const struct rs_guard_hit *last;
	unsigned bytes = 0;
	for (unsigned i = 0; i < w->units; i++)
		bytes += w->unit[i].bytes;
	if (bytes != beyond)
		return "units";
	if (w->refused)
		return "refused";
	for (unsigned i = 0; i < w->units; i++) {
		struct rs_guard_unit *u = &w->unit[i];
		if (u->state != RS_GUARD_UNIT_WATCHED || u->lost)
			return u->lost ? "lost" : "state";
		if ((uint64_t)u->count > 0 && what == CLEAN)
			return "hit";
	}
	if (what == CLEAN)
		return "well";
	struct rs_guard_unit *u = &w->unit[0];
	if (what == REP || what == MEMSET || what == STRCPY ? u->count < times : u->count != times)
		return "count";
	if (times == 0)
		return "well";
	last = &u->hit[(u->count - 1) % RS_GUARD_HITS];
	if (!last->order)
		return "order";
	if (last->tid != culprit)
		return "thread";
	uint64_t now = 0;
	memcpy(&now, (void *)u->address, u->bytes);
	if ((char)last->after != value || last->after != now || last->address != u->address || last->late)
		return "value";
	for (uint64_t k = u->count > RS_GUARD_HITS ? u->count - RS_GUARD_HITS + 1 : 1; k < u->count; k++)
		if (u->hit[k % RS_GUARD_HITS].before != u->hit[(k - 1) % RS_GUARD_HITS].after || u->hit[k % RS_GUARD_HITS].event < 1)
			return "before";
	Dl_info info = {0};
	char *pc = (char *)last->pc;
	if (what >= READ_PIPE ? last->call != (what == READ_PIPE ? SYS_read : SYS_pread64) : last->call != -1)
		return "call";
	if (last->frames != 1 || (what < READ_PIPE && (last->frame[0] != last->pc || last->gregs[16] != last->pc)))
		return "frames";
	switch (what) {
	case BYTE: return pc == byte_written ? "well" : "pc";
	case WIDE: return pc == wide_written ? "well" : "pc";
	case VECTOR: return pc == vector_written ? "well" : "pc";
	case REP: return pc == rep_written || pc == rep_write ? "well" : "pc";
	case MEMSET:
	case STRCPY: return dladdr(pc, &info) && strstr(info.dli_fname, "libc.so") ? "well" : "pc";
	}
	return "well";
}

// Executes a command for which perf_event_open gives an error.
static void refuse(int error, char **argv)
{
	struct sock_filter code[] = {{BPF_LD | BPF_W | BPF_ABS, 0, 0, 0}, {BPF_JMP | BPF_JEQ | BPF_K, 0, 1, SYS_perf_event_open}, {BPF_RET, 0, 0, SECCOMP_RET_ERRNO | (uint32_t)error}, {BPF_RET, 0, 0, SECCOMP_RET_ALLOW}};
	struct sock_fprog filter = {4, code};
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0)
		fail("seccomp");
	execvp(argv[0], argv);
	fail("exec");
}

int main(int argc, char **argv)
{
	if (argc > 3 && strcmp(argv[1], "refuse") == 0)
		refuse(atoi(argv[2]), argv + 3);
	if (argc != 12)
		return 2;
	char *agent = dlsym(RTLD_DEFAULT, "pthread_create");
	long (*begin)(unsigned) = (long (*)(unsigned))(agent + atol(argv[6]));
	long (*checkpoint)(void) = (long (*)(void))(agent + atol(argv[7]));
	long (*again)(void) = (long (*)(void))(agent + atol(argv[8]));
	void (*last)(void *) = (void (*)(void *))(agent + atol(argv[9]));
	long (*watch)(const struct rs_guard_watch *, unsigned) = (long (*)(const struct rs_guard_watch *, unsigned))(agent + atol(argv[10]));
	void (*watches)(void *) = (void (*)(void *))(agent + atol(argv[11]));
	struct { uint32_t why, tid, event, lost, threads, events; uint64_t was, is, at; } l;
	while (what < KINDS && strcmp(argv[1], kinds[what]) != 0)
		what++;
	int epochs = atoi(argv[2]);
	unsigned seed = 77, beyond = (unsigned)atoi(argv[4]);
	shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	block = aligned_alloc(64, sizeof *block);
	memset(block, 0, sizeof *block);
	file = open("/proc/self/exe", O_RDONLY);
	if (what == KINDS || shared == MAP_FAILED || pipe(pipes) != 0 || file < 0 || begin((unsigned)atoi(argv[3])) != 0)
		fail("begin");
	registers = -atoi(argv[5]);
	struct sigaction own = {.sa_handler = trap};
	sigaction(SIGTRAP, &own, NULL);
	pthread_t t[THREADS];
	for (intptr_t i = 0; i < THREADS; i++)
		pthread_create(&t[i], NULL, thread, (void *)i);
	struct rlimit limit = {3 + (rlim_t)atoi(argv[5]), 3 + (rlim_t)atoi(argv[5])};
	if (atoi(argv[5]) > 0 && setrlimit(RLIMIT_NOFILE, &limit) != 0)
		fail("setrlimit");
	pthread_mutex_lock(&start);
	while (ready < THREADS)
		pthread_cond_wait(&finished, &start);
	pthread_mutex_unlock(&start);
	if (checkpoint() < 0)
		fail("checkpoint");
	struct rs_guard_watch bytes[] = {{(uintptr_t)block->beyond, beyond / 2 ? beyond / 2 : 1}, {(uintptr_t)block->beyond + beyond / 2, beyond - beyond / 2}};
	for (int e = 0; e < epochs; e++) {
		times = 0;
		pthread_mutex_lock(&start);
		for (int i = 0; i < 3; i++)
			wrong[i] = (unsigned)rand_r(&seed) & 0xffff;
		while (ready < THREADS)
			pthread_cond_wait(&finished, &start);
		ready = 0;
		quota += QUOTA;
		pthread_cond_broadcast(&started);
		while (ready < THREADS)
			pthread_cond_wait(&finished, &start);
		pthread_mutex_unlock(&start);
		long asked = beyond ? watch(bytes, beyond < 2 ? 1 : 2) : 0;
		long r = again();
		last(&l);
		if (beyond)
			watches(&shared->w);
		shared->more[e] = shared->w.tries - shared->w.rounds;
		char *line = shared->line[e];
		const char *came = asked ? "asked" : r ? "verdict" : beyond ? judge(beyond) : "well";
		if (strcmp(came, "well") == 0)
			strcpy(line, "well\n");
		else
			snprintf(line, sizeof shared->line[e], "%s: asked %ld verdict %ld at 0x%lx was 0x%lx is 0x%lx lost %u times %u count %lu\n", came, asked, r, (unsigned long)l.at, (unsigned long)l.was, (unsigned long)l.is, l.lost, times, (unsigned long)shared->w.unit[0].count);
	}
	if (trapped)
		fail("the program's handler was called");
	unsigned more = 0;
	for (int e = 0; e < epochs; e++) {
		fputs(shared->line[e], stdout);
		more += shared->more[e];
	}
	printf("units %u rounds %u more tries %u at once %u refused %u error %d pages %u\n", shared->w.units, shared->w.rounds, more, shared->w.at_once, shared->w.refused, shared->w.error, shared->w.pages);
	struct rs_guard_unit *u = &shared->w.unit[0];
	struct rs_guard_hit *h = &u->hit[u->count ? (u->count - 1) % RS_GUARD_HITS : 0];
	printf("hit base %lu pc %lu address %lu bytes %u regs", (unsigned long)__executable_start, (unsigned long)h->pc, (unsigned long)h->address, u->bytes);
	for (unsigned i = 0; i < 17; i++)
		printf(" %lu", (unsigned long)h->gregs[i]);
	puts("");
	fflush(stdout);
	_exit(0);
}
