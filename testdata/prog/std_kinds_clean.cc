// Every lockable type of C++ under contention: taken together in any order, recursively, shared, in time, by try, adopted, deferred, with guards moved within
// a thread; an initialiser that throws, a semaphore as a lock, a barrier whose completion takes a lock, answers of tasks and promises.
// ripstop: verdict none
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdio>
#include <future>
#include <latch>
#include <mutex>
#include <semaphore>
#include <shared_mutex>
#include <stdexcept>
#include <thread>
#include <vector>

using namespace std::chrono_literals;

static std::mutex plain;
static std::recursive_mutex recursive;
static std::timed_mutex timed;
static std::recursive_timed_mutex recursive_timed;
static std::shared_mutex shared;
static std::shared_timed_mutex shared_timed;
static std::counting_semaphore<1> semaphore{1};
static std::once_flag once;
static std::atomic<int> attempts;
static long steps;

template <typename... L> static void together(L &...locks)
{
	std::scoped_lock hold(locks...);
	steps++;
}

static std::unique_lock<std::mutex> grab()
{
	std::unique_lock<std::mutex> hold(plain);
	steps++;
	return hold;
}

static void initialise()
{
	if (attempts++ < 2)
		throw std::runtime_error("not yet");
}

static void work(int me)
{
	for (int i = 0; i < 100; i++) {
		if ((me + i) % 2)
			together(plain, recursive, timed, recursive_timed, shared, shared_timed);
		else
			together(shared_timed, shared, recursive_timed, timed, recursive, plain);
		{
			std::lock(timed, plain);
			std::lock_guard<std::mutex> a(plain, std::adopt_lock);
			std::lock_guard<std::timed_mutex> b(timed, std::adopt_lock);
		}
		{
			auto hold = grab();
			auto moved = std::move(hold);
		}
		{
			std::lock_guard<std::recursive_mutex> outer(recursive);
			std::lock_guard<std::recursive_mutex> inner(recursive);
		}
		{
			std::shared_lock<std::shared_mutex> a(shared);
			std::shared_lock<std::shared_timed_mutex> b(shared_timed, 1ms);
		}
		{
			std::unique_lock<std::shared_timed_mutex> hold(shared_timed, std::defer_lock);
			(void)hold.try_lock_for(1ms);
			std::unique_lock<std::timed_mutex> tried(timed, std::try_to_lock);
		}
		semaphore.acquire();
		semaphore.release();
		try {
			std::call_once(once, initialise);
		} catch (const std::runtime_error &) {
		}
	}
}

int main()
{
	std::latch start(4);
	{
		std::vector<std::jthread> threads;
		for (int i = 0; i < 4; i++)
			threads.emplace_back([&start, i] {
				start.arrive_and_wait();
				work(i);
			});
	}
	std::barrier phase(3, []() noexcept {
		std::lock_guard<std::mutex> hold(plain);
		steps++;
	});
	{
		std::vector<std::jthread> threads;
		for (int i = 0; i < 3; i++)
			threads.emplace_back([&phase] {
				for (int k = 0; k < 20; k++)
					phase.arrive_and_wait();
			});
	}
	auto one = std::async(std::launch::async, [] { together(plain, timed); return 1; });
	auto two = std::async(std::launch::deferred, [] { together(timed, plain); return 2; });
	std::packaged_task<int()> task([] { together(plain); return 3; });
	auto three = task.get_future();
	std::thread(std::move(task)).join();
	std::printf("%d %d\n", one.get() + two.get() + three.get(), attempts.load());
}
