/* displace_driver.c: reads records of 32 bytes: from, to, 15 bytes of code, and how many of them there are, and writes for each the result and 15 bytes. */
#include "../../displace.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(void)
{
	struct { uint64_t from, to; uint8_t code[15], room; } in;
	while (fread(&in, sizeof in, 1, stdin) == 1) {
		struct { int8_t n; uint8_t dst[RS_DISPLACED]; } out = {0};
		uint8_t *exact = malloc(in.room ? in.room : 1); /* so that a look behind it is found */
		memcpy(exact, in.code, in.room);
		out.n = (int8_t)rs_displace(out.dst, in.to, exact, in.room, in.from);
		free(exact);
		if (fwrite(&out, sizeof out, 1, stdout) != 1)
			return 1;
	}
	return 0;
}
