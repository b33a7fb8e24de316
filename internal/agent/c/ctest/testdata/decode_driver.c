/* decode_driver.c: reads records of 16 bytes, 15 of code and how many of them there are, and writes for each the length, the general registers that may be written (two bytes each), and of a memory
 * operand base, index, scale, map (a byte each) and displacement (four); base 255: it has none. */
#include "../../decode.c"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(void)
{
	struct { uint8_t code[15], room; } record;
	while (fread(&record, sizeof record, 1, stdin) == 1) {
		struct { uint16_t length, writes; uint8_t base, index, scale, map; int32_t disp; } out = {.base = 255};
		struct rs_instruction in;
		uint8_t *exact = malloc(record.room ? record.room : 1); /* so that a look behind it is found */
		memcpy(exact, record.code, record.room);
		if (rs_decode(&in, exact, record.room)) {
			out.length = in.length;
			out.writes = (uint16_t)rs_decode_writes(&in);
			if (in.modrm && in.mod != 3)
				out.base = in.base, out.index = in.index, out.scale = in.scale, out.map = in.map, out.disp = in.disp;
			rs_decode_target(&in, 1 << 20);
		}
		free(exact);
		if (fwrite(&out, sizeof out, 1, stdout) != 1)
			return 1;
	}
	return 0;
}
