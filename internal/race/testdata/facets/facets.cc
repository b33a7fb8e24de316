// What libstdc++'s headers keep in a std::ctype<char>, by code that is inlined into the program, is the library's: two threads that each made a std::regex had a data-race-mov told in each run, of the classic locale's facet. What
// a program does itself to the library's objects, and caches of its own, are told.
#include "../run.h"
#include <iostream>
#include <locale>
#include <regex>

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

int main()
{
	both(matches, matches);
	both(narrows, narrows);
#ifdef MATCHES
	return 0;
#endif
	both(counts, counts);
	both(marks, marks);
	both(keeps, keeps);
	both(formats, formats);
	std::cout << "done\n";
}
