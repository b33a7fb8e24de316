/* decode_driver.c: reads records of 16 bytes, 15 of code and how many of them there are, and writes for each the length and the general registers that may be written, each in two bytes. */
#include "../../decode.c"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(void)
{
	struct { uint8_t code[15], room; } record;
	while (fread(&record, sizeof record, 1, stdin) == 1) {
		uint16_t out[2] = {0};
		struct rs_instruction in;
		uint8_t *exact = malloc(record.room ? record.room : 1); /* so that a look behind it is found */
		memcpy(exact, record.code, record.room);
		if (rs_decode(&in, exact, record.room)) {
			out[0] = in.length;
			out[1] = (uint16_t)rs_decode_writes(&in);
			rs_decode_target(&in, 1 << 20);
		}
		free(exact);
		if (fwrite(out, sizeof out, 1, stdout) != 1)
			return 1;
	}
	return 0;
}
