/* racepoint.c: a cell's points as a list, the thread's `points`, and back; which bytes of a cell are of places. Two points lie in the cell, others in nodes.
 * Ground rules: the cell is locked meanwhile (race_core.h); others may read it all the same. */
#include "race_core.h"

unsigned rs_race_load_points(struct race_thread *t, uint64_t number, const struct race_cell *c)
{
	unsigned n = 0;
	for (unsigned k = 0; k < 2; k++)
		if (c->e[k])
			t->points[n++] = (struct race_point){c->e[k], c->site[k], c->info[k]};
	struct race_pool *p = race_nodes_of(number);
	for (uint32_t i = c->more; i;) {
		const struct race_node *o = race_at(p, i);
		for (unsigned k = 0; k < 3 && n < POINTS; k++)
			if (o->e[k])
				t->points[n++] = (struct race_point){o->e[k], o->site[k], o->info[k]};
		i = o->next;
	}
	return n;
}

void rs_race_store_points(struct race_thread *t, uint64_t number, struct race_cell *c, unsigned n)
{
	struct race_pool *p = race_nodes_of(number);
	unsigned k = 0, i = 0;
	for (; k < n && i < 2; k++)
		if (race_bytes(&t->points[k])) {
			__atomic_store_n(&c->e[i], t->points[k].e, __ATOMIC_RELEASE);
			c->site[i] = t->points[k].site;
			__atomic_store_n(&c->info[i++], t->points[k].info, __ATOMIC_RELEASE);
		}
	for (; i < 2; i++)
		c->e[i] = 0;
	uint32_t *link = &c->more;
	while (k < n) {
		if (!race_bytes(&t->points[k])) {
			k++;
			continue;
		}
		if (!*link && !(*link = rs_race_get(p))) {
			rs_race_amnesty(); /* some are forgotten */
			return;
		}
		struct race_node *o = race_at(p, *link);
		for (i = 0; i < 3; i++) {
			while (k < n && !race_bytes(&t->points[k]))
				k++;
			o->e[i] = k < n ? t->points[k].e : 0;
			if (k < n) {
				o->site[i] = t->points[k].site;
				o->info[i] = t->points[k++].info;
			}
		}
		link = &o->next;
	}
	uint32_t rest = *link;
	*link = 0;
	rs_race_free_nodes(p, rest);
}

unsigned rs_race_mark(struct race_thread *t, uint64_t cell, uint8_t mask, uint32_t *slots, unsigned n)
{
	struct race_cell *c;
	unsigned found = 0;
	if (!rs_race_locked_cell(cell, true, &c)) {
		rs_race_amnesty();
		return 0;
	}
	c->places |= mask;
	unsigned points = slots ? rs_race_load_points(t, cell, c) : 0;
	for (unsigned i = 0; i < points && slots; i++) {
		struct race_point *p = &t->points[i];
		unsigned kind = race_kind(p->info);
		if ((race_bytes(p) & mask) && (kind == POINT_LAST_MOV || (kind == POINT_WRITE && p->info & INFO_MOV))) {
			if (race_knows(t, p->e))
				continue; /* and so its own clock has it */
			if (found == n) {
				rs_race_amnesty();
				break;
			}
			slots[found++] = race_slot(p->e);
		}
	}
	race_unlock_cell(c);
	return found;
}

void rs_race_unmark(uint64_t cell)
{
	struct race_cell *c;
	if (!rs_race_locked_cell(cell, false, &c))
		return;
	c->places = rs_race_place_bytes(cell, false);
	race_unlock_cell(c);
}
