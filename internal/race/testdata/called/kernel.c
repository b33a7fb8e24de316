// The kernel reads and writes memory for the thread that makes a system call.
#include "../run.h"
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>

static int zero, null, file;

char buffer[64];
static void *reads(void *p) { use(read(zero, buffer, 20)); /* race read_into */ return p; }
static void *looks(void *p) { use(buffer[19]); /* race read_into */ return p; }
static void *looks_behind(void *p) { use(buffer[20]); return p; }

char out[64];
static void *writes(void *p) { use(write(null, out, 20)); /* race write_from */ return p; }
static void *changes(void *p) { out[3] = 1; /* race write_from */ return p; }
static void *looks_too(void *p) { use(out[4]); return p; }

// Only as much as came is written.
char short_read[64];
static void *reads_little(void *p) { use(pread(file, short_read, sizeof short_read, 0)); /* race pread */ return p; }
static void *looks_at_it(void *p) { use(short_read[4]); /* race pread */ return p; }
static void *writes_rest(void *p) { short_read[5] = 1; return p; }

char part1[8], part2[8];
static void *scatters(void *p)
{
	struct iovec v[2] = {{part1, 8}, {part2, 8}};
	use(readv(zero, v, 2)); // race readv
	return p;
}
static void *looks_at_part(void *p) { use(part2[7]); /* race readv */ return p; }

static int ends[2];
char received[64];
static void *receives(void *p)
{
	struct iovec v = {received, sizeof received};
	struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1};
	use(recvmsg(ends[0], &m, 0)); // race recvmsg
	return p;
}
static void *looks_at_message(void *p) { use(received[0]); /* race recvmsg */ return p; }

struct stat status;
static void *stats(void *p) { use(fstat(null, &status)); /* race fstat */ return p; }
static void *sizes(void *p) { use(status.st_size); /* race fstat */ return p; }

char direct[8];
static void *calls(void *p) { use(syscall(SYS_read, zero, direct, sizeof direct)); /* race syscall */ return p; }
static void *looks_at_called(void *p) { use(direct[1]); /* race syscall */ return p; }

// What a pipe hands over: the buffer is the reader's when it has the byte, and the writer's when it has the answer.
static int there[2], back[2];
char handed[64];
static void *gives(void *p)
{
	for (int i = 0; i < 5; i++) {
		handed[i] = 1;
		use(write(there[1], handed, 10));
		use(read(back[0], handed, 10));
	}
	return p;
}
static void *takes(void *p)
{
	char mine[10];
	for (int i = 0; i < 5; i++) {
		use(read(there[0], mine, 10));
		memcpy(handed, mine, 10);
		use(write(back[1], handed, 10));
	}
	return p;
}

// poll writes revents and nothing else.
static struct pollfd polled[1];
static void *polls(void *p) { use(poll(polled, 1, 0)); return p; }
static void *reads_fd(void *p) { use(polled[0].fd); return p; }

// EFAULT is the caller's answer.
static void *fails(void *p)
{
	struct msghdr m = {.msg_iov = (struct iovec *)8, .msg_iovlen = 3};
	use(write(null, (void *)8, 5));
	use(read(zero, (void *)8, 5));
	use(writev(null, (struct iovec *)8, 3));
	use(sendmsg(ends[0], &m, 0));
	use(open((char *)8, O_RDONLY));
	use(mkdir((char *)8, 0));
	return p;
}

int main(void)
{
	char path[] = "/tmp/raceXXXXXX";
	file = mkstemp(path);
	zero = open("/dev/zero", O_RDONLY);
	null = open("/dev/null", O_WRONLY);
	if (unlink(path) || write(file, "12345", 5) != 5 || pipe(there) || pipe(back) || socketpair(AF_UNIX, SOCK_DGRAM, 0, ends) || send(ends[1], "hello", 5, 0) != 5)
		return 1;
	both(reads, looks);
	both(reads, looks_behind);
	both(writes, changes);
	both(writes, looks_too);
	both(reads_little, looks_at_it);
	both(reads_little, writes_rest);
	both(scatters, looks_at_part);
	both(receives, looks_at_message);
	both(stats, sizes);
	both(calls, looks_at_called);
	both(gives, takes);
	polled[0].fd = there[0];
	polled[0].events = POLLIN;
	both(polls, reads_fd);
	both(fails, fails);
	puts("done");
	return 0;
}
