// Stores to atomics of what was loaded of them and changed, without a locked instruction, as their only writer may: LLVM makes one instruction of it (add [x], 1; or [x], y), which was told as a certain race, since no atomic
// was thought to be read and written at once without lock. What is beside them is a counter.
#include "../run.h"
#include <atomic>
#include <thread>

// Lamport's queue. Each thread raises its own index.
static struct {
	std::atomic<unsigned> in;
	int slot[4];
	std::atomic<unsigned> out;
} queue;
static void *produces(void *p)
{
	for (int i = 0; i < 50; i++) {
		while (queue.in.load(std::memory_order_relaxed) - queue.out.load(std::memory_order_acquire) == 4)
			sched_yield();
		queue.slot[i % 4] = i;
		queue.in.store(queue.in.load(std::memory_order_relaxed) + 1, std::memory_order_release);
	}
	return p;
}
static void *consumes(void *p)
{
	for (int i = 0; i < 50; i++) {
		while (queue.in.load(std::memory_order_acquire) == queue.out.load(std::memory_order_relaxed))
			sched_yield();
		if (queue.slot[i % 4] != i)
			abort();
		queue.out.store(queue.out.load(std::memory_order_relaxed) + 1, std::memory_order_release);
	}
	return p;
}

// Of each size, by other operations, each with its own reader.
static std::atomic<unsigned char> bits;
static std::atomic<unsigned short> mask{0xffff};
static std::atomic<unsigned long> sum, toggled;
static int behind[4];
static void *changes(void *p)
{
	behind[0] = 1;
	bits.store(bits.load(std::memory_order_relaxed) | 4, std::memory_order_release);
	behind[1] = 1;
	mask.store(mask.load(std::memory_order_relaxed) & 0xf0f0, std::memory_order_release);
	behind[2] = 1;
	sum.store(sum.load(std::memory_order_relaxed) - 7, std::memory_order_release);
	behind[3] = 1;
	toggled.store(~toggled.load(std::memory_order_relaxed), std::memory_order_release);
	return p;
}
static void *looks(void *p)
{
	while (!bits.load(std::memory_order_acquire))
		sched_yield();
	use(behind[0]);
	while (mask.load(std::memory_order_acquire) == 0xffff)
		sched_yield();
	use(behind[1]);
	while (!sum.load(std::memory_order_acquire))
		sched_yield();
	use(behind[2]);
	while (!toggled.load(std::memory_order_acquire))
		sched_yield();
	use(behind[3]);
	return p;
}

// A function's own.
__attribute__((noinline)) static void own()
{
	std::atomic<int> state{0};
	int value = 0;
	std::thread t([&] {
		while (state.load(std::memory_order_acquire) != 1)
			sched_yield();
		value++;
	});
	value = 1;
	state.store(state.load(std::memory_order_relaxed) + 1, std::memory_order_release);
	t.join();
}

static long counted;
static void *counts(void *p)
{
	counted++; // race counted
	return p;
}

int main()
{
	both(produces, consumes);
	both(changes, looks);
	own();
	both(counts, counts);
	puts("done");
	return 0;
}
