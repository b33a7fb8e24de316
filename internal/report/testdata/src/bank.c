#include <pthread.h>

struct account { pthread_mutex_t m; long cents; };

pthread_mutex_t audit_lock = PTHREAD_MUTEX_INITIALIZER;

void transfer(struct account *from, struct account *to, long cents)
{
	pthread_mutex_lock(&from->m);
	pthread_mutex_lock(&to->m);
	from->cents -= cents;
	to->cents += cents;
	pthread_mutex_unlock(&to->m);
	pthread_mutex_unlock(&from->m);
}

void audit(struct account *a)
{
	pthread_mutex_lock(&audit_lock);
	pthread_mutex_lock(&a->m);
	pthread_mutex_unlock(&a->m);
	pthread_mutex_unlock(&audit_lock);
}
