// std::notify_all_at_thread_exit: the mutex is still locked when the thread's function has returned, and a destructor gives it up. (Neither it nor
// the condition is ever destroyed: the thread notifies after the unlock that lets main go on.)
// ripstop: verdict none
#include <condition_variable>
#include <cstdio>
#include <future>
#include <mutex>
#include <thread>

static std::mutex &lock = *new std::mutex;
static std::condition_variable &ended = *new std::condition_variable;
static int finished;

int main()
{
	std::promise<int> promise;
	auto answer = promise.get_future();
	for (int i = 0; i < 3; i++)
		std::thread([] {
			std::unique_lock<std::mutex> hold(lock);
			finished++;
			std::notify_all_at_thread_exit(ended, std::move(hold));
		}).detach();
	std::thread t([&] { promise.set_value_at_thread_exit(3); });
	std::unique_lock<std::mutex> hold(lock);
	ended.wait(hold, [] { return finished == 3; });
	hold.unlock();
	std::printf("%d\n", answer.get());
	t.join();
}
