// What libstdc++'s headers keep in a std::ctype<char>, by code that is inlined into the program, is the library's: two threads that each made a std::regex had a data-race-mov told in each run, of the classic locale's facet. What
// a program does itself to the library's objects, and caches of its own, are told.
#include "../run.h"
#include <iomanip>
#include <iostream>
#include <locale>
#include <regex>
#include <sstream>

// The classic locale's.
static void *matches(void *p)
{
	std::regex r("a[bc]+(d|e)*x{2,3}");
	if (!std::regex_match("abcdxx", r))
		abort();
	return p;
}

// One on the heap, and one of a class derived from it, with a member of its own behind.
struct spaces : std::ctype<char> {
	long asked = 0;
	char one = 0;
};
static std::locale of_heap(std::locale::classic(), new std::ctype<char>), of_derived(std::locale::classic(), new spaces);
static void *narrows(void *p)
{
	for (const std::locale &l : {of_heap, of_derived}) {
		const auto &f = std::use_facet<std::ctype<char>>(l);
		for (char c = 'a'; c < 'z'; c++)
			use(f.narrow(c, 0));
		use(f.widen('a'));
	}
	return p;
}
static spaces &mine() { return const_cast<spaces &>(dynamic_cast<const spaces &>(std::use_facet<std::ctype<char>>(of_derived))); }
static void *counts(void *p)
{
	mine().asked = 1; // race-mov beside
	return p;
}
static void *marks(void *p)
{
	mine().one = 1; // race-mov byte_beside
	return p;
}

// A cache of the program's own, which looks like that.
struct folds {
	virtual ~folds() {}
	char kept[600];
};
static folds own;
static void *keeps(void *p)
{
	own.kept[300] = 'x'; // race-mov own_cache
	return p;
}

// The state of a stream of the library's.
static void *formats(void *p)
{
	std::cout.width(4); // race-mov width
	return p;
}

// All the others: numbers, money, time, comparing, wide and narrow characters, by streams of each thread's own in one locale. libstdc++ keeps what it has worked out of a locale where all threads find it.
static std::locale everyones("C");
template <class C> static void uses_all()
{
	std::basic_ostringstream<C> out;
	out.imbue(everyones);
	const C year[] = {C('%'), C('Y'), 0};
	std::tm t = {};
	t.tm_mday = 1;
	out << 1234.25 << C(' ') << std::hex << 255 << C(' ') << true << C(' ') << std::put_money(1234) << C(' ') << std::put_time(&t, year);
	std::basic_istringstream<C> in(out.str());
	in.imbue(everyones);
	double d;
	unsigned u;
	in >> d >> std::hex >> u;
	const auto &collate = std::use_facet<std::collate<C>>(everyones);
	const std::basic_string<C> a = out.str();
	if (d != 1234.25 || u != 255 || collate.compare(a.data(), a.data() + a.size(), a.data(), a.data() + a.size()) != 0 || std::use_facet<std::ctype<C>>(everyones).toupper(C('a')) != C('A'))
		abort();
	use(collate.hash(a.data(), a.data() + a.size()));
	use(std::use_facet<std::moneypunct<C>>(everyones).frac_digits());
	use(std::use_facet<std::messages<C>>(everyones).open("none", everyones));
}
static void *uses_facets(void *p)
{
	uses_all<char>();
	uses_all<wchar_t>();
	for (int i = 0; i < 3; i++) {
		std::locale mine(everyones, new std::numpunct<char>), copy = mine;
		use(std::has_facet<std::numpunct<char>>(copy));
		std::ostringstream out;
		out.imbue(copy);
		out << 1.5;
	}
	return p;
}

// Who makes another locale the program's, and who asks for it.
static void *makes_global(void *p)
{
	std::locale::global(everyones);
	std::locale now;
	use(now == everyones);
	return p;
}

// A variable that is a locale (missed: it is libstdc++ that accesses it). Whoever copies one first hands over what it has done, by the count that copies share.
static std::locale changed;
static void *changes(void *p)
{
	changed = everyones; // missed locale
	unseen_done();
	return p;
}
static void *copies(void *p)
{
	unseen_wait();
	std::locale mine(changed); // missed locale
	use(mine == everyones);
	return p;
}

// A facet of the program's own, which libstdc++ calls.
struct counting : std::numpunct<char> {
	mutable long asked = 0;
	char do_decimal_point() const override
	{
		asked = 1; // race-mov counted
		return ',';
	}
};
static std::locale of_counting(std::locale::classic(), new counting);
static void *asks(void *p)
{
	use(std::use_facet<std::numpunct<char>>(of_counting).decimal_point());
	return p;
}

int main()
{
	both(matches, matches);
	both(narrows, narrows);
#ifdef MATCHES
	return 0;
#endif
	both(uses_facets, uses_facets);
	both(makes_global, makes_global);
	unseen(changes, copies);
	both(asks, asks);
	both(counts, counts);
	both(marks, marks);
	both(keeps, keeps);
	both(formats, formats);
	std::cout << "done\n";
}
