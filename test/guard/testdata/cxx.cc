// As heap.c, in C++.
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

template <class T> static T *hide(T *p)
{
	__asm__ volatile("" : "+r"(p) : : "memory");
	return p;
}

// case new_array: heap-overflow size=40 first=40 frame=new_array
static void new_array()
{
	int *p = hide(new int[10]);
	p[10] = 1;
	delete[] p;
}

// case vector_index: heap-overflow size=12 first=12
static void vector_index()
{
	std::vector<int> v(3);
	hide(v.data())[v.size()] = 1;
}

// case vector_reserved: none
static void vector_reserved()
{
	std::vector<int> v;
	v.reserve(100);
	for (int i = 0; i < 1000; i++)
		v.push_back(i);
}

// case string_end: heap-overflow size=101 first=101
static void string_end()
{
	std::string s(100, 'x');
	hide(s.data())[s.capacity() + 1] = 'y';
}

struct alignas(64) Wide { char c[64]; };
// case aligned_new: heap-overflow size=128 first=128
static void aligned_new()
{
	Wide *p = hide(new Wide[2]);
	reinterpret_cast<char *>(p)[128] = 1;
	delete[] p;
}

struct Node { Node *next = nullptr; long value = 0; };
// case deleted: use-after-free-write size=16 first=8 frame=deleted
static void deleted()
{
	Node *n = hide(new Node);
	delete n;
	hide(n)->value = 7;
}

// case stale_reference: use-after-free-write size=12 first=0
static void stale_reference()
{
	std::vector<int> v{1, 2, 3};
	int *first = hide(v.data());
	v.push_back(4);
	*hide(first) = 9;
}

// case moved_to_thread: heap-overflow size=20 first=20
static void moved_to_thread()
{
	std::unique_ptr<char[]> p(new char[20]);
	std::thread([q = std::move(p)] { hide(q.get())[20] = 1; }).join();
}

// case containers: none
static void containers()
{
	std::vector<std::thread> threads;
	for (int t = 0; t < 4; t++)
		threads.emplace_back([] {
			std::map<std::string, std::vector<std::string>> m;
			for (int i = 0; i < 3000; i++)
				m["key " + std::to_string(i % 100)].push_back(std::string(static_cast<size_t>(i % 200), 'x'));
			for (int i = 0; i < 1000; i++)
				try {
					throw std::runtime_error(std::string(100, 'e'));
				} catch (const std::exception &e) {
					m["thrown"].push_back(e.what());
				}
		});
	for (auto &t : threads)
		t.join();
}

static const struct { const char *name; void (*f)(); } cases[] = {
#define C(f) {#f, f}
	C(new_array), C(vector_index), C(vector_reserved), C(string_end), C(aligned_new), C(deleted), C(stale_reference), C(moved_to_thread), C(containers)};

int main(int argc, char **argv)
{
	for (const auto &c : cases)
		if (argc > 1 && std::strcmp(c.name, argv[1]) == 0) {
			c.f();
			std::puts("ok");
			return 0;
		}
	return 2;
}
