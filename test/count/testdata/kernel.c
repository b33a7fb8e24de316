// Loops that gcc -O3 -mavx2 makes vectors of, and by hand each kind of access that compilers seldom choose. Prints one number, the same in every run.
#include <immintrin.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { N = 1000 };

static float a[N], b[N], c[N] __attribute__((aligned(64)));
static int32_t index_of[N], gathered[N];
static uint8_t bytes[8 * N], copy[8 * N];
static uint64_t hash = 1469598103934665603u;

static void mix(const void *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		hash = (hash ^ ((const uint8_t *)p)[i]) * 1099511628211u;
}

__attribute__((noinline)) static void saxpy(float *restrict y, const float *restrict x, float k, int n)
{
	for (int i = 0; i < n; i++)
		y[i] += k * x[i];
}

__attribute__((noinline)) static float stencil(const float *restrict x, float *restrict y, int n)
{
	float sum = 0;
	for (int i = 1; i + 1 < n; i++) {
		y[i] = (x[i - 1] + x[i] + x[i + 1]) / 3;
		sum += y[i] > 1 ? 1 : 0;
	}
	return sum;
}

__attribute__((noinline)) static void gather(int32_t *to, const int32_t *from, const int32_t *at, int n)
{
	for (int i = 0; i + 8 <= n; i += 8) {
		__m256i v = _mm256_i32gather_epi32(from, _mm256_loadu_si256((const __m256i *)(at + i)), 4);
		_mm256_storeu_si256((__m256i *)(to + i), v);
	}
}

__attribute__((noinline)) static void masked(float *y, const float *x, int n)
{
	const __m256i m = _mm256_setr_epi32(-1, 0, -1, 0, 0, 0, -1, -1);
	for (int i = 0; i + 8 <= n; i += 8)
		_mm256_maskstore_ps(y + i, m, _mm256_maskload_ps(x + i, m));
}

__attribute__((noinline)) static void streamed(float *y, const float *x, int n)
{
	for (int i = 0; i + 8 <= n; i += 8)
		_mm256_stream_ps(y + i, _mm256_loadu_ps(x + i));
	_mm_sfence();
}

__attribute__((noinline)) static void strings(size_t n)
{
	for (size_t len = 0; len < n; len += 37) {
		void *to = copy, *from = bytes;
		size_t count = len;
		__asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(count) : : "memory");
		to = copy + len, count = (n - len) / 8;
		__asm__ volatile("rep stosq" : "+D"(to), "+c"(count) : "a"(len) : "memory");
		to = copy, from = bytes, count = n;
		__asm__ volatile("repe cmpsb" : "+D"(to), "+S"(from), "+c"(count) : : "memory", "cc");
		hash += count;
		to = copy, count = n;
		__asm__ volatile("repne scasb" : "+D"(to), "+c"(count) : "a"(7) : "memory", "cc");
		hash += count;
		from = bytes + len % 64;
		for (int i = 0; i < 3; i++) {
			uint64_t word;
			__asm__ volatile("lodsq" : "=a"(word), "+S"(from) : : "memory");
			hash ^= word;
		}
	}
}

__attribute__((noinline)) static void locked(uint64_t *word, int n)
{
	for (int i = 0; i < n; i++) {
		__atomic_fetch_add(word, i, __ATOMIC_SEQ_CST);
		__atomic_exchange_n(word + 1, *word, __ATOMIC_SEQ_CST);
		if (i % 3 == 0)
			__atomic_fetch_or(word + 2, i, __ATOMIC_RELAXED);
	}
}

__attribute__((noinline)) static uint64_t (*pick(int i))(uint64_t);

static uint64_t twice(uint64_t x) { return 2 * x; }
static uint64_t minus(uint64_t x) { return x - 1; }
static uint64_t (*const functions[])(uint64_t) = {twice, minus, twice};
static uint64_t (*pick(int i))(uint64_t) { return functions[i % 3]; }

__attribute__((noinline)) static uint64_t dispatch(uint64_t x, int n)
{
	for (int i = 0; i < n; i++) {
		x = pick(i)(x);
		switch (x % 7) { // a jump by a table
		case 0: x += 3; break;
		case 1: x ^= hash; break;
		case 2: x -= (uint64_t)i; break;
		case 3: hash += x; break;
		case 4: x = x << 1 | x >> 63; break;
		case 5: x *= 5; break;
		default: x = ~x;
		}
	}
	return x;
}

int main(void)
{
	uint64_t words[3] = {1, 2, 3};
	for (int i = 0; i < N; i++) {
		a[i] = (float)i / 7;
		b[i] = (float)(N - i) / 3;
		index_of[i] = (i * 37) % N;
		gathered[i] = i;
	}
	for (size_t i = 0; i < sizeof bytes; i++)
		bytes[i] = (uint8_t)(i * 31 % 251);
	saxpy(a, b, 1.5f, N);
	hash += (uint64_t)stencil(a, c, N);
	static int32_t to[N];
	gather(to, gathered, index_of, N);
	masked(b, c, N);
	streamed(c, a, N);
	strings(500);
	locked(words, N);
	hash ^= dispatch(17, N);
	mix(to, sizeof to);
	mix(b, sizeof b);
	mix(c, sizeof c);
	mix(words, sizeof words);
	mix(copy, 1000);
	printf("%016llx\n", (unsigned long long)hash);
	return 0;
}
