// Data races during exit: destructors of globals run while threads go on that nobody joined.
#include "run.h"
#include <thread>
#include <vector>

struct global {
	volatile int state = 1;
	~global() { state = 0; } // race-any destructor_at_exit
};
static global read_at_exit;

static void reads_on()
{
	use(read_at_exit.state); // race-any destructor_at_exit
	unseen_done();
	pause();
}

// Rightly: what the thread did is over before the program ends, which the join or an atomic flag says.
static global joined_first;
static std::vector<int> filled;
static void reads_and_ends()
{
	use(joined_first.state);
	filled.push_back(1);
}

static volatile int at_exit_value;
static void at_exit() { at_exit_value++; } // race-any handler
static void changes_until_the_end()
{
	at_exit_value = 2; // race-any handler
	unseen_done();
	pause();
}

int main()
{
	std::thread(reads_and_ends).join();
	atexit(at_exit);
	unseen_begin();
	std::thread(reads_on).detach();
	unseen_wait();
	unseen_begin();
	std::thread(changes_until_the_end).detach();
	unseen_wait();
	return static_cast<int>(filled.size()) - 1;
}
