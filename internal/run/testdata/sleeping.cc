// Waits at futexes that no lock, condition or other object of the C library's has to do with. sleeping KIND; those of the first table hang for good, those of the second end well after longer than it takes ripstop to
// believe in a hang, and print "over" and return 3.
#include <atomic>
#include <barrier>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <functional>
#include <future>
#include <latch>
#include <map>
#include <mutex>
#include <condition_variable>
#include <sched.h>
#include <semaphore>
#include <signal.h>
#include <string>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <linux/futex.h>

static const struct timespec LONG = {6, 0}, AWAKE = {2, 0};

static long futex(std::atomic<int> *word, int op, int value, const struct timespec *timeout = nullptr) { return syscall(SYS_futex, word, op, value, timeout, nullptr, ~0u); }

static std::latch gate(2);
static std::atomic<int> word;

// A lock as many programs have one of their own: 0 free, 1 taken.
static struct own_lock {
	std::atomic<int> taken;
	void lock()
	{
		while (taken.exchange(1))
			futex(&taken, FUTEX_WAIT_PRIVATE, 1);
	}
} own;

static void waits(std::function<void()> f)
{
	std::thread t(f);
	t.join();
}

static std::map<std::string, std::function<void()>> hangs = {
	{"latch", [] { waits([] { gate.wait(); }); }},
	{"heap", [] { auto *l = new std::latch(2); waits([l] { l->wait(); }); }},
	{"semaphore", [] { std::counting_semaphore<4> s(0); waits([&] { s.acquire(); }); }},
	{"barrier", [] { std::barrier b(3); waits([&] { b.arrive_and_wait(); }); }},
	{"promise", [] { std::promise<int> p; p.get_future().get(); }},
	{"atomic", [] { waits([] { word.wait(0); }); }},
	{"lock", [] { own.lock(); own.lock(); }},
	{"first", [] { // the first thread has been seen awake before it ends: a zombie from then on
		std::thread([] { gate.wait(); }).detach();
		nanosleep(&AWAKE, nullptr);
		pthread_exit(nullptr);
	}},
	{"mixed", [] { // each waits for another kind of thing
		std::mutex m;
		std::condition_variable c;
		std::thread t([&] { std::unique_lock l(m); c.wait(l, [] { return word.load() == 1; }); });
		waits([] { gate.wait(); });
	}},
};

static void wake(int) { word = 1; futex(&word, FUTEX_WAKE_PRIVATE, 1); }
static int wake_other(void *) { nanosleep(&LONG, nullptr); wake(0); return 0; }
static void await_word() { while (word == 0) futex(&word, FUTEX_WAIT_PRIVATE, 0); }
static void on(int sig) { struct sigaction a = {}; a.sa_handler = wake; sigaction(sig, &a, nullptr); }

static std::map<std::string, std::function<void()>> ends = {
	{"timeout", [] { futex(&word, FUTEX_WAIT_PRIVATE, 0, &LONG); }},
	{"sleeps", [] { std::thread t(wake_other, nullptr); await_word(); t.join(); }},
	{"handler", [] { on(SIGALRM); struct itimerval v = {{0, 0}, {LONG.tv_sec, 0}}; setitimer(ITIMER_REAL, &v, nullptr); await_word(); }},
	{"timer", [] { // by a thread of libc's
		struct sigevent e = {};
		e.sigev_notify = SIGEV_THREAD;
		e.sigev_notify_function = [](union sigval) { wake(0); };
		timer_t id;
		if (timer_create(CLOCK_MONOTONIC, &e, &id))
			_exit(98);
		struct itimerspec v = {{0, 0}, LONG};
		timer_settime(id, 0, &v, nullptr);
		await_word();
	}},
	{"sent", [] { // a signal by another process
		on(SIGUSR1);
		pid_t child = fork();
		if (child == 0) {
			nanosleep(&LONG, nullptr);
			kill(getppid(), SIGUSR1);
			_exit(0);
		}
		await_word();
		waitpid(child, nullptr, 0);
	}},
	{"shared", [] { // another process has the word, too
		auto *shared = (std::atomic<int> *)mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
		pid_t child = fork();
		if (child == 0) {
			nanosleep(&LONG, nullptr);
			*shared = 1;
			futex(shared, FUTEX_WAKE, 1);
			_exit(0);
		}
		while (*shared == 0)
			futex(shared, FUTEX_WAIT, 0);
		waitpid(child, nullptr, 0);
	}},
	{"memory", [] { // another process in the same memory
		static char stack[64 << 10] __attribute__((aligned(16)));
		pid_t child = clone(wake_other, stack + sizeof stack, CLONE_VM | SIGCHLD, nullptr);
		await_word();
		waitpid(child, nullptr, 0);
	}},
	{"handed", [] { // two who wake each other all the time: at each look both may be asleep
		time_t end = time(nullptr) + LONG.tv_sec;
		std::atomic<int> turn{0};
		auto plays = [&](int me) {
			for (int n = 0;; n++) {
				while (turn.load() != me && turn.load() != 2)
					turn.wait(1 - me);
				if (turn == 2)
					return;
				turn = me == 0 && n % 64 == 0 && time(nullptr) >= end ? 2 : 1 - me;
				turn.notify_all();
			}
		};
		std::thread t(plays, 1);
		plays(0);
		t.join();
	}},
};

int main(int, char **argv)
{
	if (hangs.count(argv[1]))
		hangs[argv[1]]();
	ends.at(argv[1])();
	puts("over");
	return 3;
}
