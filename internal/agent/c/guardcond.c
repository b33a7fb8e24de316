/* guardcond.c: by which conditions a program comes to a call that does not come back, where steps to an abort may begin. guardstep.h. General registers only.
 *
 * Such a call mostly lies in a part of its function that compilers put elsewhere (.text.unlikely), of which neither symbols nor unwind tables say whose it is. So jumps that lead there are looked for in all code around it, by their bytes. */
#include "guardstep.h"
#include "pointer.h"

enum { NEAR = 96 /* bytes of straight code before the call */, FAR = 16 << 20, LONGEST = 15 };

/* Does what begins at `from` come to `to`, without another way in or out? */
static bool is_straight(uint64_t from, uint64_t to)
{
	uint8_t code[NEAR + LONGEST];
	uint64_t n = to - from;
	if (from > to || n > NEAR || (n && !rs_guard_step_read(from, code, n)))
		return false;
	for (uint64_t at = 0; at < n;) {
		struct rs_instruction in;
		if (!rs_decode(&in, code + at, n - at) || rs_pointer_jumps(&in) || (in.map == 0 && (in.op == 0xe9 || in.op == 0xeb || in.op == 0xc3 || in.op == 0xc2)))
			return false;
		at += in.length;
	}
	return true;
}

/* The comparison that the jump goes by; 0: it is not known. */
static uint64_t comparison(struct rs_thread *t, uint64_t jump)
{
	uint8_t code[512];
	uint64_t at = rs_walk_beginning(t, jump), found = 0;
	if (!at || jump - at > 64 << 10)
		return 0;
	while (at < jump) {
		uint64_t n = jump - at < sizeof code ? jump - at : sizeof code, k = 0;
		if (!rs_guard_step_read(at, code, n))
			return 0;
		while (k < n && (n - k >= LONGEST || at + n == jump)) {
			struct rs_instruction in;
			if (!rs_decode(&in, code + k, n - k))
				return 0;
			if (!rs_pointer_keeps_flags(&in))
				found = at + k;
			k += in.length;
		}
		at += k;
	}
	return at == jump ? found : 0;
}

struct search { struct rs_thread *t; uint64_t call, *at; unsigned n, most; };

static void look_at(struct search *s, uint64_t jump, unsigned length, int64_t leads)
{
	uint64_t behind = jump + length, to = behind + (uint64_t)leads;
	if ((to - s->call + NEAR > NEAR || !is_straight(to, s->call)) && (behind - s->call + NEAR > NEAR || !is_straight(behind, s->call)))
		return;
	uint64_t found = s->n < s->most ? comparison(s->t, jump) : 0;
	for (unsigned i = 0; found && i < s->n; i++)
		found = s->at[i] == found ? 0 : found;
	if (found)
		s->at[s->n++] = found;
}

unsigned rs_guard_step_conditions(struct rs_thread *t, uint64_t call, uint64_t *at, unsigned most)
{
	enum { SHORT = 2, LONG = 6, SHORT_REACH = 128 + NEAR };
	struct search s = {.t = t, .call = call, .at = at, .most = most};
	static uint8_t code[RS_PAGE + LONG]; /* of the one thread that aborts first */
	/* Back from the call, then on from it, as far as there is code. */
	for (unsigned way = 0; t && way < 2; way++)
		for (uint64_t piece = way ? call & -(uint64_t)RS_PAGE : (call & -(uint64_t)RS_PAGE) - RS_PAGE, n = RS_PAGE; (way ? piece - call : call - piece) + RS_PAGE < FAR; piece = way ? piece + n : piece - n) {
			if (!rs_guard_step_read(piece, code, n))
				break;
			/* What reaches into the next page. */
			unsigned over = rs_guard_step_read(piece + n, code + n, LONG) ? LONG : 0;
			for (uint64_t i = 0; i + SHORT <= n + over && i < n; i++) {
				uint64_t pc = piece + i;
				if ((code[i] & 0xf0) == 0x70 && pc - call + SHORT_REACH < 2 * SHORT_REACH)
					look_at(&s, pc, SHORT, (int8_t)code[i + 1]);
				if (code[i] == 0x0f && (code[i + 1] & 0xf0) == 0x80 && i + LONG <= n + over) {
					int32_t leads;
					rs_os_copy(&leads, code + i + 2, sizeof leads);
					look_at(&s, pc, LONG, leads);
				}
			}
		}
	return s.n;
}
