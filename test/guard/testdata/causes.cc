// As causes.c, in C++.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <new>
#include <numeric>
#include <string>
#include <unordered_map>
#include <vector>

template <class T> static T *hide(T *p)
{
	__asm__ volatile("" : "+r"(p) : : "memory");
	return p;
}

// case array_index: heap-overflow size=40 first=40
static void array_index(size_t x)
{
	int *p = hide(new int[10]);
	p[9 + x] = 1; // wrong
	delete[] p;
}

// case array_fill: heap-overflow size=24 first=24
static void array_fill(size_t x)
{
	std::unique_ptr<short[]> p(new short[12]);
	std::fill_n(hide(p.get()), 12 + 2 * x, short{5}); // wrong
}

// case array_of_objects: heap-overflow size=88 first=88
static void array_of_objects(size_t x)
{
	struct Point { double a = 0; ~Point() { __asm__ volatile("" : : "r"(this)); } };
	Point *p = hide(new Point[10]); /* behind their number */
	p[9 + x].a = 1; // wrong
	delete[] p;
}

// case object_member: heap-overflow size=16 first=16
static void object_member(size_t x)
{
	struct Base { long a = 0, b = 0; };
	struct More : Base { long c = 0; };
	Base *p = hide(x ? new Base : static_cast<Base *>(new More));
	static_cast<More *>(p)->c = 1; // wrong
	delete p;
}

// case vector_index: heap-overflow size=12 first=12
static void vector_index(size_t x)
{
	std::vector<int> v(3);
	hide(v.data())[2 + x] = 1; // wrong
}

// case vector_iterator: heap-overflow size=32 first=32
static void vector_iterator(size_t x)
{
	std::vector<long> v(4);
	hide(&v);
	*(v.end() - 1 + static_cast<long>(x)) = 1; // wrong
}

// case vector_copied_to: heap-overflow size=20 first=20
static void vector_copied_to(size_t x)
{
	std::vector<int> from(5 + x, 3), to(5);
	hide(&to);
	std::copy(from.begin(), from.end(), to.begin()); // wrong
}

// case vector_counted: heap-overflow size=60 first=60
static void vector_counted(size_t x)
{
	std::vector<int> v(15);
	hide(&v);
	std::iota(v.begin(), v.end() + static_cast<long>(x), 0x7f010203); // wrong
}

// case string_index: heap-overflow size=101 first=101
static void string_index(size_t x)
{
	std::string s(100, 'x');
	hide(s.data())[s.capacity() + x] = 0; // wrong
}

// case string_copied: heap-overflow size=51 first=51
static void string_copied(size_t x)
{
	std::string s(50, 'x');
	std::strcpy(hide(s.data()), hide(std::string(50 + 5 * x, 'y').c_str())); // wrong
}

struct alignas(64) Wide { char c[64]; };
// case aligned_object: heap-overflow size=128 first=128
static void aligned_object(size_t x)
{
	Wide *p = hide(new Wide[2]);
	reinterpret_cast<char *>(p)[127 + x] = 1; // wrong
	delete[] p;
}

// case placed: heap-overflow size=16 first=16
static void placed(size_t x)
{
	struct Two { long a, b; };
	char *room = hide(new char[16]);
	Two *p = new (room + 8 * x) Two{1, 2}; // wrong
	hide(p);
	delete[] room;
}

struct Node { Node *next = nullptr; long value = 0; };
// case deleted: use-after-free-write size=16 first=8
static void deleted(size_t x)
{
	Node *n = hide(new Node);
	if (x)
		delete n;
	hide(n)->value = 7; // wrong
	if (!x)
		delete n;
}

// case deleted_array: use-after-free-write size=80 first=24
static void deleted_array(size_t x)
{
	long *p = hide(new long[10]);
	if (x)
		delete[] p;
	hide(p)[3] = 7; // wrong
	if (!x)
		delete[] p;
}

// case stale_reference: use-after-free-write size=12 first=0
static void stale_reference(size_t x)
{
	std::vector<int> v{1, 2, 3};
	v.reserve(3 + !x);
	int *first = hide(v.data());
	v.push_back(4);
	*hide(first) = 9; // wrong
}

// case stale_string: use-after-free-write size=31 first=2
static void stale_string(size_t x)
{
	std::string s(30, 'a');
	char *p = hide(s.data());
	if (x)
		s.append(200, 'b');
	hide(p)[2] = 'c'; // wrong
}

// case erased_node: use-after-free-write size=40 first=36
static void erased_node(size_t x)
{
	std::map<int, int> m{{1, 1}, {2, 2}};
	int *p = hide(&m.at(2));
	if (x)
		m.erase(2);
	*hide(p) = 3; // wrong
}

// case erased_hashed: use-after-free-write size=16 first=12 alone= alloc=deep
static void erased_hashed(size_t x)
{
	std::unordered_map<int, int> m{{1, 1}, {2, 2}};
	int *p = hide(&m[2]);
	if (x)
		m.clear();
	*hide(p) = 3; // wrong
}

// case popped: use-after-free-write size=24 first=16
static void popped(size_t x)
{
	std::list<long> l{1, 2};
	long *p = hide(&l.back());
	if (x)
		l.pop_back();
	*hide(p) = 3; // wrong
}

// case released: use-after-free-write size=16 first=0
static void released(size_t x)
{
	std::unique_ptr<Node> n(new Node);
	Node *p = hide(n.get());
	if (x)
		n.reset();
	hide(p)->next = p; // wrong
}

// case shared_gone: use-after-free-write size=32 first=24
static void shared_gone(size_t x)
{
	auto n = std::make_shared<Node>();
	Node *p = hide(n.get());
	if (x)
		n.reset();
	hide(p)->value = 5; // wrong
}

struct Shape { long area = 1; virtual ~Shape() { __asm__ volatile("" : : "r"(this)); } __attribute__((noinline)) virtual void grow() { area++; } };
// case dangling_this: use-after-free-write size=16 first=8 free=~Shape
static void dangling_this(size_t x)
{
	struct Owner { Shape *s; __attribute__((noinline)) void step(bool gone) { if (gone) delete s; hide(this)->s->area = 4; } } o{hide(new Shape)}; // wrong
	o.step(x);
	if (!x)
		delete o.s;
}

// case deleted_twice: double-free and=crash ends=SIGABRT
static void deleted_twice(size_t x)
{
	Node *n = hide(new Node);
	delete n;
	if (x)
		delete hide(n);
}

// case deleted_element: invalid-free and=crash ends=SIGABRT
static void deleted_element(size_t x)
{
	Node *n = hide(new Node[5]);
	if (x)
		delete hide(n + 2);
	delete[] n;
}

static const struct { const char *name; void (*f)(size_t); } cases[] = {
#define C(f) {#f, f}
	C(array_index), C(array_fill), C(array_of_objects), C(object_member), C(vector_index), C(vector_iterator), C(vector_copied_to), C(vector_counted), C(string_index), C(string_copied), C(aligned_object), C(placed), C(deleted), C(deleted_array), C(stale_reference),
	C(stale_string), C(erased_node), C(erased_hashed), C(popped), C(released), C(shared_gone), C(dangling_this), C(deleted_twice), C(deleted_element)};

int main(int argc, char **argv)
{
	size_t x = std::strcmp(argv[argc - 1], "clean") != 0;
	for (const auto &c : cases)
		if (argc == 2 && !x)
			c.f(0);
	for (int a = 1; a < argc; a++)
		for (const auto &c : cases)
			if (std::strcmp(c.name, argv[a]) == 0)
				c.f(x);
	std::puts("ok");
	return 0;
}
