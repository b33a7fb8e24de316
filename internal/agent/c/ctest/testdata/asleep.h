/* Whether a thread of this process sleeps in the kernel, as /proc says: programs wait for that rather than for a time. */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static bool asleep(int tid)
{
	char path[64], line[400] = "";
	snprintf(path, sizeof path, "/proc/self/task/%d/stat", tid);
	FILE *f = fopen(path, "r");
	size_t n = f ? fread(line, 1, sizeof line - 1, f) : 0;
	if (f)
		fclose(f);
	line[n] = 0;
	const char *state = strrchr(line, ')');
	return state && state[1] == ' ' && state[2] == 'S';
}
