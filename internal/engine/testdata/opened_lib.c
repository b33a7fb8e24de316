// A library whose constructor begins a thread that runs all of its code, with all signals blocked, while it is patched; see opens.c.
#include <pthread.h>
#include <signal.h>

static volatile long words[64];
static volatile int stop, passes;
static pthread_t thread;

#define F(n) static long f##n(long x) { words[n % 64] += x; x = words[(n * 7 + 1) % 64] + n; words[(n + 3) % 64] ^= x; return words[n % 64] & 1; }
#define F8(n) F(n##0) F(n##1) F(n##2) F(n##3) F(n##4) F(n##5) F(n##6) F(n##7)
#define F64(n) F8(n##0) F8(n##1) F8(n##2) F8(n##3) F8(n##4) F8(n##5) F8(n##6) F8(n##7)
#define F512(n) F64(n##0) F64(n##1) F64(n##2) F64(n##3) F64(n##4) F64(n##5) F64(n##6) F64(n##7)
F512(1) F512(2)
#define C(n) s += f##n(s);
#define C8(n) C(n##0) C(n##1) C(n##2) C(n##3) C(n##4) C(n##5) C(n##6) C(n##7)
#define C64(n) C8(n##0) C8(n##1) C8(n##2) C8(n##3) C8(n##4) C8(n##5) C8(n##6) C8(n##7)
#define C512(n) C64(n##0) C64(n##1) C64(n##2) C64(n##3) C64(n##4) C64(n##5) C64(n##6) C64(n##7)

static void *run(void *arg)
{
	sigset_t all;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, 0);
	long s = 1;
	do {
		C512(1) C512(2)
		passes++;
	} while (!stop);
	words[0] += s;
	return arg;
}

__attribute__((constructor)) static void begin(void) { pthread_create(&thread, 0, run, 0); }

// How many bytes of its code are int3's.
int end(int *traps)
{
	void *r;
	for (int begun = passes; passes < begun + 3;)
		;
	stop = 1;
	*traps = 0;
	for (const unsigned char *p = (const unsigned char *)f1000; p < (const unsigned char *)run; p++)
		*traps += *p == 0xcc;
	return pthread_join(thread, &r);
}
