#include <pthread.h>
#include <stdio.h>
#include <unistd.h>
struct Thing {
	int v;
	explicit Thing(int n) { if (n < 2) throw n; usleep(20000); v = n; }
};
static int get(int n)
{
	static Thing t(n);
	return t.v;
}
static void *in_thread(void *) { return (void *)(long)get(5); }
extern "C" int library_main()
{
	int caught = 0;
	for (int i = 0; i < 2; i++)
		try {
			get(i);
		} catch (int) {
			caught++;
		}
	pthread_t t[4];
	long sum = 0;
	for (auto &x : t)
		pthread_create(&x, nullptr, in_thread, nullptr);
	for (auto &x : t) {
		void *r;
		pthread_join(x, &r);
		sum += (long)r;
	}
	printf("caught %d sum %ld\n", caught, sum);
	fflush(stdout);
	return 0;
}
