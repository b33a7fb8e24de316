/* checkmap.h: the map of the process as checkpoints keep it. Ground rules: guard.h. */
#ifndef RS_CHECKMAP_H
#define RS_CHECKMAP_H
#include "guard.h"

/* What a map has room for: ranges, and bytes of paths. */
enum { MAX_RANGES = 1 << 16, PATHS = 4 << 20 };
enum { READ = 1, WRITE = 2, EXEC = 4 };

struct range {
	uint64_t lo, hi;
	uint64_t inode, offset;    /* of lo, in the file */
	uint32_t device, path;     /* 0: no file; path: where in `paths` */
	uint8_t prot;
	bool shared, special, stack, heap, registered;
};

/* Ascending. */
struct map { struct range *range; uint32_t count; uint32_t path_bytes; char *paths; };

static inline bool rs_map_begins(const char *s, const char *with)
{
	while (*with)
		if (*s++ != *with++)
			return false;
	return true;
}

/* Reads /proc/self/maps by a descriptor of /proc/self; text: room for all of it. Without what is the agent's own and stays. 0, or a negative errno: -E2BIG where there are more ranges, or more text, than there is room. */
long rs_map_read(struct map *m, int proc, char *text, size_t bytes) RS_HIDDEN;
#endif
