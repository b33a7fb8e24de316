// A plain mtx_t locked twice by its owner.
// ripstop: verdict self-deadlock objects=lock frames=inner,outer
// ripstop: hangs
#include <threads.h>

static mtx_t lock;

static __attribute__((noipa)) void inner(void)
{
	mtx_lock(&lock);
	mtx_unlock(&lock);
}

static __attribute__((noipa)) void outer(void)
{
	mtx_lock(&lock);
	inner();
	mtx_unlock(&lock);
}

int main(void)
{
	mtx_init(&lock, mtx_plain);
	outer();
	return 0;
}
