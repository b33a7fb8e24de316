// As sites.c, of blocks that operator new makes: an object that is aligned as any, and one that asks for more.
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <thread>
#include <unistd.h>

enum { ROUNDS = 6, KINDS = 2, APART = 20000 };

struct item { virtual ~item() {} volatile long late[KINDS]; char apart[APART]; };
struct plain : item {};
struct alignas(256) aligned : item {};

static std::mutex lock;
static std::condition_variable moved;
static item *given; // under the lock, as the next
static int state;   // of it: given, taken, read
static long sum, taken;

#define KIND(n) \
	static __attribute__((noinline)) void late##n(item *p, bool write) { volatile long *at = &p->late[n]; if (write) *at = 1; else sum += *at == 1; }

KIND(0) // race-mov new
KIND(1) // race-mov aligned

static void (*const late[KINDS])(item *, bool) = {late0, late1};

static void takes()
{
	for (int i = 0; i < ROUNDS * KINDS; i++) {
		std::unique_lock<std::mutex> l(lock);
		moved.wait(l, [] { return state == 1; });
		item *p = given;
		state = 2;
		moved.notify_one();
		l.unlock();
		usleep(3000);
		late[i % KINDS](p, false);
		l.lock();
		state = 3;
		taken++;
		moved.notify_one();
	}
}

__attribute__((noinline)) static item *make(int kind) { return kind == 0 ? (item *)new plain : new aligned; }

int main()
{
	item *all[ROUNDS * KINDS];
	std::thread t(takes);
	for (int i = 0; i < ROUNDS * KINDS; i++) {
		item *p = make(i % KINDS);
		std::unique_lock<std::mutex> l(lock);
		given = p;
		state = 1;
		moved.notify_one();
		moved.wait(l, [] { return state != 1; });
		l.unlock();
		late[i % KINDS](p, true);
		l.lock();
		moved.wait(l, [] { return state == 3; });
		all[i] = p;
	}
	t.join();
	for (item *p : all)
		delete p;
	printf("%ld taken\n", taken);
}
