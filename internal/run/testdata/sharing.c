// Memory that other processes see, written by two threads, with a lock, while epochs are executed again. Verdict: clean.
// Where it is from: "nobody" (MAP_ANONYMOUS), "memfd", "file", "unlinked", "posix", "sysv". Who else writes there: "children", each of which has a part of its own and works a while; "other", a child that answers what it is asked there, by
// looking, so a re-execution may come out otherwise. What happens to it: "protected", "shorter" (the file ends before the mapping does), "parts" (a part is mapped elsewhere), "gone" (a part is unmapped, and something private may be mapped in its place), "large" (more than is followed), "device" (what looks like memory and is
// a device's: a perf event's page; without perf nothing is printed). "spoiled": crashes, of a pointer there that spoil_board has written. Verdict: crash.
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/perf_event.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096, PAGES = 8, ROUNDS = 150, CHILDREN = 3 };
#define MUST(x) do { if (!(x)) { perror(#x); exit(1); } } while (0)

struct table { long count, each[CHILDREN], *at; _Atomic long asked, answered; };
static struct table *table;
static size_t bytes = PAGES * PAGE;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const char *what;
static int rounds = ROUNDS;
static long seen, *elsewhere, one = 1, uses;
static pthread_t other;

__attribute__((noinline)) static void spoil_board(void) { table->at = (long *)0x1230; }

static void pause_ms(long ms) { nanosleep(&(struct timespec){0, ms * 1000000}, NULL); }

static void *from_file(const char *directory, int remove)
{
	char name[300];
	snprintf(name, sizeof name, "%s/sharing.%d", directory, (int)getpid());
	int fd = open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
	MUST(fd >= 0 && ftruncate(fd, (off_t)bytes) == 0);
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (remove)
		unlink(name);
	return p;
}

static void *map(const char *directory)
{
	char name[64];
	int fd = -1;
	if (!strcmp(what, "file") || !strcmp(what, "unlinked"))
		return from_file(directory, *what == 'u');
	if (!strcmp(what, "sysv")) {
		int id = shmget(IPC_PRIVATE, bytes, IPC_CREAT | 0600);
		void *p = shmat(id, NULL, 0);
		shmctl(id, IPC_RMID, NULL);
		return p;
	}
	if (!strcmp(what, "memfd") || !strcmp(what, "shorter"))
		fd = memfd_create("sharing", 0);
	if (!strcmp(what, "posix")) {
		snprintf(name, sizeof name, "/sharing.%d", (int)getpid());
		fd = shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
		shm_unlink(name);
	}
	if (!strcmp(what, "device")) {
		struct perf_event_attr a = {.type = PERF_TYPE_SOFTWARE, .size = sizeof a, .config = PERF_COUNT_SW_DUMMY, .exclude_kernel = 1};
		fd = (int)syscall(SYS_perf_event_open, &a, 0, -1, -1, 0);
		if (fd < 0)
			exit(0);
		bytes = 9 * PAGE;
		MUST(mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) != MAP_FAILED);
		fd = -1;
	} else if (fd >= 0)
		MUST(ftruncate(fd, (off_t)bytes) == 0);
	if (!strcmp(what, "large"))
		MUST(mmap(NULL, 65 << 20, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0) != MAP_FAILED);
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, fd < 0 ? MAP_SHARED | MAP_ANONYMOUS : MAP_SHARED, fd, 0);
	if (!strcmp(what, "shorter"))
		MUST(ftruncate(fd, PAGE) == 0);
	return p;
}

static void *work(void *arg)
{
	long *page = (long *)((char *)table + 1024);
	for (int r = 0; r < rounds; r++) {
		pthread_mutex_lock(&lock);
		if (*page != table->count)
			printf("round %d: %ld, not %ld\n", r, *page, table->count);
		*page = ++table->count;
		seen += table->count % 7;
		if (elsewhere)
			seen += ++*elsewhere;
		if (!strcmp(what, "protected") && r % 16 == 0) {
			mprotect((char *)table + 2 * PAGE, PAGE, PROT_READ);
			mprotect((char *)table + 2 * PAGE, PAGE, PROT_READ | PROT_WRITE);
		}
		if (!strcmp(what, "gone") && arg && r % 40 == 39) {
			char *part = (char *)table + (3 + r / 40) * PAGE;
			seen += part[5]++;
			munmap(part, PAGE);
			if (r / 40 % 2)
				MUST(mmap(part, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == part && !part[5]);
		}
		if (!strcmp(what, "other") && arg) {
			long n = atomic_fetch_add(&table->asked, 1) + 1;
			while (table->answered < n)
				pause_ms(0);
			seen += n;
		}
		pthread_mutex_unlock(&lock);
		if (!strcmp(what, "spoiled") && arg && r == ROUNDS / 2)
			spoil_board();
		if (!arg)
			uses += *table->at;
		free(malloc((size_t)r));
		pause_ms(2);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	pid_t child[CHILDREN];
	int children = 0;
	what = argc > 1 ? argv[1] : "nobody";
	if (!strcmp(what, "other"))
		rounds = 30;
	table = map(argc > 2 ? argv[2] : "/tmp");
	MUST(table && (void *)table != MAP_FAILED);
	if (!strcmp(what, "parts"))
		MUST((elsewhere = mremap((char *)table + 4 * PAGE, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, (char *)table + 6 * PAGE)) != MAP_FAILED);
	if (!strcmp(what, "children") || !strcmp(what, "other"))
		for (; children < (*what == 'o' ? 1 : CHILDREN); children++) {
			if ((child[children] = fork()) != 0)
				continue;
			for (int r = 0; r < ROUNDS && *what == 'c'; r++) {
				table->each[children] += r;
				pause_ms(2);
			}
			while (*what == 'o' && table->answered < rounds) {
				if (table->asked > table->answered)
					table->answered++;
				pause_ms(0);
			}
			exit(*what == 'c' ? table->each[children] != ROUNDS * (ROUNDS - 1) / 2 : 0);
		}
	table->at = &one;
	MUST(pthread_create(&other, NULL, work, table) == 0);
	work(NULL);
	pthread_join(other, NULL);
	for (int i = 0, status; i < children; i++) {
		waitpid(child[i], &status, 0);
		printf("%d: %d\n", i, status); /* not what it wrote: that a re-execution does not see */
	}
	printf("%ld %ld %ld\n", table->count, seen, uses);
	return 0;
}
