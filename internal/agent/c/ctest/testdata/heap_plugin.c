/* heap_plugin.c: a C program that loads a C++ plugin, whose operator new is nowhere in the global scope. */
#include <dlfcn.h>
#include <stdio.h>
int main(int argc, char **argv)
{
	void *h = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
	int (*work)(void) = h ? (int (*)(void))dlsym(h, "work") : NULL;
	if (!work) {
		puts(dlerror());
		return 1;
	}
	printf("%d\n", work());
	void *(*take)(void) = (void *(*)(void))dlsym(h, "take");
	void (*give)(void *) = (void (*)(void *))dlsym(h, "give");
	give(take());
	return dlclose(h);
}
