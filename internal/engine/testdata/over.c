/* over.c: maps memory of its own over what is left of a library that has gone, and lets another one go. over LIBRARY LIBRARY */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

enum { MOST = 1 << 14, PAGE = 4096 };
struct range { uintptr_t lo, hi; };
static struct range before[MOST], after[MOST];

/* Mappings of trampolines; natively there are none. */
static int trampolines(struct range *r)
{
	int n = 0;
	char line[512];
	FILE *f = fopen("/proc/self/maps", "r");
	while (f && fgets(line, sizeof line, f))
		if (n < MOST && strstr(line, " r-xs ") && strstr(line, "/memfd:ripstop-patch") && sscanf(line, "%lx-%lx", &r[n].lo, &r[n].hi) == 2)
			n++;
	if (f)
		fclose(f);
	return n;
}

static void *load(const char *path, int *sum)
{
	void *h = dlopen(path, RTLD_NOW);
	*sum = *sum * 31 + ((int (*)(int))dlsym(h, "parts"))(*sum);
	return h;
}

int main(int argc, char **argv)
{
	if (argc < 3)
		return 1;
	int (*tell)(uintptr_t) = (int (*)(uintptr_t))dlsym(RTLD_DEFAULT, "ripstop_patch_test");
	int sum = 0;
	void *first = load(argv[1], &sum);
	dlclose(load(argv[2], &sum));
	int was = trampolines(before);
	dlclose(load(argv[2], &sum)); /* it may come again: what it leaves stays */
	int is = trampolines(after), n = 0, wrong = 0;
	for (int i = 0; i < is; i++) {
		int own = 1;
		for (int k = 0; k < was; k++)
			own &= after[i].hi <= before[k].lo || after[i].lo >= before[k].hi;
		after[i].hi = 0;
		if (!own || mmap((void *)after[i].lo, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != (void *)after[i].lo)
			continue;
		memset((void *)after[i].lo, 0x5a, PAGE);
		after[i].hi = after[i].lo + PAGE;
		n++;
	}
	if (tell)
		tell((uintptr_t)n);
	dlclose(first);
	is = trampolines(before) < was + n / 2; /* all else has gone */
	if (tell)
		tell((uintptr_t)is);
	for (int i = 0; i < MOST; i++)
		for (uintptr_t a = after[i].lo; a < after[i].hi; a++)
			wrong += *(unsigned char *)a != 0x5a;
	printf("parts %d, wrong %d\n", sum, wrong);
	return 0;
}
