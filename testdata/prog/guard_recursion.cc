// A static variable whose initialiser comes to itself: libstdc++ throws while the process has one thread, and waits for ever when it has more.
// ripstop: verdict self-deadlock frames=config
// ripstop: hangs
#include <thread>
#include "order.h"

struct Config {
	Config();
	int level;
};

static Config &config()
{
	static Config c;
	return c;
}

__attribute__((noinline)) Config::Config() : level(config().level + 1) {}

int main()
{
	std::thread t([] { config(); });
	t.join();
}
