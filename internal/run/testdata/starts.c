// Makes six calls that end epochs, with some time between, in the first hundredth of a second or so, as programs do that begin; then it writes behind a block, and ends.
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

int main(void)
{
	const struct timespec moment = {0, 3000000};
	char *block = malloc(40);
	for (int i = 0; i < 6; i++) {
		if (setgid(getgid()) < 0)
			return 1;
		nanosleep(&moment, NULL);
	}
	*((volatile char *)block + 40) = 1; // written here
	free(block);
	return 3;
}
