// Parallel kernels of different sharing, for what finding races costs: kernels NAME THREADS REPEATS prints a checksum. None has a race.
#include <math.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int threads, repeats;
static pthread_barrier_t all;
static double sum;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static uint32_t next(uint32_t *r) { return *r = *r * 1664525 + 1013904223; }
static void wait_all(void) { pthread_barrier_wait(&all); }
static int from(int t, int n) { return (int)((long)n * t / threads); }
static void add(double x)
{
	pthread_mutex_lock(&lock);
	sum += x;
	pthread_mutex_unlock(&lock);
}

// nbody: everybody reads all positions, and writes its own.
enum { BODIES = 500, STEPS = 4 };
static struct { double x[3], v[3], m; } body[BODIES];
static void nbody_begin(void)
{
	uint32_t r = 1;
	for (int i = 0; i < BODIES; i++)
		for (int k = 0; k < 3; k++)
			body[i].x[k] = next(&r) % 1000, body[i].m = 1;
}
static void nbody(int t)
{
	int lo = from(t, BODIES), hi = from(t + 1, BODIES);
	for (int s = 0; s < STEPS; s++) {
		for (int i = lo; i < hi; i++)
			for (int j = 0; j < BODIES; j++) {
				double d[3], q = 1;
				for (int k = 0; k < 3; k++)
					d[k] = body[j].x[k] - body[i].x[k], q += d[k] * d[k];
				for (int k = 0; k < 3; k++)
					body[i].v[k] += d[k] * body[j].m / (q * sqrt(q));
			}
		wait_all();
		for (int i = lo; i < hi; i++)
			for (int k = 0; k < 3; k++)
				body[i].x[k] += body[i].v[k];
		wait_all();
	}
	for (int i = lo; i < hi; i++)
		if (i % 50 == 0)
			add(floor(body[i].x[0]));
}

// lu: blocks of a matrix, each step's pivot block read by all.
enum { N = 192, B = 16 };
static double matrix[N][N];
static void lu_begin(void)
{
	uint32_t r = 2;
	for (int i = 0; i < N; i++)
		for (int j = 0; j < N; j++)
			matrix[i][j] = next(&r) % 100 + (i == j ? 10000 : 0);
}
static void lu(int t)
{
	for (int k = 0; k < N; k++) {
		for (int i = k + 1; i < N; i++)
			if (i / B % threads == t) {
				double f = matrix[i][k] /= matrix[k][k];
				for (int j = k + 1; j < N; j++)
					matrix[i][j] -= f * matrix[k][j];
			}
		wait_all();
	}
	if (t == 0)
		for (int i = 0; i < N; i++)
			sum += floor(matrix[i][i]);
}

// fft: butterflies over one array, by stages.
enum { LOG = 14, POINTS = 1 << LOG };
static double re[POINTS], im[POINTS];
static void fft_begin(void)
{
	for (int i = 0; i < POINTS; i++)
		re[i] = i % 17;
}
static void fft(int t)
{
	for (int s = 0; s < LOG; s++) {
		int half = 1 << s;
		for (int n = from(t, POINTS / 2); n < from(t + 1, POINTS / 2); n++) {
			int a = n / half * 2 * half + n % half, b = a + half;
			double w = -M_PI * (n % half) / half, c = 1 - w * w / 2, d = w, x = re[b] * c - im[b] * d, y = re[b] * d + im[b] * c;
			re[b] = re[a] - x, im[b] = im[a] - y;
			re[a] += x, im[a] += y;
		}
		wait_all();
	}
	if (t == 0)
		for (int i = 0; i < POINTS; i += 64)
			sum += floor(fmod(re[i], 1000));
}

// radix: counts of each thread, offsets by one, then everybody writes everywhere.
enum { KEYS = 1 << 17, BINS = 256 };
static uint32_t keys[2][KEYS], bins[64][BINS];
static void radix_begin(void)
{
	uint32_t r = 3;
	for (int i = 0; i < KEYS; i++)
		keys[0][i] = next(&r);
}
static void radix(int t)
{
	for (int pass = 0; pass < 4; pass++) {
		uint32_t *in = keys[pass & 1], *out = keys[~pass & 1];
		memset(bins[t], 0, sizeof bins[t]);
		for (int i = from(t, KEYS); i < from(t + 1, KEYS); i++)
			bins[t][in[i] >> pass * 8 & 255]++;
		wait_all();
		if (t == 0)
			for (uint32_t b = 0, at = 0; b < BINS; b++)
				for (int k = 0; k < threads; k++) {
					uint32_t n = bins[k][b];
					bins[k][b] = at;
					at += n;
				}
		wait_all();
		for (int i = from(t, KEYS); i < from(t + 1, KEYS); i++)
			out[bins[t][in[i] >> pass * 8 & 255]++] = in[i];
		wait_all();
	}
	if (t == 0)
		for (int i = 0; i < KEYS; i += 1000)
			sum += keys[0][i] % 1000;
}

// stencil: rows, of which the outer ones are read by the neighbours.
enum { SIDE = 400, SWEEPS = 12 };
static double grid[2][SIDE][SIDE];
static void stencil_begin(void)
{
	for (int i = 0; i < SIDE; i++)
		grid[0][i][0] = grid[1][i][0] = grid[0][0][i] = grid[1][0][i] = 100;
}
static void stencil(int t)
{
	for (int s = 0; s < SWEEPS; s++) {
		double(*a)[SIDE] = grid[s & 1], (*b)[SIDE] = grid[~s & 1];
		for (int i = 1 + from(t, SIDE - 2); i < 1 + from(t + 1, SIDE - 2); i++)
			for (int j = 1; j < SIDE - 1; j++)
				b[i][j] = (a[i - 1][j] + a[i + 1][j] + a[i][j - 1] + a[i][j + 1]) / 4;
		wait_all();
	}
	if (t == 0)
		for (int i = 0; i < SIDE; i++)
			sum += floor(grid[0][i][i]);
}

// montecarlo: nothing shared but the end; its numbers lie in memory.
enum { TRIES = 1500000 };
static void montecarlo_begin(void) {}
static void montecarlo(int t)
{
	uint32_t state[64];
	long in = 0;
	for (uint32_t i = 0; i < 64; i++)
		state[i] = i * 7919 + (uint32_t)t;
	for (int i = 0; i < TRIES / threads; i++) {
		double x = next(&state[i & 31]) / 4294967296.0, y = next(&state[32 + (i & 31)]) / 4294967296.0;
		in += x * x + y * y < 1;
	}
	add((double)(in / 1000));
}

// kmeans: centres read by all, sums of each thread put together by one.
enum { DOTS = 20000, CENTRES = 8, ROUNDS = 6 };
static float dot[DOTS][2], centre[CENTRES][2], part[64][CENTRES][3];
static void kmeans_begin(void)
{
	uint32_t r = 4;
	for (int i = 0; i < DOTS; i++)
		dot[i][0] = next(&r) % 1000, dot[i][1] = next(&r) % 1000;
	memcpy(centre, dot, sizeof centre);
}
static void kmeans(int t)
{
	for (int round = 0; round < ROUNDS; round++) {
		memset(part[t], 0, sizeof part[t]);
		for (int i = from(t, DOTS); i < from(t + 1, DOTS); i++) {
			int best = 0;
			float least = 1e30f;
			for (int c = 0; c < CENTRES; c++) {
				float x = dot[i][0] - centre[c][0], y = dot[i][1] - centre[c][1];
				if (x * x + y * y < least)
					least = x * x + y * y, best = c;
			}
			part[t][best][0] += dot[i][0], part[t][best][1] += dot[i][1], part[t][best][2]++;
		}
		wait_all();
		for (int c = 0; t == 0 && c < CENTRES; c++) {
			float x = 0, y = 0, n = 0;
			for (int k = 0; k < threads; k++)
				x += part[k][c][0], y += part[k][c][1], n += part[k][c][2];
			if (n > 0)
				centre[c][0] = x / n, centre[c][1] = y / n;
		}
		wait_all();
	}
	if (t == 0)
		for (int c = 0; c < CENTRES; c++)
			sum += floor(centre[c][0]);
}

// wordcount: a text that all read, a table of each thread, put together under a lock.
enum { TEXT = 1 << 19, WORDS = 4096 };
static char text[TEXT + 1];
static int words[WORDS];
static void wordcount_begin(void)
{
	uint32_t r = 5;
	for (int i = 0; i < TEXT; i++)
		text[i] = next(&r) >> 16 & 7 ? (char)('a' + (next(&r) >> 16) % 6) : ' ';
}
static void wordcount(int t)
{
	int *mine = calloc(WORDS, sizeof *mine);
	uint32_t h = 0;
	for (int i = from(t, TEXT); i < from(t + 1, TEXT); i++)
		if (text[i] == ' ') {
			mine[h % WORDS]++;
			h = 0;
		} else
			h = h * 31 + (uint32_t)text[i];
	pthread_mutex_lock(&lock);
	for (int i = 0; i < WORDS; i++)
		words[i] += mine[i];
	pthread_mutex_unlock(&lock);
	free(mine);
	wait_all();
	if (t == 0)
		for (int i = 0; i < WORDS; i++)
			sum += words[i] > 10;
}

// pipeline: blocks go from thread to thread through queues, and each changes them.
enum { BLOCKS = 400, BLOCK = 256, ROOM = 16 };
static struct queue { pthread_mutex_t lock; pthread_cond_t some, room; uint32_t *at[ROOM]; int n, first; } queue[64];
static void pipeline_begin(void)
{
	for (int i = 0; i < 64; i++) {
		pthread_mutex_init(&queue[i].lock, NULL);
		pthread_cond_init(&queue[i].some, NULL);
		pthread_cond_init(&queue[i].room, NULL);
	}
}
static void put(struct queue *q, uint32_t *block)
{
	pthread_mutex_lock(&q->lock);
	while (q->n == ROOM)
		pthread_cond_wait(&q->room, &q->lock);
	q->at[(q->first + q->n++) % ROOM] = block;
	pthread_cond_signal(&q->some);
	pthread_mutex_unlock(&q->lock);
}
static uint32_t *get(struct queue *q)
{
	pthread_mutex_lock(&q->lock);
	while (q->n == 0)
		pthread_cond_wait(&q->some, &q->lock);
	uint32_t *block = q->at[q->first];
	q->first = (q->first + 1) % ROOM;
	q->n--;
	pthread_cond_signal(&q->room);
	pthread_mutex_unlock(&q->lock);
	return block;
}
static void pipeline(int t)
{
	for (int n = 0; n < BLOCKS; n++) {
		uint32_t *block = t ? get(&queue[t]) : malloc(BLOCK * sizeof *block);
		for (uint32_t i = 0; i < BLOCK; i++)
			block[i] = t ? block[i] * 31 + i : i + (uint32_t)n;
		for (int k = 0; k < 20; k++)
			for (int i = 1; i < BLOCK; i++)
				block[i] ^= block[i - 1] >> 3;
		if (t + 1 < threads) {
			put(&queue[t + 1], block);
			continue;
		}
		sum += block[BLOCK - 1] % 1000;
		free(block);
	}
}

// hashtable: chains under locks of buckets.
enum { OPERATIONS = 120000, BUCKETS = 1024 };
static struct node { struct node *next; uint32_t key; long value; } *table[BUCKETS];
static pthread_mutex_t bucket_lock[BUCKETS];
static void hashtable_begin(void)
{
	for (int i = 0; i < BUCKETS; i++)
		pthread_mutex_init(&bucket_lock[i], NULL);
}
static void hashtable(int t)
{
	uint32_t r = (uint32_t)t + 6;
	for (int n = 0; n < OPERATIONS / threads; n++) {
		uint32_t key = next(&r) >> 8 & 8191, b = key % BUCKETS;
		pthread_mutex_lock(&bucket_lock[b]);
		struct node *e = table[b];
		while (e && e->key != key)
			e = e->next;
		if (!e) {
			e = malloc(sizeof *e);
			*e = (struct node){table[b], key, 0};
			table[b] = e;
		}
		e->value++;
		pthread_mutex_unlock(&bucket_lock[b]);
	}
	wait_all();
	for (int b = 0; t == 0 && b < BUCKETS; b++)
		for (struct node *e = table[b]; e; e = e->next)
			sum += (double)e->value;
}

#define KERNEL(name) {#name, name##_begin, name}
static const struct kernel { const char *name; void (*begin)(void), (*run)(int); } kernels[] = {
	KERNEL(nbody), KERNEL(lu), KERNEL(fft), KERNEL(radix), KERNEL(stencil), KERNEL(montecarlo), KERNEL(kmeans), KERNEL(wordcount), KERNEL(pipeline), KERNEL(hashtable)};
static const struct kernel *kernel;

static void *thread(void *arg)
{
	for (int i = 0; i < repeats; i++) {
		kernel->run((int)(intptr_t)arg);
		wait_all();
	}
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t t[64];
	threads = argc > 2 ? atoi(argv[2]) : 2;
	repeats = argc > 3 ? atoi(argv[3]) : 1;
	for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++)
		if (argc > 1 && strcmp(argv[1], kernels[i].name) == 0)
			kernel = &kernels[i];
	if (!kernel || threads < 1 || threads > 64)
		return 2;
	kernel->begin();
	pthread_barrier_init(&all, NULL, (unsigned)threads);
	for (int i = 0; i < threads; i++)
		pthread_create(&t[i], NULL, thread, (void *)(intptr_t)i);
	for (int i = 0; i < threads; i++)
		pthread_join(t[i], NULL);
	printf("%s %.0f\n", kernel->name, sum);
	return 0;
}
