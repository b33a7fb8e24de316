/* checkframe.c: frames of the arena, and which page's content lies in which. See checkframe.h, and guard.h for the ground rules. */
#include "checkframe.h"
#include <errno.h>

/* The frame of a page by its address: 0, or a number. A table for each GiB, made when the first of its pages is kept. Most of what a process has mapped has no content: `in` says of how many pages there are frames, BLOCK at a
 * time, so that the rest is not gone through at each checkpoint. */
enum { TABLES = 1 << 17, TABLE_PAGES = 1 << 18, BLOCK = 1 << 9, CHUNK_FRAMES = 1 << 14, CHUNKS = 1 << 16 };
/* So many new ones are made present at once, a sixteenth of those that there are, within these bounds: a fault for each costs as much as its copy, and a small process has few. */
enum { LEAST = 1 << 3, AT_ONCE = 1 << 6 };
/* After so many checkpoints what was free through all of them is given back, by so many calls at each and not more: all threads stand meanwhile. */
enum { KEEPS = 8, CALLS = 64 };
enum { SPANS = TABLE_PAGES / 64 };
struct table { uint32_t frame[TABLE_PAGES]; uint16_t in[TABLE_PAGES / BLOCK]; bool mark[SPANS]; };
static struct {
	struct table *table[TABLES];
	char *chunk[CHUNKS];
	/* Those that are free, as a stack: its place i is [i / CHUNK_FRAMES][i % CHUNK_FRAMES]. The lowest `gone` have been given back to the kernel. */
	uint32_t *stack[CHUNKS];
	uint32_t made, ready, free, gone;
	uint32_t keeps, low, due;  /* low: the fewest that were free in these; due: so many of the lowest are to be given back */
	uint64_t count;
} *frames; /* never changes: static memory is the program's, and goes back with it */

long rs_frames_begin(void)
{
	frames = rs_guard_map(RS_ARENA_KEPT, sizeof *frames);
	return frames ? 0 : -ENOMEM;
}

uint64_t rs_frames_count(void) { return frames->count; }

char *rs_frame(uint32_t f) { return frames->chunk[f / CHUNK_FRAMES] + (size_t)(f % CHUNK_FRAMES) * RS_PAGE; }

static struct table **table_of(uint64_t page) { return &frames->table[(page >> 30) % TABLES]; }
static uint64_t place_of(uint64_t page) { return page >> 12 & (TABLE_PAGES - 1); }

uint32_t *rs_frames_of(uint64_t page, uint64_t *pages)
{
	struct table *t = *table_of(page);
	uint64_t i = place_of(page);
	*pages = t ? BLOCK - i % BLOCK : TABLE_PAGES - i;
	return t && t->in[i / BLOCK] ? t->frame + i : NULL;
}

bool rs_frames_marked(uint64_t at, uint64_t hi, uint64_t *end)
{
	const struct table *t = *table_of(at);
	uint64_t i = at / RS_SPAN % SPANS;
	bool mark = t && t->mark[i];
	for (; at < hi; at = (at / RS_SPAN + 1) * RS_SPAN, i++) {
		if (i == SPANS) {
			t = *table_of(at);
			i = 0;
		}
		if (!t) {
			if (mark)
				break;
			at |= (1ull << 30) - 1; /* none of this GiB is */
			i = SPANS - 1;
		} else if (t->mark[i] != mark)
			break;
	}
	*end = at < hi ? at : hi;
	return mark;
}

void rs_frames_mark(uint64_t at, bool mark)
{
	struct table *t = *table_of(at);
	if (t)
		t->mark[at / RS_SPAN % SPANS] = mark;
}

static uint32_t *free_place(uint32_t i) { return &frames->stack[i / CHUNK_FRAMES][i % CHUNK_FRAMES]; }

static uint32_t new_frame(void)
{
	if (frames->free) {
		uint32_t i = --frames->free;
		if (frames->low > i)
			frames->low = i;
		if (frames->due > i)
			frames->due = i;
		if (frames->gone > i)
			frames->gone = i;
		return *free_place(i);
	}
	if (frames->made == 0)
		frames->made = frames->ready = 1;
	uint32_t c = frames->made / CHUNK_FRAMES;
	if (c == CHUNKS)
		return 0;
	if (!frames->stack[c] && !(frames->stack[c] = rs_guard_map(RS_ARENA_KEPT, CHUNK_FRAMES * sizeof **frames->stack)))
		return 0;
	if (!frames->chunk[c] && !(frames->chunk[c] = rs_guard_map(RS_ARENA_KEPT, CHUNK_FRAMES * RS_PAGE)))
		return 0;
	if (frames->made == frames->ready) {
		uint32_t n = frames->made / 16, left = CHUNK_FRAMES - frames->made % CHUNK_FRAMES;
		n = n < LEAST ? LEAST : n > AT_ONCE ? AT_ONCE : n;
		n = n < left ? n : left;
		RS_SYS3(SYS_madvise, rs_frame(frames->made), n * RS_PAGE, 23 /* MADV_POPULATE_WRITE */);
		frames->ready += n;
	}
	return frames->made++;
}

char *rs_frame_make(uint64_t page)
{
	struct table **t = table_of(page);
	uint64_t i = place_of(page);
	if (!*t && !(*t = rs_guard_map(RS_ARENA_KEPT, sizeof **t)))
		return NULL;
	uint32_t *f = &(*t)->frame[i];
	if (!*f) {
		if (!(*f = new_frame()))
			return NULL;
		(*t)->in[i / BLOCK]++;
		frames->count++;
	}
	return rs_frame(*f);
}

void rs_frames_drop(uint64_t lo, uint64_t hi)
{
	uint64_t run;
	for (uint64_t p = lo; p < hi; p += run << 12) {
		uint32_t *f = rs_frames_of(p, &run);
		if (run > (hi - p) >> 12)
			run = (hi - p) >> 12;
		for (uint64_t i = 0; f && i < run; i++)
			if (f[i]) {
				*free_place(frames->free++) = f[i];
				f[i] = 0;
				(*table_of(p))->in[place_of(p) / BLOCK]--;
				frames->count--;
			}
	}
}

/* Of what is dropped at once the frames are mostly neighbours, as they were made so: one call for a run of them, in either direction. */
static void give_back(uint32_t end)
{
	uint32_t first = *free_place(frames->gone), last = first;
	int32_t step = 0;
	while (++frames->gone < end) {
		int32_t by = (int32_t)(*free_place(frames->gone) - last);
		if ((by != 1 && by != -1) || (step && by != step) || (last + (uint32_t)by) / CHUNK_FRAMES != first / CHUNK_FRAMES)
			break;
		step = by;
		last += (uint32_t)by;
	}
	uint32_t lo = step < 0 ? last : first, hi = step < 0 ? first : last;
	RS_SYS3(SYS_madvise, rs_frame(lo), (hi - lo + 1) * RS_PAGE, 4 /* MADV_DONTNEED */);
}

void rs_frames_rest(void)
{
	if (++frames->keeps >= KEEPS) {
		frames->due = frames->low;
		frames->low = frames->free;
		frames->keeps = 0;
	}
	for (unsigned i = 0; i < CALLS && frames->gone < frames->due; i++)
		give_back(frames->due);
}
