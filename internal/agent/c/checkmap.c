/* checkmap.c: /proc/self/maps as a list of ranges (checkmap.h). */
#include "checkmap.h"
#include "guardthread.h"
#include <errno.h>

static const char *hex(const char *p, uint64_t *v)
{
	*v = 0;
	for (;; p++) {
		if (*p >= '0' && *p <= '9')
			*v = *v << 4 | (uint64_t)(*p - '0');
		else if (*p >= 'a' && *p <= 'f')
			*v = *v << 4 | (uint64_t)(*p - 'a' + 10);
		else
			return p;
	}
}

static void add(struct map *m, const struct range *r, uint64_t lo, uint64_t hi)
{
	if (lo >= hi || m->count == MAX_RANGES)
		return;
	struct range *n = &m->range[m->count++];
	rs_os_copy(n, r, sizeof *n);
	n->lo = lo;
	n->hi = hi;
	n->offset += n->inode ? lo - r->lo : 0;
}

/* One line: "lo-hi rwxp offset major:minor inode   path". Mappings of ours that live on, and the kernel's, are not the program's. */
static const char *parse(struct map *m, const char *p)
{
	struct range r = {0};
	uint64_t major, minor;
	p = hex(p, &r.lo);
	p = hex(p + 1, &r.hi) + 1;
	r.prot = (uint8_t)((p[0] == 'r' ? READ : 0) | (p[1] == 'w' ? WRITE : 0) | (p[2] == 'x' ? EXEC : 0));
	r.shared = p[3] == 's';
	p = hex(p + 5, &r.offset);
	p = hex(p + 1, &major);
	p = hex(p + 1, &minor) + 1;
	r.device = (uint32_t)(major << 20 | minor);
	while (*p >= '0' && *p <= '9')
		r.inode = r.inode * 10 + (uint64_t)(*p++ - '0');
	while (*p == ' ')
		p++;
	const char *path = p;
	while (*p && *p != '\n')
		p++;
	r.stack = rs_map_begins(path, "[stack]");
	r.heap = rs_map_begins(path, "[heap]");
	r.special = (*path == '[' && !r.stack && !r.heap && !rs_map_begins(path, "[anon")) || rs_map_begins(path, "/memfd:ripstop");
	if (r.inode) {
		size_t n = (size_t)(p - path);
		if (m->path_bytes + n + 1 < PATHS) {
			r.path = m->path_bytes;
			rs_os_copy(m->paths + r.path, path, n);
			m->paths[r.path + n] = 0;
			m->path_bytes += (uint32_t)n + 1;
		}
	} else
		r.offset = 0;
	uint64_t lo = rs_guard_lo(), hi = rs_guard_hi();
	add(m, &r, r.lo, r.hi < lo ? r.hi : lo);
	add(m, &r, r.lo > hi ? r.lo : hi, r.hi);
	return *p ? p + 1 : p;
}

long rs_map_read(struct map *m, int proc, char *text, size_t bytes)
{
	long fd = rs_guard_open(proc, "maps", 0), n = 0;
	size_t have = 0;
	if (fd < 0)
		return fd;
	while (have < bytes - 1 && (n = RS_SYS3(SYS_read, fd, text + have, bytes - 1 - have)) > 0)
		have += (size_t)n;
	RS_SYS1(SYS_close, fd);
	if (n < 0 || have == 0)
		return n < 0 ? n : -ESRCH;
	if (have == bytes - 1)
		return -E2BIG;
	text[have] = 0;
	m->count = m->path_bytes = 0;
	for (const char *p = text; *p;)
		p = parse(m, p);
	return m->count == MAX_RANGES ? -E2BIG : 0;
}
