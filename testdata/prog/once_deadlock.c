// Two initialisers, each of which needs what the other initialises, run by two threads.
// ripstop: verdict deadlock objects=config_once,log_once frames=init_config,init_log
// ripstop: hangs
#include <pthread.h>
#include "order.h"

static pthread_once_t config_once = PTHREAD_ONCE_INIT, log_once = PTHREAD_ONCE_INIT;

static void init_log(void);

static void init_config(void)
{
	meet(2);
	pthread_once(&log_once, init_log);
	__asm__ volatile(""); /* no tail call: the frame is to be seen */
}

static void init_log(void)
{
	meet(2);
	pthread_once(&config_once, init_config);
	__asm__ volatile("");
}

static void *one(void *arg)
{
	pthread_once(&config_once, init_config);
	return arg;
}

static void *two(void *arg)
{
	pthread_once(&log_once, init_log);
	return arg;
}

int main(void)
{
	pthread_t t1, t2;
	pthread_create(&t1, NULL, one, NULL);
	pthread_create(&t2, NULL, two, NULL);
	pthread_join(t1, NULL);
	pthread_join(t2, NULL);
	return 0;
}
