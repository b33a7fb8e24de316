/* oldcond.c: conditions of binaries of before glibc 2.3.2. Their pthread_cond_t is smaller; all that glibc's functions of that version do is
 * keep in its first word a condition of today's kind, made at first use. So do these, by the same rules, and pass that condition on, or
 * the mutex would seem to be held through a wait. Libraries without symbol versions get these functions too. */
#include "sync.h"
#include <stdlib.h>

struct old_cond { pthread_cond_t *cond; };

/* As glibc: NULL means ENOMEM, and the memory is the program's, given back by its pthread_cond_destroy. */
static pthread_cond_t *inner(struct old_cond *c)
{
	pthread_cond_t *seen = __atomic_load_n(&c->cond, __ATOMIC_ACQUIRE);
	if (seen)
		return seen;
	pthread_cond_t *made = calloc(1, sizeof *made);
	if (!made || __atomic_compare_exchange_n(&c->cond, &seen, made, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
		return made;
	free(made);
	return seen;
}

#define OLD(name, params, ours, args) \
	int rs_old_##name params; \
	RS_EXPORT int rs_old_##name params \
	{ \
		if (!rs_self()) \
			return REAL(old_##name) args; \
		pthread_cond_t *in = inner(c); \
		return in ? ours : ENOMEM; \
	} \
	RS_OLD(rs_old_##name, pthread_##name, "GLIBC_2.2.5")

OLD(cond_wait, (struct old_cond *c, pthread_mutex_t *m), rs_cond_wait(in, m, -1, NULL, RS_SITE), (c, m));
OLD(cond_timedwait, (struct old_cond *c, pthread_mutex_t *m, const struct timespec *t), rs_cond_wait(in, m, -1, t, RS_SITE), (c, m, t));
OLD(cond_signal, (struct old_cond *c), rs_cond_signal(in, false, RS_SITE), (c));
OLD(cond_broadcast, (struct old_cond *c), rs_cond_signal(in, true, RS_SITE), (c));

/* The condition itself begins with its first use, and ends with the block of memory it is in. */
int rs_old_cond_init(struct old_cond *c, const pthread_condattr_t *attr);
RS_EXPORT int rs_old_cond_init(struct old_cond *c, const pthread_condattr_t *attr) { return REAL(old_cond_init)(c, attr); }
RS_OLD(rs_old_cond_init, pthread_cond_init, "GLIBC_2.2.5");
int rs_old_cond_destroy(struct old_cond *c);
RS_EXPORT int rs_old_cond_destroy(struct old_cond *c) { return REAL(old_cond_destroy)(c); }
RS_OLD(rs_old_cond_destroy, pthread_cond_destroy, "GLIBC_2.2.5");
