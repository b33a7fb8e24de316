// Threads that change words for which others wait, and a handler that does the same, wherever it comes.
#include <atomic>
#include <csignal>
#include <cstdio>
#include <semaphore>
#include <sys/time.h>
#include <thread>
#include <vector>

enum { THREADS = 4, ROUNDS = 400000 };
static std::counting_semaphore<8> lock{1}, other{5};
static std::atomic<int> word;
static long sum;

static void handles(int)
{
	if (other.try_acquire())
		other.release();
	word.fetch_xor(3);
	word.notify_all();
}

static void work()
{
	for (long i = 0; i < ROUNDS; i++) {
		lock.acquire();
		sum++;
		lock.release();
		int was = word.fetch_add(4);
		if (was == -1)
			word.wait(was);
	}
}

int main()
{
	struct itimerval often = {{0, 300}, {0, 300}}, never = {{0, 0}, {0, 0}};
	signal(SIGALRM, handles);
	work();
	setitimer(ITIMER_REAL, &often, nullptr);
	work();
	std::vector<std::thread> threads;
	for (int i = 0; i < THREADS; i++)
		threads.emplace_back(work);
	for (auto &t : threads)
		t.join();
	setitimer(ITIMER_REAL, &never, nullptr);
	printf("%ld %d\n", sum, word.load() >> 2);
	return 3;
}
