// The popular data races of ThreadSanitizer's manual that are about the life of an object, and each of all of them done rightly.
#include "../run.h"
#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <shared_mutex>
#include <thread>

// On destruction: an object on the stack goes while a thread still uses it.
struct job {
	volatile int state = 1;
	~job() { state = 0; } // race-any on_the_stack
};
static void uses_job(job *j)
{
	j->state = 2; // race-any on_the_stack
	unseen_done();
}
static void destroys_on_stack()
{
	std::thread t;
	unseen_begin();
	{
		job j;
		t = std::thread(uses_job, &j);
		unseen_wait();
	}
	t.join();
}
static void joins_before_destroying()
{
	job j;
	std::thread([&j] { j.state = 3; }).join();
}

// On the table of virtual functions while an object is constructed: its base starts a thread that calls, and the derived constructor sets the table.
struct starter {
	std::thread thread;
	starter() : thread([this] { calls(); }) {}
	virtual int value() { return 1; }
	void calls();
	virtual ~starter() = default;
};
__attribute__((noinline)) void starter::calls()
{
	use(value()); // race-mov vptr_while_constructed
	unseen_done();
}
struct started : starter {
	static int before()
	{
		unseen_begin();
		return 0;
	}
	__attribute__((noinline)) started() { unseen_wait(); } // race-mov vptr_while_constructed
	int value() override { return 2; }
};
struct starts_late {
	std::thread thread;
	virtual int value() { return 1; }
	void start() { thread = std::thread([this] { use(value()); }); }
	virtual ~starts_late() = default;
};
struct started_late : starts_late {
	int value() override { return 2; }
};

// Initialised without order, and rightly: by a lock, once, by the language.
struct singleton { int v[4] = {1, 2, 3, 4}; };
static singleton *volatile unordered;
static void *initialises(void *p)
{
	if (!unordered) // race-mov initialising
		unordered = new singleton; // race-mov initialising
	return p;
}
static std::mutex mutex;
static singleton *locked, *called_once;
static std::once_flag once;
static std::atomic<singleton *> checked_twice;
static void *initialises_rightly(void *p)
{
	{
		std::lock_guard<std::mutex> l(mutex);
		if (!locked)
			locked = new singleton;
		use(locked->v[0]);
	}
	std::call_once(once, [] { called_once = new singleton; });
	use(called_once->v[1]);
	singleton *s = checked_twice.load();
	if (!s) {
		std::lock_guard<std::mutex> l(mutex);
		if (!(s = checked_twice.load()))
			checked_twice = s = new singleton; // xchg
	}
	use(s->v[2]);
	static singleton local;
	use(local.v[3]);
	return p;
}

// On free: deleted by one, used by the other; and by the last user.
struct large { long v[500]; };
static large *deleted;
static void *uses_deleted(void *p)
{
	deleted->v[3] = 1; // race deleted
	unseen_done();
	return p;
}
static void *deletes(void *p)
{
	unseen_wait();
	delete deleted; // race deleted
	return p;
}
static std::shared_ptr<large> *owned;
static void *shares(void *p)
{
	std::shared_ptr<large> mine = *owned;
	mine->v[p != nullptr] = 1;
	return p;
}
static void *shares_too(void *) { return shares(&owned); }

// A complex object that is not for two threads, and under a lock.
static std::map<int, int> *map_unlocked, *map_locked;
static void *inserts(void *p)
{
	for (int i = 0; i < 5; i++) {
		std::lock_guard<std::mutex> l(mutex);
		(*map_locked)[i]++;
	}
	return p;
}
static void *asks_size(void *p)
{
	use(map_unlocked->size()); // race-mov map
	return p;
}
static void *clears(void *p)
{
	map_unlocked->clear(); // race-mov map
	return p;
}

// Rightly: counts, flags, publication, bits, readers.
static std::atomic<int> references{2};
static large *counted;
static void *drops(void *p)
{
	use(counted->v[1]);
	if (references.fetch_sub(1) == 1)
		delete counted;
	return p;
}
static std::condition_variable ready;
static bool is_ready;
static int by_condition, by_flag;
static std::atomic<bool> flag;
static std::atomic<large *> published;
static void *notifies(void *p)
{
	by_condition = 1;
	{
		std::lock_guard<std::mutex> l(mutex);
		is_ready = true;
	}
	ready.notify_one();
	by_flag = 1;
	flag = true;
	large *n = new large();
	n->v[1] = 1;
	published = n;
	return p;
}
static void *is_notified(void *p)
{
	{
		std::unique_lock<std::mutex> l(mutex);
		ready.wait(l, [] { return is_ready; });
	}
	by_condition = 2;
	while (!flag)
		sched_yield();
	by_flag = 2;
	large *n;
	while (!(n = published))
		sched_yield();
	n->v[1] = 2;
	delete n;
	return p;
}
struct bits { unsigned a : 4, : 0, b : 4; } apart;
static void *sets_a(void *p) { apart.a++; return p; }
static void *sets_b(void *p) { apart.b++; return p; }
static std::shared_mutex shared;
static int under_writer;
static void *reads_and_writes(void *p)
{
	{
		std::shared_lock<std::shared_mutex> l(shared);
		use(under_writer);
	}
	std::unique_lock<std::shared_mutex> l(shared);
	under_writer++;
	return p;
}

int main()
{
	destroys_on_stack();
	joins_before_destroying();
	started::before();
	{
		started s;
		s.thread.join();
	}
	{
		started_late s;
		s.start();
		s.thread.join();
	}
	both(initialises, initialises);
	both(initialises_rightly, initialises_rightly);
	deleted = new large();
	unseen(uses_deleted, deletes);
	owned = new std::shared_ptr<large>(new large());
	both(shares, shares_too);
	delete owned;
	map_unlocked = new std::map<int, int>{{1, 2}};
	map_locked = new std::map<int, int>;
	both(inserts, inserts);
	both(asks_size, clears);
	counted = new large();
	both(drops, drops);
	both(notifies, is_notified);
	both(sets_a, sets_b);
	both(reads_and_writes, reads_and_writes);
	return 0;
}
