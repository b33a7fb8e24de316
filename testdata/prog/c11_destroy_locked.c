// mtx_destroy of a locked mtx_t.
// ripstop: verdict destroy-locked frames=main
#include <stdio.h>
#include <threads.h>

static mtx_t lock;

int main(void)
{
	mtx_init(&lock, mtx_plain);
	mtx_lock(&lock);
	mtx_destroy(&lock);
	puts("done");
	return 0;
}
