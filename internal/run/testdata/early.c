/* Each thread crashes as soon as it is there, by a divisor that was read from a text and copied, while more of them are made. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

struct settings { int threads, chunk; };
struct job { const struct settings *settings; int items, each; };

static struct settings *read_settings(const char *text)
{
	struct settings *s = calloc(1, sizeof *s);
	int threads, chunk;
	if (sscanf(text, "%d %d", &threads, &chunk) == 2)
		s->threads = threads, s->chunk = chunk;
	return s;
}

static void *work(void *arg)
{
	struct job *j = arg;
	j->each = j->items / j->settings->chunk;
	return NULL;
}

int main(void)
{
	const struct settings *s = read_settings("3 0");
	pthread_t thread[8];
	struct job job[8];
	for (int i = 0; i < s->threads; i++) {
		job[i] = (struct job){s, 100 * i, 0};
		pthread_create(&thread[i], NULL, work, &job[i]);
	}
	for (int i = 0; i < s->threads; i++)
		pthread_join(thread[i], NULL);
	return job[0].each;
}
