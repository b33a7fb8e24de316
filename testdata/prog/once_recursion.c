// A pthread_once initialiser that comes to its own pthread_once.
// ripstop: verdict self-deadlock objects=once frames=initialise,main
// ripstop: hangs
#include <pthread.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;

static void initialise(void)
{
	pthread_once(&once, initialise);
	__asm__ volatile(""); /* no tail call: the frame is to be seen */
}

int main(void)
{
	pthread_once(&once, initialise);
	return 0;
}
