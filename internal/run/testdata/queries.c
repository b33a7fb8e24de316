// Calls that ask the kernel for something small, as programs' libraries do when they begin, again and again: none of them is one that cannot be made again. queries DIRECTORY.
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/close_range.h>
#include <linux/fs.h>
#include <locale.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

#define MUST(x) do { if (!(x)) { fprintf(stderr, "queries.c:%d: %s: %m\n", __LINE__, #x); abort(); } } while (0)
enum { ROUNDS = 30 };

static unsigned long sum;
static void add(const void *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		sum = sum * 31 + ((const unsigned char *)p)[i];
}

static void attributes(const char *file, int fd)
{
	char text[256];
	long n;
	int has = fsetxattr(fd, "user.ripstop", "a value", 7, 0) == 0;
	memset(text, 1, sizeof text);
	n = getxattr(file, "user.ripstop", text, sizeof text);
	MUST(!has || n == 7);
	add(text, sizeof text);
	n = lgetxattr(file, "user.ripstop", NULL, 0);
	MUST(!has || n == 7);
	n = fgetxattr(fd, "user.nothing", text, sizeof text);
	MUST(n < 0);
	add(text, sizeof text);
	n = listxattr(file, text, sizeof text);
	add(text, n > 0 ? (size_t)n : 0);
	n = flistxattr(fd, text, 1);
	MUST(n <= 1);
	add(text, sizeof text);
	n = llistxattr(file, NULL, 0);
	MUST(!has || n >= 13);
}

static void process(void)
{
	enum { PAGE = 4096, BITS = 1024 };
	int mode = -1;
	/* As libnuma asks: for one bit more than are written; behind these there is nothing. */
	char *pages = mmap(NULL, 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), *nodes = pages + PAGE - BITS / 8;
	MUST(pages != MAP_FAILED && mprotect(pages, PAGE, PROT_READ | PROT_WRITE) == 0);
	if (syscall(SYS_get_mempolicy, &mode, nodes, BITS + 1, NULL, 0) == 0)
		add(&mode, sizeof mode), add(nodes, BITS / 8);
	munmap(pages, 2 * PAGE);
	for (int i = 0; i < 4; i++)
		sum += (unsigned long)prctl(PR_CAPBSET_READ, i);
	prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0);
	sum += (unsigned long)prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0);
	sum += (unsigned long)prctl(PR_GET_KEEPCAPS);
	sum += (unsigned long)prctl(PR_GET_SECCOMP);
	sum += syscall(444 /* landlock_create_ruleset */, NULL, 0, 1 /* its version */) < 0;
	MUST(pkey_free(9) < 0);
}

/* As libcap: first which version the kernel has. */
static void capabilities(void)
{
	struct __user_cap_header_struct h = {0};
	struct __user_cap_data_struct d[2];
	MUST(syscall(SYS_capget, &h, NULL) == 0 && h.version == _LINUX_CAPABILITY_VERSION_3);
	MUST(syscall(SYS_capget, &h, d) == 0);
	add(d, sizeof d);
	h.version = 1;
	MUST(syscall(SYS_capget, &h, d) < 0 && h.version == _LINUX_CAPABILITY_VERSION_3);
}

/* As ssh, and others before they execute something: descriptors from here on. What was read by them is read again. */
static void ranges(const char *file)
{
	char text[64] = "";
	int p[2], first = open(file, O_RDONLY), both = open(file, O_RDWR), last = fcntl(first, F_DUPFD_CLOEXEC, 700);
	MUST(first >= 0 && both == first + 1 && last >= 700 && pipe(p) == 0);
	MUST(read(first, text, 16) == 16 && pread(both, text + 16, 16, 30) == 16 && pread(last, text + 32, 16, 50) == 16);
	MUST(close_range(p[0], ~0u, CLOSE_RANGE_CLOEXEC) == 0 && fcntl(p[1], F_GETFD) == FD_CLOEXEC);
	MUST(close_range(3000000001u, 3000000000u, 0) < 0 && close_range(first, ~0u, 0) == 0 && fcntl(p[1], F_GETFD) < 0);
	MUST(open("/dev/null", O_RDONLY) == first && read(first, text, 16) == 0 && close(first) == 0);
	add(text, sizeof text);
}

static void devices(int fd)
{
	char name[64] = "";
	long flags = 0x0101010101010101;
	struct ifreq r;
	if (ioctl(fd, FS_IOC_GETFLAGS, &flags) == 0)
		add(&flags, sizeof flags);
	int s = socket(AF_INET, SOCK_DGRAM, 0);
	memset(&r, 0, sizeof r);
	strcpy(r.ifr_name, "lo");
	if (s >= 0 && ioctl(s, SIOCGIFINDEX, &r) == 0 && ioctl(s, SIOCGIFFLAGS, &r) == 0)
		add(&r, sizeof r);
	close(s);
	int t = posix_openpt(O_RDWR | O_NOCTTY);
	if (t >= 0 && unlockpt(t) == 0 && ptsname_r(t, name, sizeof name) == 0)
		sum += name[0] == '/';
	close(t);
}

/* What setlocale does, once, with a table of conversions. */
static void shared(int fd)
{
	const char *p = mmap(NULL, 100, PROT_READ, MAP_SHARED, fd, 0);
	MUST(p != MAP_FAILED);
	add(p, 100);
	MUST(mprotect((void *)p, 100, PROT_READ | PROT_WRITE) < 0 && munmap((void *)p, 100) == 0);
}

int main(int argc, char **argv)
{
	struct timespec ms = {0, 2000000};
	char file[256], other[256], text[200];
	MUST(argc == 2 && setlocale(LC_ALL, "C.UTF-8"));
	snprintf(file, sizeof file, "%s/a", argv[1]), snprintf(other, sizeof other, "%s/b", argv[1]);
	memset(text, 'x', sizeof text);
	int to = open(file, O_CREAT | O_RDWR, 0600), copy = open(other, O_CREAT | O_RDWR, 0600);
	MUST(to >= 0 && copy >= 0 && write(to, text, sizeof text) == sizeof text);
	int fd = open(file, O_RDONLY);
	for (int i = 0; i < ROUNDS; i++) {
		attributes(file, to);
		process();
		capabilities();
		ranges(file);
		devices(fd);
		shared(fd);
		if (ioctl(copy, FICLONE, fd) < 0) // few file systems do
			sum++;
		nanosleep(&ms, NULL);
	}
	printf("%#lx\n", sum);
	return 5;
}
