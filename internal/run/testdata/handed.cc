// Threads that hand blocks on by C++20's semaphores. One of the blocks is no block: whoever gets it crashes, and only the order in which they put and got says who put it there.
#include <cstdio>
#include <cstdlib>
#include <semaphore>
#include <thread>
#include <vector>

enum { THREADS = 4, ROOM = 8, ROUNDS = 3000, SPOILT = 2000 };
struct block { long sum; long was[4]; };
static std::counting_semaphore<ROOM> items{0}, room{ROOM};
static std::binary_semaphore puts_one{1}, gets_one{1};
static block blocks[THREADS], *queue[ROOM];
static unsigned put, got;
static long sum;

static __attribute__((noinline)) void puts(block *b) { queue[put++ % ROOM] = b; }

static __attribute__((noinline)) void spoils(long i)
{
	queue[put++ % ROOM] = reinterpret_cast<block *>(i); // written here
}

static __attribute__((noinline)) void uses(block *b)
{
	b->was[sum & 3] = sum;
	sum = sum * 31 + ++b->sum;
}

static void work(int me)
{
	for (long i = 0; i < ROUNDS; i++)
		if (me % 2) {
			room.acquire();
			puts_one.acquire();
			if (me == 3 && i == SPOILT)
				spoils(i);
			else
				puts(&blocks[me]);
			puts_one.release();
			items.release();
		} else {
			items.acquire();
			gets_one.acquire();
			uses(queue[got++ % ROOM]);
			gets_one.release();
			room.release();
		}
}

int main()
{
	std::vector<std::thread> threads;
	for (int me = 0; me < THREADS; me++)
		threads.emplace_back(work, me);
	for (auto &t : threads)
		t.join();
	printf("%ld\n", sum);
}
