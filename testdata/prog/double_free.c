// A block freed twice: glibc aborts, and the report says where it was freed first.
// ripstop: verdict double-free frames=main
// ripstop: signal ABRT
// ripstop: build -Wno-use-after-free
// ripstop: epochs double-free frames=main
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
	char *volatile p = malloc(40);
	free(p);
	free(p);
	puts("done");
	return 0;
}
