// Threads that hand things on by C++20's semaphores, which are words, locked instructions in line and futexes; `order` depends on the order. Its argument: how many rounds.
#include <cstdio>
#include <cstdlib>
#include <semaphore>
#include <thread>
#include <vector>

enum { THREADS = 4, ROOM = 8 };
static std::counting_semaphore<ROOM> items{0}, room{ROOM};
static std::binary_semaphore puts_one{1}, gets_one{1};
static long queue[ROOM];
static unsigned put, got;
static unsigned long order;

static void work(int me, long rounds)
{
	for (long i = 0; i < rounds; i++)
		if (me % 2) {
			room.acquire();
			puts_one.acquire();
			queue[put++ % ROOM] = i * THREADS + me;
			puts_one.release();
			items.release();
		} else {
			items.acquire();
			gets_one.acquire();
			order = order * 31 + (unsigned long)queue[got++ % ROOM];
			gets_one.release();
			room.release();
		}
}

int main(int, char **argv)
{
	long rounds = atol(argv[1]);
	std::vector<std::thread> threads;
	for (int me = 0; me < THREADS; me++)
		threads.emplace_back(work, me, rounds);
	for (auto &t : threads)
		t.join();
	printf("%u handed on\n", got);
	return 5;
}
