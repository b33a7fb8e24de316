// condition_variable_any with a shared_mutex and with a stop_token, and jthread, used rightly.
// ripstop: verdict none
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <shared_mutex>
#include <stop_token>
#include <thread>

static std::shared_mutex lock;
static std::condition_variable_any changed;
static int items;

int main()
{
	int taken = 0;
	{
		std::jthread consumer([&](std::stop_token stop) {
			std::unique_lock<std::shared_mutex> hold(lock);
			while (changed.wait(hold, stop, [] { return items > 0; })) {
				items--;
				taken++;
				if (taken == 100)
					changed.notify_all();
			}
		});
		for (int i = 0; i < 100; i++) {
			std::unique_lock<std::shared_mutex> hold(lock);
			items++;
			changed.notify_one();
		}
		std::shared_lock<std::shared_mutex> hold(lock);
		changed.wait(hold, [&] { return taken == 100; });
	}
	std::printf("%d\n", taken);
}
