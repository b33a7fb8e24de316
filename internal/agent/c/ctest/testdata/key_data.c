/* Keys: destructors, their order and rounds, deletion, the limit, C11. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <threads.h>

static pthread_key_t a, b, c;
static tss_t d;
static int rounds;
static void da(void *v) { printf("a %ld\n", (long)v); }
static void db(void *v)
{
	printf("b %ld\n", (long)v);
	if (rounds++ < 10)
		pthread_setspecific(b, (char *)v + 1);
}
static void dd(void *v) { printf("d %ld\n", (long)v); }

static void *thread(void *p)
{
	pthread_setspecific(a, (void *)1);
	pthread_setspecific(b, (void *)2);
	pthread_setspecific(c, malloc(3));
	tss_set(d, (void *)4);
	if (p)
		pthread_exit(p);
	return p;
}

int main(void)
{
	setvbuf(stdout, NULL, _IONBF, 0);
	pthread_t t;
	printf("create %d %d %d %d\n", pthread_key_create(&a, da), pthread_key_create(&b, db), pthread_key_create(&c, free), tss_create(&d, dd));
	for (long i = 0; i < 2; i++) {
		rounds = 0;
		pthread_create(&t, NULL, thread, (void *)i);
		pthread_join(t, NULL);
	}
	printf("delete %d again %d\n", pthread_key_delete(b), pthread_key_delete(b));
	tss_delete(d);
	pthread_create(&t, NULL, thread, NULL);
	pthread_join(t, NULL);
	static pthread_key_t k[2000];
	int n = 0, r = 0;
	while (n < 2000 && (r = pthread_key_create(&k[n], n & 1 ? da : free)) == 0)
		n++;
	printf("limit %d error %d tss %d\n", n > 900, r, tss_create(&d, NULL));
	for (int i = 0; i < n; i++)
		r |= pthread_key_delete(k[i]);
	for (int i = 0; i < 3000; i++)
		if (pthread_key_create(&k[0], i & 1 ? da : dd) || pthread_key_delete(k[0]))
			printf("lost %d\n", i);
	printf("set deleted %d get %p\n", pthread_setspecific(k[0], &n), pthread_getspecific(k[0]));
	return 0;
}
