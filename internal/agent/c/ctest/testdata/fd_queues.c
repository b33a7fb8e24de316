/* Message queues and semaphores of POSIX and System V, vmsplice, attached memory: one thread gives, another takes. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <mqueue.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/uio.h>
#include <unistd.h>

mqd_t __mq_open_2(const char *, int);
struct message { long type; char text[16]; };
static mqd_t mq;
static int queue, set, pipes[2];

static void say(const char *what, long r) { printf("%s %ld errno %d\n", what, r, r < 0 ? errno : 0); }

static void *giver(void *p)
{
	struct message m = {3, "from the queue"};
	struct sembuf up = {0, 1, 0};
	struct iovec v = {"from the pages", 15};
	printf("send %d %d\n", mq_send(mq, "one", 4, 1), mq_timedsend(mq, "two", 4, 2, &(struct timespec){2000000000, 0}));
	printf("msgsnd %d\n", msgsnd(queue, &m, sizeof m.text, 0));
	printf("semop %d\n", semop(set, &up, 1));
	printf("vmsplice %zd\n", vmsplice(pipes[1], &v, 1, 0));
	return p;
}

static void segment(int id, void **at)
{
	*at = shmat(id, *at, 0);
	pthread_mutex_t *m = *at;
	static pthread_mutex_t outside = PTHREAD_MUTEX_INITIALIZER;
	pthread_mutex_init(m, NULL);
	pthread_mutex_lock(&outside); /* so that the other is spoken of */
	printf("mutex %d", pthread_mutex_lock(m));
	printf(" %d", pthread_mutex_unlock(m));
	pthread_mutex_unlock(&outside);
	say(" detach", shmdt(*at));
	say("again", shmdt(*at));
}

int main(void)
{
	setvbuf(stdout, NULL, _IONBF, 0);
	char name[40], text[8192] = "";
	sprintf(name, "/ripstop-%d", (int)getpid());
	struct mq_attr attr = {.mq_maxmsg = 4, .mq_msgsize = 64};
	mq = mq_open(name, O_CREAT | O_RDWR | O_EXCL, 0600, &attr);
	mqd_t second = __mq_open_2(name, O_RDONLY);
	printf("open %d %d\n", mq >= 0, second >= 0);
	say("none", mq_open("/ripstop-none", O_RDONLY));
	mq_unlink(name);
	queue = msgget(IPC_PRIVATE, 0600);
	set = semget(IPC_PRIVATE, 2, 0600);
	say("semctl", semctl(set, 1, SETVAL, 3));
	say("value", semctl(set, 1, GETVAL));
	say("bad", semctl(set, 7, GETVAL));
	if (pipe(pipes) < 0)
		return 1;

	/* An empty queue, then what the giver gives; each taken in its order. */
	say("timed out", mq_timedreceive(mq, text, sizeof text, NULL, &(struct timespec){1, 0}));
	say("no message", msgrcv(queue, text, 16, 0, IPC_NOWAIT));
	struct sembuf down = {0, -1, 0}, nowait = {0, -1, IPC_NOWAIT}, bad = {9, 1, 0};
	say("would wait", semop(set, &nowait, 1));
	say("timed out", semtimedop(set, &down, 1, &(struct timespec){0, 1000}));
	say("bad", semop(set, &bad, 1));
	say("fault", semop(set, (struct sembuf *)8, 1));
	pthread_t t;
	pthread_create(&t, NULL, giver, NULL);
	pthread_join(t, NULL);
	unsigned priority = 0;
	int r = mq_receive(mq, text, sizeof text, &priority);
	printf("receive %d %s priority %u\n", r, text, priority);
	r = mq_timedreceive(second, text, sizeof text, &priority, &(struct timespec){2000000000, 0});
	printf("receive %d %s priority %u\n", r, text, priority);
	struct message m;
	r = msgrcv(queue, &m, sizeof m.text, 3, 0);
	printf("msgrcv %d %s\n", r, m.text);
	printf("semtimedop %d\n", semtimedop(set, &down, 1, &(struct timespec){1000, 0}));
	struct iovec v = {text, 15};
	r = vmsplice(pipes[0], &v, 1, 0);
	printf("vmsplice %d %s\n", r, text);
	say("close", mq_close(second));
	say("again", mq_close(second));

	void *at = NULL;
	int a = shmget(IPC_PRIVATE, 8192, 0600), b = shmget(IPC_PRIVATE, 100, 0600);
	segment(a, &at);
	segment(b, &at);
	say("bad shmat", (long)shmat(-1, NULL, 0));
	msgctl(queue, IPC_RMID, NULL);
	semctl(set, 0, IPC_RMID);
	shmctl(a, IPC_RMID, NULL);
	shmctl(b, IPC_RMID, NULL);
	return 0;
}
