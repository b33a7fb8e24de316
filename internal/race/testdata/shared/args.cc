// What C++'s threads begin with, and who made them goes on writing: the maker's last access against the new thread's first, a while later, of what a pointer, a reference, a shared or unique pointer leads to, by what std::function keeps on
// the heap, by std::async's state; and of an argument that lies in the block that std::thread makes for it.
// Who reads waits a while first, so that the write is mostly earlier; if it is not, the race is found as well.
#include <cstdio>
#include <functional>
#include <future>
#include <memory>
#include <semaphore.h>
#include <thread>
#include <unistd.h>

namespace {

enum { KINDS = 7, APART = 20000 };

struct Job { char apart[APART]; long late[KINDS]; char also[APART]; }; // no page of what is used is shared with another's, or near one that is

// An argument by value, of which only std::thread's copy is used.
struct Value {
	static Value *copy;
	volatile long late[KINDS] = {};
	Value() = default;
	Value(const Value &) { copy = this; }
};
Value *Value::copy;

long sum;
sem_t written;

#define KIND(n) \
	template <class T> __attribute__((noinline)) void late##n(T *p, bool write) { volatile long *at = &p->late[n]; if (write) *at = 1; else __atomic_fetch_add(&sum, *at == 1, __ATOMIC_RELAXED); }

KIND(0) // race-mov pointer
KIND(1) // race-mov reference
KIND(2) // race-mov shared
KIND(3) // race-mov unique
KIND(4) // race-mov function
KIND(5) // race-mov async
KIND(6) // race-mov value

void a_while() { usleep(20000); }

} // namespace

int main()
{
	std::unique_ptr<Job> jobs[KINDS]; // none has the memory of one before
	for (auto &p : jobs)
		p = std::make_unique<Job>();
	sem_init(&written, 0, 0);
	// One after the other: what else becomes shared is a pardon of all that main did.
	{
		std::thread t([](Job *j) { a_while(); late0(j, false); }, jobs[0].get());
		late0(jobs[0].get(), true);
		t.join();
	}
	{
		std::thread t([](Job &j) { a_while(); late1(&j, false); }, std::ref(*jobs[1]));
		late1(jobs[1].get(), true);
		t.join();
	}
	{
		std::shared_ptr<Job> p = std::move(jobs[2]);
		std::thread t([p] { a_while(); late2(p.get(), false); });
		late2(p.get(), true);
		t.join();
	}
	{
		Job *j = jobs[3].get();
		std::thread t([](std::unique_ptr<Job> own) { a_while(); late3(own.release(), false); }, std::move(jobs[3]));
		late3(j, true);
		t.join();
		jobs[3].reset(j);
	}
	{
		long a = 1, b = 2;
		std::function<void()> f = [j = jobs[4].get(), a, b] { a_while(); late4(a < b ? j : nullptr, false); };
		std::thread t(std::move(f));
		late4(jobs[4].get(), true);
		t.join();
	}
	{
		auto done = std::async(std::launch::async, [](Job *j) { a_while(); late5(j, false); }, jobs[5].get());
		late5(jobs[5].get(), true);
		done.get();
	}
	{
		std::thread t([](Value &&v) { a_while(); late6(&v, false); sem_wait(&written); }, Value()); // then it frees that
		late6(Value::copy, true);
		sem_post(&written);
		t.join();
	}
	std::printf("%d\n", sum >= 0);
	return 0;
}
