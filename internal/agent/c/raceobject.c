/* raceobject.c: accesses to objects of synchronisation, which are memory: internal/race/object.go, by the same table. */
#include "race_core.h"

enum { OBJECT_BYTES = 4 };

static void took(struct race_thread *t, uint64_t obj, uint32_t stack)
{
	unsigned i = t->takes++ % LAST_TAKEN;
	t->taken[i].obj = obj;
	t->taken[i].stack = stack;
}

static uint32_t took_at(const struct race_thread *t, uint64_t obj)
{
	for (uint32_t i = 0; i < LAST_TAKEN && i < t->takes; i++) {
		unsigned k = (t->takes - 1 - i) % LAST_TAKEN;
		if (t->taken[k].obj == obj)
			return t->taken[k].stack;
	}
	return 0;
}

static void touch(struct race_thread *t, uint64_t addr, uint32_t kind, uint32_t stack, unsigned how)
{
	if (!stack || !kind || kind > RS_OBJECT_SEM || addr + OBJECT_BYTES < addr || rs_race_object_shared(addr, kind))
		return;
	rs_race_called(t, addr, OBJECT_BYTES, how | RS_RACE_CALLED | RS_RACE_OBJECT, 1ull << 63 | stack, stack);
}

void rs_race_object_access(struct race_thread *t, const uint64_t *w)
{
	switch ((uint8_t)w[0]) {
	case RS_EV_INIT:
		if (!(rs_get_init_flags(w) & (RS_OBJ_FLAG_PSHARED | RS_OBJ_FLAG_NAMED | RS_OBJ_FLAG_STATIC | RS_OBJ_FLAG_LATE)))
			touch(t, rs_get_init_obj(w), rs_get_init_kind(w), rs_get_init_stack(w), RS_RACE_WRITE);
		break;
	case RS_EV_DESTROY:
		if (rs_get_destroy_result(w) == 0)
			touch(t, rs_get_destroy_obj(w), rs_get_destroy_kind(w), rs_get_destroy_stack(w), RS_RACE_WRITE);
		break;
	case RS_EV_ACQUIRE:
		touch(t, rs_get_acquire_obj(w), rs_get_acquire_kind(w), rs_get_acquire_stack(w), RS_RACE_READ);
		took(t, rs_get_acquire_obj(w), rs_get_acquire_stack(w));
		break;
	case RS_EV_RELEASE: touch(t, rs_get_release_obj(w), rs_get_release_kind(w), took_at(t, rs_get_release_obj(w)), RS_RACE_READ); break;
	case RS_EV_COND_SIGNAL: touch(t, rs_get_cond_signal_cond(w), RS_OBJECT_COND, rs_get_cond_signal_stack(w), RS_RACE_READ); break;
	case RS_EV_COND_WAIT: touch(t, rs_get_cond_wait_cond(w), RS_OBJECT_COND, rs_get_cond_wait_stack(w), RS_RACE_READ); break;
	case RS_EV_SEM_POST: touch(t, rs_get_sem_post_obj(w), RS_OBJECT_SEM, rs_get_sem_post_stack(w), RS_RACE_READ); break;
	case RS_EV_SEM_WAIT: touch(t, rs_get_sem_wait_obj(w), RS_OBJECT_SEM, rs_get_sem_wait_stack(w), RS_RACE_READ); break;
	case RS_EV_BARRIER_ARRIVE: touch(t, rs_get_barrier_arrive_obj(w), RS_OBJECT_BARRIER, rs_get_barrier_arrive_stack(w), RS_RACE_READ); break;
	}
}
