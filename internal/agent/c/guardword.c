/* guardword.c: where on the stack return addresses lie, and which calls wrote them: where steps to a crash may begin. guardstep.h. General registers only. */
#include "guardstep.h"
#include "patch.h"
#include <sys/uio.h>

bool rs_guard_step_behind_call(uint64_t to)
{
	enum { SHORTEST = 2, LONGEST = 7 };
	uint8_t code[LONGEST];
	struct rs_instruction in;
	if (to < LONGEST || !rs_guard_step_read(to - LONGEST, code, sizeof code))
		return false;
	for (unsigned n = SHORTEST; n <= LONGEST; n++)
		if (rs_decode(&in, code + LONGEST - n, n) && in.length == n && rs_guard_step_calls(&in))
			return true;
	return false;
}

/* The call that ends there, or (last) the last one before, found from where an instruction of the function begins, one by one. What patches have changed is not what it was. */
static uint64_t call_from_beginning(struct rs_thread *t, uint64_t to, bool last)
{
	enum { FAR = 64 << 10, LONGEST = 15 };
	uint8_t code[512];
	uint64_t at = !t ? 0 : last ? rs_walk_function(t, to) : rs_walk_beginning(t, to - 1), from = 0, n = 0, found = 0;
	if (!at || to - at > FAR)
		return 0;
	while (at < to) {
		struct rs_instruction in;
		if (!n || (at - from + LONGEST > n && from + n < to)) {
			from = at;
			n = to - at < sizeof code ? to - at : sizeof code;
			if (!rs_guard_step_read(from, code, n))
				break;
		}
		if (!rs_decode(&in, code + (at - from), n - (at - from)))
			break;
		uint64_t leads = in.map == 0 && in.op == 0xe9 ? rs_decode_target(&in, at) : 0;
		if (leads && rs_patch_pc(leads) != leads)
			break;
		if (rs_guard_step_calls(&in) && (last || at + in.length == to))
			found = at;
		at += in.length;
	}
	return found;
}

uint64_t rs_guard_step_call_before(struct rs_thread *t, uint64_t to, bool guess)
{
	enum { SHORTEST = 2, LONGEST = 9 };
	uint8_t code[LONGEST];
	struct rs_instruction in;
	uint64_t is = 0;
	unsigned ways = 0;
	if (to < LONGEST || !rs_guard_step_read(to - LONGEST, code, sizeof code))
		return 0;
	for (unsigned n = SHORTEST; n <= LONGEST; n++)
		if (rs_decode(&in, code + LONGEST - n, n) && in.length == n && rs_guard_step_calls(&in)) {
			is = to - n;
			ways++;
		}
	return ways == 1 && !guess ? is : ways ? call_from_beginning(t, to, false) : 0;
}

/* Words of the stack from `at` up, a piece at a time. */
struct words { uint64_t from, n, word[512]; };

static bool word_at(struct words *w, uint64_t at, uint64_t *word)
{
	if (w->n == 0 || at - w->from >= 8 * w->n) {
		struct iovec local = {w->word, sizeof w->word}, remote = {(void *)at, sizeof w->word};
		long r = RS_SYS6(SYS_process_vm_readv, rs_os_tid(), &local, 1, &remote, 1, 0);
		w->from = at;
		w->n = r < 8 ? 0 : (uint64_t)r / 8;
		if (!w->n)
			return false;
	}
	*word = w->word[(at - w->from) / 8];
	return true;
}

unsigned rs_guard_step_words(struct rs_thread *t, uint64_t rsp, const uint64_t *pcs, unsigned n, struct rs_guard_step_word *word)
{
	enum { FAR = 256 << 10, NEAR = 4 << 10 };
	struct words w;
	w.n = 0;
	uint64_t at = rsp & -8ull, hi = at + FAR, is = 0;
	unsigned found = 0;
	word[0] = (struct rs_guard_step_word){at - 8, rs_guard_step_read(at - 8, &is, sizeof is) ? rs_guard_step_call_before(t, is, true) : 0, 0};
	/* It may lie there no more: what is below the stack pointer is cleared behind calls of the kernel's and acts of synchronisation. */
	if (!word[found++].call && n && (word[0].call = call_from_beginning(t, pcs[0], true))) {
		int32_t here = rs_walk_offset(t, pcs[0]), there = rs_walk_offset(t, word[0].call);
		word[0].at += here && there ? (uint64_t)(int64_t)(here - there) : 0;
	}
	for (unsigned i = 1; i < n && found < RS_GUARD_STEP_WORDS; i++) {
		const uint64_t begin = t ? rs_walk_function(t, pcs[i - 1] - (i > 1)) : 0;
		bool called = false; /* by a function of ours, of which walks say nothing: a thread's or a handler's beginning */
		for (; at < hi && word_at(&w, at, &is) && is != pcs[i]; at += 8)
			if (!called && rs_guard_step_ours(is) && rs_guard_step_behind_call(is)) {
				called = true;
				word[found++] = (struct rs_guard_step_word){at, 0, begin};
			}
		if (at >= hi || is != pcs[i] || found == RS_GUARD_STEP_WORDS)
			break;
		word[found++] = (struct rs_guard_step_word){at, rs_guard_step_call_before(t, is, false), called ? 0 : begin};
		at += 8;
	}
	for (uint64_t end = at + NEAR; n < 2 && found < RS_GUARD_STEP_WORDS && at < end && word_at(&w, at, &is); at += 8)
		if (rs_guard_step_behind_call(is))
			word[found++] = (struct rs_guard_step_word){at, rs_guard_step_call_before(t, is, true), 0};
	return found;
}
