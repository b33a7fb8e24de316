// A bounded queue of many producers and many consumers without a lock (a sequence number for each place), with a futex for who finds it empty or full. `counts ROUNDS`: what comes out depends on the order. `spoils`: one of the blocks is no block; whoever gets it crashes, and only the order in which they put and got says who put it there. `calms ROUNDS`: likewise counts, and computes much in between.
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>
#include <vector>

enum { PLACES = 16, THREADS = 4, SPOILT = 2000, TRIES = 100 };
struct block { long sum; long was[4]; };

struct queue {
	struct place { std::atomic<unsigned long> seq; block *item; } places[PLACES];
	alignas(64) std::atomic<unsigned long> put{0};
	alignas(64) std::atomic<unsigned long> got{0};
	alignas(64) std::atomic<int> events{0};
	std::atomic<int> sleepers{0};

	queue()
	{
		for (unsigned long i = 0; i < PLACES; i++)
			places[i].seq.store(i, std::memory_order_relaxed);
	}
	bool try_put(block *item)
	{
		unsigned long at = put.load(std::memory_order_relaxed);
		for (;;) {
			place &p = places[at % PLACES];
			long d = (long)(p.seq.load(std::memory_order_acquire) - at);
			if (d == 0 && put.compare_exchange_weak(at, at + 1, std::memory_order_relaxed)) {
				p.item = item; // written here
				p.seq.store(at + 1, std::memory_order_release);
				return true;
			}
			if (d < 0)
				return false;
			if (d > 0)
				at = put.load(std::memory_order_relaxed);
		}
	}
	bool try_get(block *&item)
	{
		unsigned long at = got.load(std::memory_order_relaxed);
		for (;;) {
			place &p = places[at % PLACES];
			long d = (long)(p.seq.load(std::memory_order_acquire) - (at + 1));
			if (d == 0 && got.compare_exchange_weak(at, at + 1, std::memory_order_relaxed)) {
				item = p.item;
				p.seq.store(at + PLACES, std::memory_order_release);
				return true;
			}
			if (d < 0)
				return false;
			if (d > 0)
				at = got.load(std::memory_order_relaxed);
		}
	}
	void wake()
	{
		events.fetch_add(1);
		if (sleepers.load() > 0)
			syscall(SYS_futex, &events, FUTEX_WAKE_PRIVATE, THREADS, nullptr, nullptr, 0);
	}
	template <class F> void until(F done)
	{
		for (int i = 0; i < TRIES; i++)
			if (done())
				return wake();
		for (;;) {
			int seen = events.load();
			sleepers.fetch_add(1);
			if (done()) {
				sleepers.fetch_sub(1);
				return wake();
			}
			syscall(SYS_futex, &events, FUTEX_WAIT_PRIVATE, seen, nullptr, nullptr, 0);
			sleepers.fetch_sub(1);
		}
	}
};

static queue q;
static block blocks[THREADS];
static unsigned long order[THREADS];
static bool spoils;
static long calm;

static __attribute__((noinline)) void uses(int me, block *b)
{
	order[me] = order[me] * 31 + (unsigned long)(b - blocks);
	b->was[order[me] & 3] += me;
}

static __attribute__((noinline)) unsigned long computes(unsigned long n)
{
	for (long i = 0; i < calm; i++)
		n = n * 6364136223846793005ul + 1442695040888963407ul;
	return n;
}

static __attribute__((noinline)) void takes(int me)
{
	block *b;
	q.until([&] { return q.try_get(b); });
	uses(me, b);
}

static void work(int me, long rounds)
{
	unsigned long n = (unsigned long)me;
	for (long i = 0; i < rounds; i++) {
		block *b = spoils && me == 3 && i == SPOILT ? reinterpret_cast<block *>(i) : &blocks[me];
		if (me % 2)
			q.until([&] { return q.try_put(b); });
		else
			takes(me);
		n = computes(n);
	}
	order[me] += n;
}

int main(int, char **argv)
{
	spoils = !strcmp(argv[1], "spoils");
	calm = !strcmp(argv[1], "calms") ? 20000 : 0;
	long rounds = spoils ? SPOILT + 1000 : atol(argv[2]);
	std::vector<std::thread> threads;
	for (int me = 0; me < THREADS; me++)
		threads.emplace_back(work, me, rounds);
	for (auto &t : threads)
		t.join();
	printf("%lu\n", q.got.load());
	return 5;
}
