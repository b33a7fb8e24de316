/* pool.h: a thread pool as everybody writes it. */
#ifndef POOL_H
#define POOL_H
#include <condition_variable>
#include <deque>
#include <functional>
#include <future>
#include <mutex>
#include <thread>
#include <vector>

class Pool {
public:
	explicit Pool(int n)
	{
		for (int i = 0; i < n; i++)
			workers.emplace_back([this] { work(); });
	}
	~Pool()
	{
		{
			std::lock_guard<std::mutex> hold(lock);
			closing = true;
		}
		more.notify_all();
		for (auto &w : workers)
			w.join();
	}
	template <typename F> std::future<int> submit(F f)
	{
		auto task = std::make_shared<std::packaged_task<int()>>(f);
		{
			std::lock_guard<std::mutex> hold(lock);
			tasks.push_back([task] { (*task)(); });
		}
		more.notify_one();
		return task->get_future();
	}

private:
	void work()
	{
		for (;;) {
			std::function<void()> task;
			{
				std::unique_lock<std::mutex> hold(lock);
				more.wait(hold, [this] { return closing || !tasks.empty(); });
				if (tasks.empty())
					return;
				task = std::move(tasks.front());
				tasks.pop_front();
			}
			task();
		}
	}
	std::mutex lock;
	std::condition_variable more;
	std::deque<std::function<void()>> tasks;
	std::vector<std::thread> workers;
	bool closing = false;
};
#endif
