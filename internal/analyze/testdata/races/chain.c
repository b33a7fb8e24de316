// Memory indirect, along a list: the last of a chain of tables, as in mysql-791.
#include "race.h"

struct table {
	struct table *next;
	long rows;
};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct table *tables;

static void *inserts(void *p)
{
	long own[8] = {0};
	for (int i = 0; i < ROUNDS; i++) {
		work(own, 5);
		LOCK(&lock);
		struct table *t = tables;
		while (t->next)
			t = t->next;
		t->rows++; // race
		UNLOCK(&lock);
	}
	return p;
}

void chain(void)
{
	struct table all[4] = {{0}};
	for (int i = 0; i + 1 < 4; i++)
		all[i].next = &all[i + 1];
	tables = all;
	both(inserts, inserts, 0);
}
