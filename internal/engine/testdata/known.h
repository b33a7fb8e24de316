/* Where code of files lies, as at the start. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static uintptr_t known_lo[256], known_hi[256];
static int known_count;

static void know(void)
{
	char line[1024], may[5];
	FILE *f = fopen("/proc/self/maps", "r");
	while (f && known_count < 256 && fgets(line, sizeof line, f)) {
		unsigned long lo, hi;
		if (sscanf(line, "%lx-%lx %4s", &lo, &hi, may) == 3 && may[2] == 'x' && !strstr(line, "memfd:ripstop-patch") && (strchr(line, '/') || strstr(line, "[v"))) {
			known_lo[known_count] = lo;
			known_hi[known_count++] = hi;
		}
	}
	if (f)
		fclose(f);
}

static int is_known(uintptr_t pc)
{
	for (int i = 0; i < known_count; i++)
		if (pc >= known_lo[i] && pc < known_hi[i])
			return 1;
	return 0;
}
