/* A thread that counts, one that sleeps in a lock, one that waits in read; commands come by stdin: 'c' prints the count and the
 * number of SIGUSR1 seen, 'm' writes to the marker and prints the number of SIGTRAP seen, 'q' ends with status 42. First line: pid, address of the marker. */
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

static volatile uint64_t count, usr1, traps, quit;
static volatile uint64_t marker[4] = {0x1122334455667788, 2, 3, 4};
static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;

static void on_usr1(int s) { (void)s; usr1++; }
static void on_trap(int s) { (void)s; traps++; }
static void *spin(void *a) { (void)a; while (!quit) count++; return 0; }
static void *block(void *a) { (void)a; pthread_mutex_lock(&m); pthread_mutex_unlock(&m); return 0; }

int main(void)
{
	pthread_t a, b;
	struct sigaction sa = {.sa_handler = on_usr1, .sa_flags = SA_RESTART};
	sigaction(SIGUSR1, &sa, 0);
	sa.sa_handler = on_trap;
	sigaction(SIGTRAP, &sa, 0);
	pthread_mutex_lock(&m);
	pthread_create(&a, 0, spin, 0);
	pthread_create(&b, 0, block, 0);
	printf("%d %p\n", getpid(), (void *)marker);
	fflush(stdout);
	for (char c; read(0, &c, 1) == 1 && c != 'q';)
		if (c == 'c') {
			printf("%lu %lu\n", count, usr1);
			fflush(stdout);
		} else if (c == 'm') {
			marker[3]++;
			printf("%lu\n", traps);
			fflush(stdout);
		}
	quit = 1;
	pthread_mutex_unlock(&m);
	pthread_join(a, 0);
	pthread_join(b, 0);
	return 42;
}
