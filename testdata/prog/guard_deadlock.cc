// Two function-local statics, each of which needs the other, initialised by two threads at once.
// ripstop: verdict deadlock frames=config,logger
// ripstop: hangs
#include <thread>
#include "order.h"

struct Config {
	Config();
	int level = 1;
};
struct Logger {
	Logger();
	int level = 2;
};

static Config &config()
{
	static Config c;
	return c;
}

static Logger &logger()
{
	static Logger l;
	return l;
}

__attribute__((noinline)) Config::Config()
{
	meet(2);
	level = logger().level;
}

__attribute__((noinline)) Logger::Logger()
{
	meet(2);
	level = config().level;
}

int main()
{
	std::thread a([] { config(); });
	std::thread b([] { logger(); });
	a.join();
	b.join();
}
