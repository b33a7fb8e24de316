// Atomics among a function's own variables, which it finds by its stack pointer as compilers find a fence's place: what they hand over was told as races, each time. Here the function that made
// them releases and takes by them, too.
#include "../run.h"
#include <atomic>
#include <thread>
#define APART __attribute__((noinline))

// xchg in the one, a load in the other, both ways.
APART static int hands_over()
{
	std::atomic<int> state{0};
	int value = 0;
	std::thread t([&] {
		while (state.load() != 1)
			sched_yield();
		value++;
		state.store(2);
	});
	value = 5;
	state.store(1);
	while (state.load() != 2)
		sched_yield();
	int got = value;
	t.join();
	return got;
}

// lock xadd.
APART static int counts()
{
	std::atomic<int> arrived{0};
	int value[2] = {};
	std::thread t([&] {
		value[0] = 1;
		if (arrived.fetch_add(1) == 1)
			value[1]++;
	});
	value[1] = 1;
	if (arrived.fetch_add(1) == 1)
		value[0]++;
	t.join();
	return value[0] + value[1];
}

// lock cmpxchg: a lock made by hand.
APART static int guards()
{
	std::atomic<int> lock{0};
	int value = 0;
	auto raises = [&] {
		for (int i = 0; i < 20; i++) {
			for (int free = 0; !lock.compare_exchange_strong(free, 1); free = 0)
				sched_yield();
			value++;
			lock.exchange(0);
		}
	};
	std::thread t(raises);
	for (int i = 0; i < 20; i++) {
		for (int free = 0; !lock.compare_exchange_strong(free, 1); free = 0)
			sched_yield();
		value++;
		lock.exchange(0);
	}
	t.join();
	return value;
}

// Stores that are movs by the function that made the atomic, which it finds by rsp or rbp: only debug information tells them from others, and it was not asked there.
APART static int moves()
{
	std::atomic<int> state{0};
	std::atomic<bool> ready{false};
	int value = 0, more = 0;
	std::thread t([&] {
		while (state.load(std::memory_order_acquire) != 1)
			sched_yield();
		value++;
		while (!ready.load(std::memory_order_acquire))
			sched_yield();
		more++;
	});
	value = 5;
	state.store(1, std::memory_order_release);
	more = 7;
	ready.store(true, std::memory_order_release);
	t.join();
	return value + more;
}

// What it does behind such a store is not ordered by it.
static volatile int behind;
APART static int moves_late()
{
	std::atomic<int> state{0};
	std::thread t([&] {
		while (state.load(std::memory_order_acquire) != 1)
			sched_yield();
		unseen_wait();
		use(behind); // race-mov late
	});
	state.store(1, std::memory_order_release);
	behind = 5; // race-mov late
	unseen_done();
	t.join();
	return behind;
}

// Another atomic orders nothing.
APART static int beside()
{
	std::atomic<int> one{0}, other{0};
	int value = 0;
	std::thread t([&] {
		unseen_wait();
		other.fetch_add(1);
		value++; // race beside
	});
	value++; // race beside
	one.fetch_add(1);
	unseen_done();
	t.join();
	return value + one + other;
}

int main()
{
	int sum = hands_over() + counts() + guards() + moves();
	unseen_begin();
	sum += beside();
	unseen_begin();
	sum += moves_late();
	printf("%d\n", sum);
}
