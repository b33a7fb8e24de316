// The popular data races of ThreadSanitizer's manual, each with the right way beside it where there is one, and C++'s own means of order.
#include "run.h"
#include <atomic>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <thread>
#include <unistd.h>

int simple, counter, by_future;
static std::mutex mutex;
static std::shared_mutex shared;

static void *sets(void *p) { simple = 42; /* race-mov simple */ return p; }
static void *sets_too(void *p) { simple = 43; /* race-mov simple */ return p; }

static void *adds(void *p) { counter++; /* race reference_counter */ return p; }

struct node { int key; node *next; };
static node *head;

static void *inserts(void *p)
{
	node *n = new node{1, head}; // race-mov list
	head = n; // race-mov list
	return p;
}

static std::map<int, int> *map_guarded;

static void *maps(void *p)
{
	std::lock_guard<std::mutex> l(mutex);
	(*map_guarded)[p ? 1 : 2]++;
	return p;
}

int done_flag, notified[3];

static void *notifies(void *p)
{
	notified[0] = 1; // race-mov notified
	*(volatile int *)&done_flag = 1; // race-mov notification
	return p;
}

static void *is_notified(void *p)
{
	while (!*(volatile int *)&done_flag) // race-mov notification
		sched_yield();
	notified[0] = 2; // race-mov notified
	return p;
}

static int *published;

static void *publishes(void *p)
{
	int *n = new int[4]();
	n[0] = 7; // race-mov contents
	__atomic_store_n(&published, n, __ATOMIC_RELAXED); // race-mov publishing
	return p;
}

static void *looks(void *p)
{
	int *n;
	while (!(n = __atomic_load_n(&published, __ATOMIC_RELAXED))) // race-mov publishing
		sched_yield();
	use(n[0]); // race-mov contents
	return p;
}

struct bits { unsigned a : 4, b : 4; } fields;
static void *sets_a(void *p) { fields.a++; /* race bit_field */ return p; }
static void *sets_b(void *p) { fields.b++; /* race bit_field */ return p; }

int under_reader;
static void *writes_as_reader(void *p)
{
	std::shared_lock<std::shared_mutex> l(shared);
	under_reader++; // race writing_reader
	return p;
}

static int *lazy;
static void *checks_twice(void *p)
{
	if (!*(int *volatile *)&lazy) { // race-mov double_checked
		std::lock_guard<std::mutex> l(mutex);
		if (!lazy)
			*(int *volatile *)&lazy = new int(1); // race-mov double_checked
	}
	return p;
}

static int once_only() { return getpid(); }
static void *static_local(void *p)
{
	static int value = once_only();
	use(value);
	return p;
}

static std::once_flag flag;
static int called;
static void *calls_once(void *p)
{
	std::call_once(flag, [] { called = 1; });
	use(called);
	return p;
}

struct counted { int v = 1; ~counted() { v++; } };
static std::shared_ptr<counted> *pointer;

static void *drops(void *p)
{
	std::shared_ptr<counted> mine = *pointer; // of the copy that no one changes
	use(mine->v);
	return p;
}

int main()
{
	both(sets, sets_too);
	both(adds, adds);
	both(inserts, inserts);
	map_guarded = new std::map<int, int>;
	both(maps, maps);
	both(notifies, is_notified);
	both(publishes, looks);
	both(sets_a, sets_b);
	both(writes_as_reader, writes_as_reader);
	both(checks_twice, checks_twice);
	both(static_local, static_local);
	both(calls_once, calls_once);
	pointer = new std::shared_ptr<counted>(new counted);
	both(drops, drops);
	delete pointer;
	std::thread([] { by_future++; }).join();
	by_future++;
	std::promise<int> promise; // libstdc++ makes it ready, compiled code looks
	std::thread setter([&promise] { by_future++, promise.set_value_at_thread_exit(1); });
	by_future += promise.get_future().get();
	setter.join();
	return 0;
}
