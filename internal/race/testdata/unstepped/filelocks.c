// Locks of files for readers and writers: flock's, and those of an open file by fcntl.
#include "../run.h"
#include <fcntl.h>
#include <sys/file.h>

#define MUST(x) do { if (!(x)) abort(); } while (0)
static char path[] = "/tmp/raceXXXXXX";
static int opened(void)
{
	int fd = open(path, O_RDWR);
	MUST(fd >= 0);
	return fd;
}
static void lock(int fd, int how) { MUST(flock(fd, how) == 0); }
static void range(int fd, int type, int at, int n)
{
	struct flock l = {.l_type = (short)type, .l_whence = SEEK_SET, .l_start = at, .l_len = n};
	MUST(fcntl(fd, F_OFD_SETLKW, &l) == 0);
}

// Two that write as readers, one after the other, by descriptors that they have had before.
#ifdef __SANITIZE_THREAD__ // which does not see what assembler accesses
#define ADD(x) (x)++
#else
#define ADD(x) __asm__ volatile("addl $1, %0" : "+m"(x)) // no mov at any level of optimization
#endif
int in_turn, in_turn_ofd;
static void *writes_first(void *p)
{
	int fd = opened();
	for (int i = 0; i < 3; i++) {
		lock(fd, LOCK_SH);
		ADD(in_turn); // race in_turn
		lock(fd, LOCK_UN);
	}
	range(fd, F_RDLCK, 0, 0);
	ADD(in_turn_ofd); // race in_turn_ofd
	range(fd, F_UNLCK, 0, 0);
	close(fd);
	unseen_done();
	return p;
}
static void *writes_second(void *p)
{
	int fd = opened();
	unseen_wait();
	lock(fd, LOCK_SH);
	ADD(in_turn); // race in_turn
	lock(fd, LOCK_UN);
	range(fd, F_RDLCK, 0, 0);
	ADD(in_turn_ofd); // race in_turn_ofd
	range(fd, F_UNLCK, 0, 0);
	close(fd);
	return p;
}

// Readers and writers; a lock that becomes another, is copied, is not to be had at once, is given up by closing.
int guarded, guarded_ofd, upgraded, downgraded, copied, closed, parts[2];
static void *uses(void *p)
{
	int fd = opened(), copy;
	for (int i = 0; i < 20; i++) {
		lock(fd, LOCK_SH);
		use(guarded + upgraded + downgraded + copied + closed);
		lock(fd, LOCK_UN);

		lock(fd, LOCK_EX);
		guarded++;
		lock(fd, LOCK_UN);

		lock(fd, LOCK_SH);
		use(upgraded);
		if (flock(fd, LOCK_EX | LOCK_NB) == 0) // fails where others read, and loses the lock
			upgraded++;
		lock(fd, LOCK_UN);

		lock(fd, LOCK_EX);
		downgraded++;
		lock(fd, LOCK_SH);
		use(downgraded);
		lock(fd, LOCK_UN);

		MUST((copy = dup(fd)) >= 0);
		lock(copy, LOCK_EX);
		copied++;
		lock(fd, LOCK_SH); // it is the same lock
		use(copied);
		lock(copy, LOCK_UN);
		close(copy);

		int other = opened();
		lock(other, LOCK_EX);
		closed++;
		close(other);

		range(fd, F_RDLCK, 0, 0);
		use(guarded_ofd);
		range(fd, F_UNLCK, 0, 0);
		range(fd, F_WRLCK, 0, 0);
		guarded_ofd++;
		range(fd, F_RDLCK, 0, 0);
		use(guarded_ofd);
		range(fd, F_UNLCK, 0, 0);
		range(fd, F_WRLCK, 0, 1);
		range(fd, F_RDLCK, 1, 1);
		parts[0]++;
		use(parts[1]);
		range(fd, F_UNLCK, 1, 1);
		parts[0]++;
		range(fd, F_UNLCK, 0, 1);
	}
	close(fd);
	return p;
}

int main(void)
{
	int fd = mkstemp(path);
	MUST(fd >= 0);
	unseen(writes_first, writes_second);
	both(uses, uses);
	unlink(path);
	return 0;
}
