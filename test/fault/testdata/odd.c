// Programs that do what few do, one for each name in `table`. Each prints what depends on nothing but its own right working.
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;
static char self[4096];
static pthread_mutex_t outer = PTHREAD_MUTEX_INITIALIZER, inner = PTHREAD_MUTEX_INITIALIZER;
static long sum;

static void *worker(void *arg)
{
	for (long i = 0; i < 200; i++) {
		pthread_mutex_lock(&outer);
		pthread_mutex_lock(&inner);
		sum += (long)arg;
		free(malloc(64));
		pthread_mutex_unlock(&inner);
		pthread_mutex_unlock(&outer);
	}
	return NULL;
}

// 1 if all went well.
static int threads(int n)
{
	pthread_t t[600];
	sum = 0;
	int made = 0;
	while (made < n && pthread_create(&t[made], NULL, worker, (void *)1L) == 0)
		made++;
	for (int i = 0; i < made; i++)
		if (pthread_join(t[i], NULL))
			return 0;
	return made == n && sum == 200l * n;
}

static int status_of(pid_t pid)
{
	int s = -1;
	return pid > 0 && waitpid(pid, &s, 0) == pid ? s : -1;
}

static int fork_with_threads(void)
{
	fflush(stdout);
	pid_t pid = fork();
	if (pid == 0)
		exit(threads(3) ? 5 : 6);
	return status_of(pid);
}

static int leaf(void)
{
	fflush(stdout);
	pid_t pid = fork();
	if (pid == 0) {
		execl(self, self, "leaf", NULL);
		_exit(127);
	}
	return status_of(pid);
}

static void everything(const char *when)
{
	int a = threads(5), b = fork_with_threads(), c = leaf();
	printf("%s: %d %x %x\n", when, a, (unsigned)b, (unsigned)c);
	fflush(stdout);
}

// --- descriptors ------------------------------------------------------------------------------------------------------------------------

static int open_count(void)
{
	int n = 0;
	for (int fd = 0; fd < 1024; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

static void close_all(void)
{
	int keep = dup(1), n = open_count();
	for (int fd = 0; fd < 1024; fd++)
		if (fd != keep)
			close(fd);
	dup2(keep, 1);
	int next = dup(1);
	everything("closed at the start");
	syscall(SYS_close_range, 3, ~0u, 0);
	everything("closed again");
	printf("%d open, next %d, %d\n", n, next, dup(1));
	int f = open("/dev/null", O_RDONLY);
	everything("a file open");
	printf("next %d %d\n", f, open("/dev/null", O_RDONLY));
}

static void few_descriptors(void)
{
	struct rlimit r = {3, 3};
	everything("before");
	setrlimit(RLIMIT_NOFILE, &r);
	int a = threads(100);
	errno = 0;
	int fd = dup(1);
	printf("%d, dup %d %d\n", a, fd, errno);
	int b = fork_with_threads();
	printf("%x\n", (unsigned)b);
}

static void look(void)
{
	char path[64];
	DIR *d = opendir("/proc/self/fd");
	int n = 0;
	while (readdir(d))
		n++;
	closedir(d);
	printf("%d in /proc/self/fd\n", n);
	snprintf(path, sizeof path, "/proc/%d/environ", getpid());
	FILE *f = fopen(path, "r");
	// Empty strings may follow, where the agent's variables were; bash's own `_` names what it has started.
	char *line = NULL;
	size_t room = 0;
	while (getdelim(&line, &room, 0, f) > 0)
		if (*line && line[0] != '_')
			puts(line);
	fclose(f);
	free(line);
	for (char **e = environ; *e; e++)
		if (**e != '_')
			puts(*e);
	char **e = environ;
	while (*e)
		e++;
	printf("execfn %s, secure %lu, page %lu\n", (char *)getauxval(AT_EXECFN), getauxval(AT_SECURE), getauxval(AT_PAGESZ));
	for (uint64_t *a = (uint64_t *)(e + 1);; a += 2) {
		if (a[0] != AT_IGNORE)
			printf("aux %lu\n", (unsigned long)a[0]);
		if (a[0] == AT_NULL)
			break;
	}
}

// --- limits -----------------------------------------------------------------------------------------------------------------------------

static void limit(int what, rlim_t value)
{
	struct rlimit r;
	getrlimit(what, &r);
	r.rlim_cur = value;
	if (setrlimit(what, &r))
		printf("no limit: %d\n", errno);
}

static long used(void)
{
	long pages = 0;
	FILE *f = fopen("/proc/self/statm", "r");
	if (fscanf(f, "%ld", &pages) != 1)
		pages = 0;
	fclose(f);
	return pages * 4096;
}

static void small_address_space(void)
{
	limit(RLIMIT_STACK, 256 << 10); // of the threads
	everything("before");
	limit(RLIMIT_AS, (rlim_t)used() + (8 << 20));
	everything("with 8 MiB");
}

static void small_stack(void)
{
	limit(RLIMIT_STACK, 64 << 10);
	everything("stack");
	pthread_attr_t a;
	pthread_attr_init(&a);
	pthread_attr_setstacksize(&a, 16384);
	for (int i = 0; i < 20; i++) {
		pthread_t t;
		if (pthread_create(&t, &a, worker, (void *)1L) || pthread_join(t, NULL))
			puts("no thread");
	}
	puts("small ones");
}

static void no_files(void)
{
	limit(RLIMIT_FSIZE, 0);
	printf("%d\n", threads(100));
	limit(RLIMIT_FSIZE, 1);
	int b = fork_with_threads(), c = leaf();
	printf("%x %x\n", (unsigned)b, (unsigned)c);
}

// --- rights -----------------------------------------------------------------------------------------------------------------------------

static void drop(void)
{
	if (setgroups(0, NULL) || setgid(65534) || setuid(65534))
		printf("cannot drop: %d\n", errno);
	everything("as nobody");
	printf("%d\n", threads(100));
}

static void jail(void)
{
	everything("outside");
	if (chroot("/var/empty") && chroot("/usr/share/empty") && chroot("/proc/self"))
		puts("no chroot");
	printf("%d %x\n", threads(100), (unsigned)fork_with_threads());
}

static void not_dumpable(void)
{
	prctl(PR_SET_DUMPABLE, 0);
	everything("not dumpable");
	printf("%d\n", threads(100));
	printf("%d\n", prctl(PR_GET_DUMPABLE));
}

static void no_new_privileges(void)
{
	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	everything("no new privileges");
}

#define DENY(nr) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (nr), 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS)

static void sandbox(void)
{
	everything("before");
	struct sock_filter f[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		DENY(SYS_socket), DENY(SYS_memfd_create), DENY(SYS_connect), DENY(SYS_sendmsg), DENY(SYS_recvmsg), DENY(SYS_ftruncate),
		DENY(SYS_process_vm_readv), DENY(SYS_readlink), DENY(SYS_kill),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog p = {sizeof f / sizeof *f, f};
	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &p))
		printf("no filter: %d\n", errno);
	printf("%d\n", threads(100));
	everything("in the sandbox");
	FILE *pipe = popen("echo popen", "r");
	char line[20] = "";
	printf("%s", pipe && fgets(line, sizeof line, pipe) ? line : "no popen\n");
	printf("%d\n", pipe ? pclose(pipe) : -1);
	printf("%d\n", system("exit 3"));
}

// --- environment ------------------------------------------------------------------------------------------------------------------------

static void clear_environment(void)
{
	char *empty[] = {NULL}, *argv[] = {self, "leaf", NULL};
	fflush(stdout);
	pid_t pid = fork();
	if (pid == 0) {
		clearenv();
		execl(self, self, "leaf", NULL);
		_exit(127);
	}
	printf("%x\n", (unsigned)status_of(pid));
	fflush(stdout);
	if ((pid = fork()) == 0) {
		execve(self, argv, empty);
		_exit(127);
	}
	printf("%x\n", (unsigned)status_of(pid));
	if (posix_spawn(&pid, self, NULL, NULL, argv, empty))
		pid = -1;
	printf("%x\n", (unsigned)status_of(pid));
}

static void huge(void)
{
	char **argv = calloc(3002, sizeof *argv), **env = calloc(2002, sizeof *env);
	argv[0] = self;
	argv[1] = "count";
	for (int i = 2; i < 3000; i++)
		argv[i] = memset(calloc(1, 200), 'a' + i % 20, 199);
	for (int i = 0; i < 2000; i++)
		if (asprintf(&env[i], "V%d=%0*d", i, i % 300 + 1, i) < 0)
			exit(1);
	fflush(stdout);
	pid_t pid = fork();
	if (pid == 0) {
		execve(self, argv, env);
		_exit(127);
	}
	printf("%x\n", (unsigned)status_of(pid));
}

static void print_arguments(int argc, char **argv)
{
	unsigned long h = 5381;
	int n = 0;
	for (int i = 0; i < argc; i++)
		for (char *c = argv[i]; *c; c++)
			h = h * 33 + (unsigned char)*c;
	for (char **e = environ; *e; e++, n++)
		for (char *c = *e; *c; c++)
			h = h * 33 + (unsigned char)*c;
	printf("%d %d %lx\n", argc, n, h);
}

// --- threads and forks ------------------------------------------------------------------------------------------------------------------

static void many(void)
{
	printf("%d\n", threads(500));
	printf("%d\n", threads(500));
}

static pthread_mutex_t held[4] = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER};
static volatile bool enough;

static void *hold(void *arg)
{
	pthread_mutex_t *m = &held[(long)arg];
	while (!enough) {
		pthread_mutex_lock(m);
		free(malloc(100));
		pthread_mutex_lock(&inner);
		pthread_mutex_unlock(&inner);
		pthread_mutex_unlock(m);
	}
	return NULL;
}

static void prepare(void) { pthread_mutex_lock(&inner); }
static void resume(void) { pthread_mutex_unlock(&inner); }

// Forks while other threads hold locks; the child uses those that its atfork handlers guard, the allocator and stdio.
static void forks(int n)
{
	pthread_t t[4];
	pthread_atfork(prepare, resume, resume);
	for (long i = 0; i < 4; i++)
		pthread_create(&t[i], NULL, hold, (void *)i);
	int good = 0;
	for (int i = 0; i < n; i++) {
		pid_t pid = fork();
		if (pid == 0) {
			pthread_mutex_lock(&inner);
			char *p = malloc(1000);
			snprintf(p, 1000, "%d", i);
			int r = atoi(p) == i;
			free(p);
			pthread_mutex_unlock(&inner);
			if (i % 50 == 0)
				r = threads(2);
			_exit(r ? 3 : 4);
		}
		good += status_of(pid) == 3 << 8;
	}
	enough = true;
	for (int i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
	printf("%d of %d\n", good, n);
}

static void *ends(void *arg)
{
	worker((void *)1L);
	switch ((long)arg % 3) {
	case 0: return arg;
	case 1: pthread_exit(arg);
	default:
		for (;;) {
			pthread_testcancel();
			usleep(100);
		}
	}
}

static void churn(int rounds)
{
	pthread_t t[200];
	long good = 0;
	for (int k = 0; k < rounds; k++) {
		for (long i = 0; i < 200; i++)
			if (pthread_create(&t[i], NULL, ends, (void *)i))
				puts("no thread");
		for (long i = 0; i < 200; i++) {
			void *r;
			if (i % 3 == 2)
				pthread_cancel(t[i]);
			pthread_join(t[i], &r);
			good += r == (i % 3 == 2 ? PTHREAD_CANCELED : (void *)i);
		}
	}
	printf("%ld\n", good);
}

// --- signals ----------------------------------------------------------------------------------------------------------------------------

static __thread sigjmp_buf back;
static __thread volatile int depth;
static volatile int zero_page_faults;

static void fault(int sig, siginfo_t *info, void *context)
{
	(void)sig;
	(void)context;
	if (info->si_addr != (void *)16)
		_exit(88);
	__atomic_fetch_add(&zero_page_faults, 1, __ATOMIC_RELAXED);
	siglongjmp(back, 1);
}

static void *faults(void *arg)
{
	stack_t alternate = {.ss_sp = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), .ss_size = 65536};
	sigaltstack(&alternate, NULL);
	for (int i = 0; i < 500; i++) {
		if (sigsetjmp(back, 1) == 0) {
			pthread_mutex_lock(&outer);
			pthread_mutex_lock(&inner);
			*(volatile int *)16 = 1;
		}
		pthread_mutex_unlock(&inner);
		pthread_mutex_unlock(&outer);
	}
	stack_t now;
	sigaltstack(NULL, &now);
	return (void *)(long)(now.ss_sp == alternate.ss_sp && arg);
}

static void segv(void)
{
	struct sigaction sa = {.sa_sigaction = fault, .sa_flags = SA_SIGINFO | SA_ONSTACK};
	sigaction(SIGSEGV, &sa, NULL);
	pthread_t t[4];
	long good = 0;
	for (int i = 0; i < 4; i++)
		pthread_create(&t[i], NULL, faults, (void *)1L);
	for (int i = 0; i < 4; i++) {
		void *r;
		pthread_join(t[i], &r);
		good += (long)r;
	}
	struct sigaction now;
	sigaction(SIGSEGV, NULL, &now);
	printf("%d faults, %ld good, %d\n", zero_page_faults, good, now.sa_sigaction == fault && now.sa_flags == sa.sa_flags);
}

static sem_t posted;
static volatile long ticks;

static void on_alarm(int sig)
{
	int e = errno;
	ticks++;
	if (sig == SIGALRM)
		sem_post(&posted);
	errno = e;
}

static void *take_posts(void *arg)
{
	while (!enough) {
		struct timespec until;
		clock_gettime(CLOCK_REALTIME, &until);
		until.tv_sec += 1;
		if (sem_timedwait(&posted, &until) == 0)
			worker((void *)1L);
	}
	return arg;
}

static void alarms(void)
{
	sem_init(&posted, 0, 0);
	struct sigaction sa = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
	sigaction(SIGALRM, &sa, NULL);
	sigaction(SIGPROF, &sa, NULL);
	struct itimerval fast = {{0, 100}, {0, 100}}, off = {{0, 0}, {0, 0}};
	pthread_t t[3];
	pthread_create(&t[0], NULL, take_posts, NULL);
	setitimer(ITIMER_REAL, &fast, NULL);
	setitimer(ITIMER_PROF, &fast, NULL);
	int good = 0;
	for (int i = 0; i < 40; i++) {
		for (int k = 1; k < 3; k++)
			pthread_create(&t[k], NULL, hold, (void *)(long)k);
		for (long until = ticks + 50; ticks < until;)
			usleep(5000);
		enough = true;
		for (int k = 1; k < 3; k++)
			good += pthread_join(t[k], NULL) == 0;
		if (i < 39)
			enough = false;
	}
	good += pthread_join(t[0], NULL) == 0;
	setitimer(ITIMER_REAL, &off, NULL);
	setitimer(ITIMER_PROF, &off, NULL);
	printf("%d joined, %d\n", good, ticks >= 2000);
}

// --- others -----------------------------------------------------------------------------------------------------------------------------

static void libraries(void)
{
	char path[4200];
	snprintf(path, sizeof path, "%.*s/plug_lib.so", (int)(strrchr(self, '/') - self), self);
	long total = 0;
	for (int i = 0; i < 200; i++) {
		void *h = dlopen(path, RTLD_NOW);
		if (!h) {
			puts(dlerror());
			return;
		}
		long (*work)(long);
		*(void **)&work = dlsym(h, "work");
		total += work(i);
		if (i % 20 == 0)
			total += threads(3);
		dlclose(h);
	}
	printf("%ld\n", total);
}

// Locks in memory that is closed to reading when it is unmapped, and in a file that has become shorter.
static void unmapped(void)
{
	char name[] = "/tmp/rsfault-unmapped-XXXXXX";
	int fd = mkstemp(name);
	unlink(name);
	for (int i = 0; i < 20; i++) {
		if (ftruncate(fd, 4096))
			return;
		int flags = i % 2 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;
		pthread_mutex_t *m = mmap(NULL, 4096, PROT_READ | PROT_WRITE, flags, i % 2 ? fd : -1, 0);
		pthread_mutex_init(m, NULL);
		pthread_mutex_lock(&outer);
		pthread_mutex_lock(m);
		pthread_mutex_unlock(m);
		pthread_mutex_unlock(&outer);
		if (i % 2 ? ftruncate(fd, 0) : mprotect(m, 4096, PROT_NONE))
			puts("not closed");
		munmap(m, 4096);
	}
	puts("unmapped");
}

static void daemonize(void)
{
	fflush(stdout);
	int p[2];
	char line[100];
	if (pipe(p))
		return;
	pid_t pid = fork();
	if (pid == 0) {
		setsid();
		if (fork())
			_exit(0);
		dup2(p[1], 1);
		close(p[0]);
		everything("the daemon");
		_exit(0);
	}
	close(p[1]);
	printf("%x\n", (unsigned)status_of(pid));
	ssize_t n = read(p[0], line, sizeof line);
	printf("%.*s", (int)(n > 0 ? n : 0), line);
}

static void tell_full(void)
{
	threads(3);
	int r = printf("%5000d\n", 1), f = fflush(stdout);
	fprintf(stderr, "%d %d %d\n", r, f, errno);
}

static void input(void)
{
	char c;
	ssize_t n = read(0, &c, 1);
	int e = errno;
	everything("input");
	printf("%zd %d\n", n, n < 0 ? e : 0);
}

static void plain(void) { everything("plain"); }
static void forks_few(void) { forks(300); }
static void forks_many(void) { forks(10000); }
static void churn_few(void) { churn(5); }
static void churn_many(void) { churn(50); }

static const struct { const char *name; void (*run)(void); } table[] = {
	{"close-all", close_all}, {"few-descriptors", few_descriptors}, {"look", look}, {"small-address-space", small_address_space},
	{"small-stack", small_stack}, {"no-files", no_files}, {"drop", drop}, {"jail", jail}, {"not-dumpable", not_dumpable},
	{"no-new-privileges", no_new_privileges}, {"sandbox", sandbox}, {"clear-environment", clear_environment}, {"huge", huge},
	{"many", many}, {"forks", forks_few}, {"forks-many", forks_many}, {"churn", churn_few}, {"churn-many", churn_many}, {"segv", segv},
	{"alarms", alarms}, {"libraries", libraries}, {"unmapped", unmapped}, {"daemon", daemonize}, {"full", tell_full}, {"input", input}, {"plain", plain},
};

int main(int argc, char **argv)
{
	ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
	self[n > 0 ? n : 0] = 0;
	if (argc > 1 && !strcmp(argv[1], "leaf"))
		return threads(2) ? 4 : 9;
	if (argc > 1 && !strcmp(argv[1], "count")) {
		print_arguments(argc, argv);
		return 4;
	}
	for (size_t i = 0; i < sizeof table / sizeof *table; i++)
		if (argc > 1 && !strcmp(argv[1], table[i].name)) {
			table[i].run();
			return 7;
		}
	return 99;
}
