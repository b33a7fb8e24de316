// thread_local locks that others use while their thread lives: the next thread's are others, at the same addresses, and taken in the other order.
// ripstop: verdict none
#include <atomic>
#include <cstdio>
#include <mutex>
#include <thread>

static std::mutex table;
static thread_local std::mutex own;
static std::atomic<std::mutex *> shown;
static std::atomic<int> step;

static void reach(int n) { step = n; }

static void await(int n)
{
	while (step < n)
		std::this_thread::yield();
}

static void both(std::mutex &first, std::mutex &second)
{
	std::lock_guard<std::mutex> a(first);
	std::lock_guard<std::mutex> b(second);
}

int main()
{
	std::thread one([] {
		await(1);
		both(table, *shown);
		reach(2);
	});
	std::thread two([] {
		await(3);
		both(*shown, table);
		reach(4);
	});
	for (int i = 1; i < 4; i += 2)
		std::thread([i] {
			shown = &own;
			reach(i);
			await(i + 1);
		}).join();
	one.join();
	two.join();
	std::puts("done");
}
