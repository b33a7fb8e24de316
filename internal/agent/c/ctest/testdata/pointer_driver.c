/* pointer_driver.c: reads records of 16 bytes, 15 of code and how many of them there are, and writes for each the length and the general registers that may be written, each in two bytes. */
#include "../../pointer.c"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

uint32_t rs_share_on;
long rs_share_sys6(long n, long a, long b, long c, long d, long e, long f) { return n + a + b + c + d + e + f; }
uint32_t rs_os_pid(void) { return 0; }

int main(void)
{
	struct { uint8_t code[15], room; } record;
	while (fread(&record, sizeof record, 1, stdin) == 1) {
		uint16_t out[2] = {0};
		struct instruction in;
		uint8_t *exact = malloc(record.room ? record.room : 1); /* so that a look behind it is found */
		memcpy(exact, record.code, record.room);
		out[0] = (uint16_t)rs_pointer_length(exact, record.room);
		if (decode(&in, exact, record.room)) {
			out[1] = (uint16_t)writes(&in);
			target(&in, 1 << 20);
		}
		free(exact);
		if (fwrite(out, sizeof out, 1, stdout) != 1)
			return 1;
	}
	return 0;
}
