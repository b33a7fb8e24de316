// What C++'s threads begin with, used by who makes them before, by them alone afterwards, and again once they are joined, or have said that they are done: arguments by value, by pointers, in std::function and std::async;
// what they point to in turn, a list among it; several threads that begin with the same.
#include <cstdio>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace {

enum { ROUNDS = 6, THREADS = 4, WORDS = 600 };

struct Job {
	std::vector<long> words = std::vector<long>(WORDS);
	long n = 0, sum = 0;
	std::unique_ptr<Job> next;
};

std::unique_ptr<Job> make(long n, int more)
{
	auto j = std::make_unique<Job>();
	j->n = n;
	for (auto &w : j->words)
		w = n++;
	if (more)
		j->next = make(n + 100, more - 1);
	return j;
}

void work(Job &j)
{
	for (auto &w : j.words)
		j.sum += w ^= j.n;
	if (j.next)
		work(*j.next);
}

long sum_of(const Job &j) { return j.sum + (j.next ? sum_of(*j.next) : 0); }

long round_of(long r)
{
	long total = 0;
	std::vector<std::unique_ptr<Job>> jobs;
	std::vector<std::thread> threads;
	for (int i = 0; i < THREADS; i++) {
		jobs.push_back(make(r + i, 2));
		Job *j = jobs.back().get();
		if (i % 2)
			threads.emplace_back([j] { work(*j); });
		else
			threads.emplace_back(std::function<void()>([j, r, i] { j->n = r + i; work(*j); }));
	}
	for (auto &t : threads)
		t.join();
	for (auto &j : jobs)
		total += sum_of(*j);

	auto one = std::async(std::launch::async, [](Job *j) { work(*j); return j->sum; }, jobs[0].get());
	total += one.get() + sum_of(*jobs[0]);

	// The same for several: read by all, and a vector under a lock.
	auto same = std::make_shared<Job>();
	std::mutex lock;
	std::vector<long> seen;
	for (int i = 0; i < THREADS; i++)
		threads[i] = std::thread([same, i, &lock, &seen] {
			long s = i;
			for (long w : same->words)
				s += w;
			std::lock_guard<std::mutex> l(lock);
			seen.push_back(s);
		});
	for (auto &t : threads)
		t.join();
	for (long s : seen)
		total += s;
	return total;
}

} // namespace

int main()
{
	long total = 0;
	for (long r = 0; r < ROUNDS; r++)
		total += round_of(r);
	std::printf("%ld\n", total);
	return 0;
}
