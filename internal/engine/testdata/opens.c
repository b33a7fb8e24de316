// Opens libraries, each of which runs in a thread of its own from its constructor on: opens LIBRARY...
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv)
{
	int (*end[64])(int *), n = 0, bad = 0, traps = 0;
	for (int i = 1; i < argc && n < 64; i++) {
		void *lib = dlopen(argv[i], RTLD_NOW);
		if (!lib || !(end[n++] = (int (*)(int *))dlsym(lib, "end"))) {
			puts(dlerror());
			return 1;
		}
	}
	for (int i = 0; i < n; i++) {
		int one;
		bad += end[i](&one);
		traps += one;
	}
	printf("%d libraries, %d, int3 %d\n", n, bad, traps);
	return 7;
}
