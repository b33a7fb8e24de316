// Two readers want to become writers at once without letting go. What the agent says of each, that it asks for what it holds, was taken for a hold for writing; of two such holds
// neither counts, so `run` let the program hang without a word.
// ripstop: verdict self-deadlock objects=table frames=upgrade
// ripstop: verdict self-deadlock objects=table frames=upgrade
// ripstop: hangs
// ripstop: epochs deadlock objects=table frames=upgrade
#include <pthread.h>

static pthread_rwlock_t table = PTHREAD_RWLOCK_INITIALIZER;
static pthread_barrier_t both;

static __attribute__((noipa)) void *upgrade(void *arg)
{
	pthread_rwlock_rdlock(&table);
	pthread_barrier_wait(&both);
	pthread_rwlock_wrlock(&table);
	pthread_rwlock_unlock(&table);
	return arg;
}

int main(void)
{
	pthread_t thread;
	pthread_barrier_init(&both, NULL, 2);
	pthread_create(&thread, NULL, upgrade, NULL);
	upgrade(NULL);
	return 0;
}
