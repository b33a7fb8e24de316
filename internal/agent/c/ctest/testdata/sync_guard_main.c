/* Loads the library named by its argument with RTLD_LOCAL and runs it. */
#include <dlfcn.h>
#include <stdio.h>
int main(int argc, char **argv)
{
	void *l = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
	int (*f)(void) = l ? (int (*)(void))dlsym(l, "library_main") : NULL;
	if (!f) {
		puts(dlerror());
		return 1;
	}
	return f();
}
