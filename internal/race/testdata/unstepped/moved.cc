// Atomics of C++ whose every access is a mov: no instruction tells that they are any, the debug information does. What is beside them is an int.
#include "../run.h"
#include <atomic>
#include <memory>

// A message is handed over by store and load.
struct message { int number; long text[4]; };
static std::atomic<message *> box;
static std::atomic<bool> taken;
static void *sends(void *p)
{
	for (int i = 0; i < 20; i++) {
		box.store(new message{i, {i, i, i, i}}, std::memory_order_release);
		while (!taken.load(std::memory_order_acquire))
			sched_yield();
		taken = false;
	}
	return p;
}
static void *takes(void *p)
{
	for (int i = 0; i < 20; i++) {
		message *m;
		while (!(m = box.load(std::memory_order_acquire)))
			sched_yield();
		if (m->number != i || m->text[3] != i)
			abort();
		box.store(nullptr, std::memory_order_relaxed);
		delete m;
		taken.store(true, std::memory_order_release);
	}
	return p;
}

// Each has a word of its own, and reads the other's: a lock without a locked instruction (Lamport's queue of one producer and one consumer).
static struct { std::atomic<unsigned> in, out; int slot[4]; } queue;
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

// What is written behind the flag is not ordered by it.
static std::atomic<int> flag;
static int before, behind;
static void *raises(void *p)
{
	before = 1;
	flag.store(1, std::memory_order_release);
	behind = 1; // race-mov late
	return p;
}
static void *waits(void *p)
{
	while (!flag.load(std::memory_order_acquire))
		sched_yield();
	use(before);
	use(behind); // race-mov late
	return p;
}

// A plain access to an atomic, by another name.
static std::atomic<long> counted[4];
static volatile size_t all = sizeof counted;
static void *counts(void *p)
{
	counted[1].store(1, std::memory_order_relaxed); // race wiped
	return p;
}
static void *wipes(void *p)
{
	memset((void *)counted, 0, all); // race wiped
	return p;
}

int main()
{
	both(sends, takes);
	both(produces, consumes);
	both(raises, waits);
	both(counts, wipes);
	puts("done");
	return 0;
}
