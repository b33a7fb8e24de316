// free of something on the stack.
// ripstop: verdict invalid-free frames=main
// ripstop: signal ABRT
// ripstop: epochs invalid-free frames=main
// ripstop: epochs crash
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <threads.h>
#include <time.h>
#include <unistd.h>
#include "order.h"

int main(void)
{
	long room[8] = {0};
	void *volatile p = &room[2];
	free(p);
	puts("done");
	return 0;
}
