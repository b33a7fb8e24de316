/* guardhash.h: what a system call's arguments and data are compared by (guardsys.c). */
#ifndef RS_GUARDHASH_H
#define RS_GUARDHASH_H
#include "guardsys.h"
#include "zz_guardclass.h"

static inline uint64_t rs_guard_mix(uint64_t h, uint64_t word)
{
	h = (h ^ word) * 0x9e3779b97f4a7c15ull;
	return h ^ h >> 29;
}

static inline void rs_guard_hash_piece(void *arg, const void *p, size_t n)
{
	uint64_t h = *(uint64_t *)arg, w;
	const char *at = p;
	/* Of what is long four hashes at once, none of which waits for another. */
	if (n >= 64) {
		uint64_t lane[4] = {h, h + 1, h + 2, h + 3}, words[4];
		for (; n >= sizeof words; n -= sizeof words, at += sizeof words) {
			__builtin_memcpy(words, at, sizeof words);
			for (unsigned i = 0; i < 4; i++)
				lane[i] = rs_guard_mix(lane[i], words[i]);
		}
		h = rs_guard_mix(rs_guard_mix(lane[0], lane[1]), rs_guard_mix(lane[2], lane[3]));
	}
	for (; n >= 8; n -= 8, at += 8) {
		__builtin_memcpy(&w, at, 8);
		h = rs_guard_mix(h, w);
	}
	for (w = n; n > 0; n--)
		w = w << 8 | (uint8_t)*at++;
	*(uint64_t *)arg = rs_guard_mix(h, w);
}

static inline uint64_t rs_guard_check(const struct rs_call *c)
{
	uint64_t h = c->number;
	for (unsigned i = 0; c->number < RS_GUARD_NUMBERS && i < rs_guard_rows[c->number].args; i++)
		h = rs_guard_mix(h, c->arg[i]);
	return h;
}

/* Of what was written by it, as far as the result says. */
static inline uint64_t rs_guard_data_of(const struct rs_call *c, long result)
{
	uint64_t h = 0;
	if (result > 0)
		rs_kernel_data((unsigned)c->number, (const long *)c->arg, (size_t)result, rs_guard_hash_piece, &h);
	return h;
}
#endif
