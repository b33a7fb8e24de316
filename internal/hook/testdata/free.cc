// What free_test.go looks at: queues without a lock beside a futex (queue_…), of which loads, too, are in order, and what changes memory at once near a futex, but is no queue (none_…).
#include <atomic>
#include <linux/futex.h>
#include <memory>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>

struct place { std::atomic<unsigned long> seq; long item; };
static place places[16];
static std::atomic<unsigned long> put, got;
static std::atomic<int> events;
static std::atomic<long> head;
static std::atomic<unsigned> counter;
static std::atomic<bool> closed;

extern "C" {
__attribute__((noinline)) void sleeps(int seen) { syscall(SYS_futex, &events, FUTEX_WAIT_PRIVATE, seen, nullptr, nullptr, 0); }

__attribute__((noinline)) void queue_put(long item)
{
	unsigned long at = put.load();
	for (;;) {
		place &p = places[at % 16];
		unsigned long seq = p.seq.load(std::memory_order_acquire);
		if (seq == at && put.compare_exchange_weak(at, at + 1)) {
			p.item = item;
			p.seq.store(at + 1, std::memory_order_release);
			events.fetch_add(1);
			syscall(SYS_futex, &events, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
			return;
		}
		if (seq < at)
			sleeps(events.load());
		at = put.load();
	}
}

__attribute__((noinline)) long queue_get()
{
	unsigned long at = got.load();
	for (;;) {
		place &p = places[at % 16];
		unsigned long seq = p.seq.load(std::memory_order_acquire);
		if (seq == at + 1 && got.compare_exchange_weak(at, at + 1)) {
			long item = p.item;
			p.seq.store(at + 16, std::memory_order_release);
			return item;
		}
		if (seq < at + 1)
			sleeps(events.load());
		at = got.load();
	}
}

/* It only looks, and the other one only stores. */
__attribute__((noinline)) void queue_waits()
{
	while (!closed.load())
		sleeps(events.load());
}
__attribute__((noinline)) void queue_closes()
{
	closed.exchange(true);
	syscall(SYS_futex, &events, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
}

__attribute__((noinline)) long none_far(long n) /* from any futex */
{
	long was = head.load();
	while (!head.compare_exchange_weak(was, was * 3 + n)) { }
	return was;
}
__attribute__((noinline)) std::shared_ptr<int> none_shared(const std::shared_ptr<int> &p)
{
	std::shared_ptr<int> q = p;
	if (*p == 7)
		sleeps(7);
	return q;
}
__attribute__((noinline)) long none_sums(const long *list, int n)
{
	long sum = 0;
	for (int i = 0; i < n; i++) {
		sum += list[i];
		counter.fetch_add(1);
	}
	if (sum == 7)
		sleeps(7);
	return sum;
}
}

static __attribute__((noinline)) long meets()
{
	auto p = std::make_shared<int>(1);
	std::thread t([] { queue_put(1); queue_closes(); });
	queue_waits();
	t.join();
	const long list[] = {1, 2, queue_get()};
	return *none_shared(p) + none_sums(list, 3);
}
static __attribute__((noinline)) long calls() { return meets() + 1; }

int main()
{
	return (int)(none_far(2) + calls());
}
