/* parts.c: a library of some thousand instructions, to be loaded and to go. */
#ifndef SEED
#define SEED 1
#endif
static int table[64];
#define PART(n) \
	static __attribute__((noinline)) int part##n(int x) \
	{ \
		table[(x + n) & 63] += x * (n * SEED + 3); \
		int s = table[n & 63] ^ x; \
		if (s & 1) \
			table[(s >> 1) & 63]--; \
		return s + table[(x ^ n) & 63]; \
	}
#define PARTS(n) PART(n##0) PART(n##1) PART(n##2) PART(n##3) PART(n##4) PART(n##5) PART(n##6) PART(n##7)
#define CALL(n) s = s * 31 + part##n(s ^ x);
#define CALLS(n) CALL(n##0) CALL(n##1) CALL(n##2) CALL(n##3) CALL(n##4) CALL(n##5) CALL(n##6) CALL(n##7)
PARTS(1) PARTS(2) PARTS(3) PARTS(4) PARTS(5) PARTS(6) PARTS(7) PARTS(8) PARTS(9) PARTS(10) PARTS(11) PARTS(12) PARTS(13) PARTS(14) PARTS(15) PARTS(16)
int parts(int x)
{
	int s = SEED;
	CALLS(1) CALLS(2) CALLS(3) CALLS(4) CALLS(5) CALLS(6) CALLS(7) CALLS(8) CALLS(9) CALLS(10) CALLS(11) CALLS(12) CALLS(13) CALLS(14) CALLS(15) CALLS(16)
	return s;
}
