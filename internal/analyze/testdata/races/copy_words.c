// Register indirect: one thread fills a buffer while another sums it up, as in apache-45605.
#include "race.h"

struct buffer {
	pthread_mutex_t lock;
	long words[16];
};

static void *fills(void *p)
{
	struct buffer *b = p;
	long own[8] = {0};
	for (int i = 0; i < ROUNDS; i++) {
		long v = work(own, 3);
		LOCK(&b->lock);
		for (int k = 0; k < 4; k++)
			b->words[(i + k) & 15] = v + k; // race
		UNLOCK(&b->lock);
	}
	return p;
}

static void *sums(void *p)
{
	struct buffer *b = p;
	long own[8] = {0}, sum = 0;
	for (int i = 0; i < ROUNDS; i++) {
		sum += work(own, 3);
		LOCK(&b->lock);
		for (int k = 0; k < 4; k++)
			sum += b->words[(i + k) & 15]; // race
		UNLOCK(&b->lock);
	}
	return (void *)(sum & 1);
}

void copy_words(void)
{
	struct buffer *b = calloc(1, sizeof *b);
	both(fills, sums, b);
	free(b);
}
