/* As callers.c: the wrappers are the language's. */
#include <cstdio>
#include <cstring>

#define apart __attribute__((noinline))
#define stay(who) __asm__ volatile("# " who : : : "memory") /* no tail call, and not the same code as another function */
enum { MANY = 400, ONE = 123 };

static apart char *first_makes() { char *p = new char[24]; stay("first"); return p; }
static apart char *second_makes() { char *p = new char[24]; stay("second"); return p; }
static apart void first_drops(char *p) { delete[] p; stay("first"); }
static apart void second_drops(char *p) { delete[] p; stay("second"); }

int main(int argc, char **argv)
{
	static char *volatile first[MANY], *volatile second[MANY];
	bool mixed = !strcmp(argv[2], "mixed");
	for (int i = 0; i < MANY; i++) {
		first[i] = first_makes();
		if (mixed)
			second[i] = second_makes();
	}
	for (int i = 0; i < MANY && !mixed; i++)
		second[i] = second_makes();
	char *volatile one = second[ONE];
	if (!strcmp(argv[1], "overflow"))
		one[24] = 1;
	for (int i = 0; i < MANY; i++) {
		first_drops(first[i]);
		if (mixed)
			second_drops(second[i]);
	}
	for (int i = 0; i < MANY && !mixed; i++)
		second_drops(second[i]);
	if (!strcmp(argv[1], "freed"))
		one[3] = 1;
	std::puts("ok");
}
