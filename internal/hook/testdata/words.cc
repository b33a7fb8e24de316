// What words_test.go looks at: changes of words for which threads wait (words_…), and such that are for nobody's waiting (none_…).
#include <atomic>
#include <memory>
#include <semaphore>

std::counting_semaphore<8> semaphore{0};
std::atomic<int> counter, word;
std::atomic<long> sum;

extern "C" {
__attribute__((noinline)) void words_release() { semaphore.release(); }
__attribute__((noinline)) void words_turn()
{
	word.fetch_add(1);
	word.notify_all();
}
__attribute__((noinline)) void words_lock()
{
	for (int free = 0; !word.compare_exchange_strong(free, 1); free = 0)
		word.wait(1);
}
__attribute__((noinline)) void none_counter() { counter.fetch_add(1); }
__attribute__((noinline)) long none_loop(long n)
{
	long was = sum.load();
	while (!sum.compare_exchange_weak(was, was * 3 + n)) { }
	return was;
}
__attribute__((noinline)) std::shared_ptr<int> none_shared(const std::shared_ptr<int> &p) { return p; }
}

int main()
{
	auto p = std::make_shared<int>(1);
	words_release();
	semaphore.acquire();
	words_lock();
	words_turn();
	none_counter();
	return (int)none_loop(2) + *none_shared(p);
}
