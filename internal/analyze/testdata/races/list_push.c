// Register indirect: two threads push to one list.
#include "race.h"

struct node {
	struct node *next;
	long value;
};
struct list {
	pthread_mutex_t lock;
	struct node *head;
	struct node nodes[2][ROUNDS];
	int given;
};

static void *pushes(void *p, int mine)
{
	struct list *l = p;
	long own[8] = {0};
	for (int i = 0; i < ROUNDS; i++) {
		struct node *n = &l->nodes[mine][i];
		n->value = work(own, 5);
		LOCK(&l->lock);
		n->next = l->head; // race
		l->head = n; // race
		UNLOCK(&l->lock);
	}
	return p;
}

static void *pushes_first(void *p) { return pushes(p, 0); }
static void *pushes_second(void *p) { return pushes(p, 1); }

void list_push(void)
{
	struct list *l = calloc(1, sizeof *l);
	both(pushes_first, pushes_second, l);
	free(l);
}
