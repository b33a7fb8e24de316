/* guardhash.h: what a system call's arguments and data are compared by (guardsys.c, guardsysquick.c, guardsysfollow.c). */
#ifndef RS_GUARDHASH_H
#define RS_GUARDHASH_H
#include "called.h"
#include "guardsys.h"
#include "zz_guardclass.h"

static inline uint64_t rs_guard_mix(uint64_t h, uint64_t word)
{
	h = (h ^ word) * 0x9e3779b97f4a7c15ull;
	return h ^ h >> 29;
}

static inline uint64_t rs_guard_word(const char *at)
{
	uint64_t w;
	__builtin_memcpy(&w, at, sizeof w);
	return w;
}

/* Of two words: both halves of a product. */
static inline uint64_t rs_guard_pair(const char *at, uint64_t first, uint64_t second)
{
	unsigned __int128 p = (unsigned __int128)(rs_guard_word(at) ^ first) * (rs_guard_word(at + 8) ^ second);
	return (uint64_t)p ^ (uint64_t)(p >> 64);
}

/* Of what is long, as pages of files are, each pair of words is one product, none of which waits for another: sums of products of words, each with a factor of its place (the idea is NH's of UMAC, RFC 4418).
 * The sums are variables and no array, which gcc keeps in memory. */
static inline void rs_guard_hash_piece(void *arg, const void *p, size_t n)
{
	uint64_t h = *(uint64_t *)arg, w;
	const char *at = p;
	if (n >= 64) {
		uint64_t a = 0, b = 0, c = 0, d = 0, first = h ^ 0xd6e8feb86659fd93ull, second = h ^ 0xa0761d6478bd642full;
		for (; n >= 64; n -= 64, at += 64) {
			a += rs_guard_pair(at, first, second);
			b += rs_guard_pair(at + 16, first, second);
			c += rs_guard_pair(at + 32, first, second);
			d += rs_guard_pair(at + 48, first, second);
			first += 0x9e3779b97f4a7c15ull;
			second += 0xc2b2ae3d27d4eb4full;
		}
		h = rs_guard_mix(rs_guard_mix(rs_guard_mix(rs_guard_mix(h, a), b), c), d);
	}
	for (; n >= 8; n -= 8, at += 8)
		h = rs_guard_mix(h, rs_guard_word(at));
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
