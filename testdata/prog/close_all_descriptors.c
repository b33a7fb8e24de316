// A program that closes every descriptor but 0 to 2, one by one and as a range, before it does it wrong.
// ripstop: verdict lock-order-inversion objects=lock_a,lock_b frames=one,two
#define _GNU_SOURCE
#include <stdio.h>
#include <unistd.h>
#include "inversion.h"

int main(void)
{
	int closed = 0;
	for (int fd = 3; fd < 4096; fd++)
		closed += close(fd) == 0;
	close_range(3, ~0u, 0);
	invert();
	printf("%d were open\n", closed);
	return 0;
}
