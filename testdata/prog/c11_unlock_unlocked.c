// mtx_unlock without mtx_lock.
// ripstop: verdict unlock-not-locked objects=lock frames=main
#include <stdio.h>
#include <threads.h>

static mtx_t lock;

int main(void)
{
	mtx_init(&lock, mtx_plain);
	mtx_unlock(&lock);
	puts("done");
	return 0;
}
