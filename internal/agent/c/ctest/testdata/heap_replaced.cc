// heap_replaced.cc: operator new replaced; with -DLIBRARY the replacement, otherwise the program that uses it. One file, so that the
// replacement can stand in the executable, in a library it links, or nowhere.
#include <cstdio>
#include <cstdlib>
#include <new>

#if defined(LIBRARY) || defined(INSIDE)
int replaced;
void *operator new(size_t n)
{
	replaced++;
	return malloc(n);
}
void operator delete(void *p) noexcept
{
	replaced += 100;
	free(p);
}
void operator delete(void *p, size_t) noexcept
{
	replaced += 100;
	free(p);
}
#else
extern int replaced;
#endif
#ifndef LIBRARY
int main()
{
	int *volatile p = new int(3);
	delete p;
	std::printf("%d\n", replaced);
}
#endif
