// What threads share work out by (share_…), and counts that are none (none_…).
#include <atomic>

#define OUT extern "C" __attribute__((noinline))

static std::atomic<int> next;
struct ring { std::atomic<unsigned long> head; long slot[64]; };
struct object { std::atomic<int> references; void (*gone)(object *); };
extern "C" void use(long) __attribute__((noinline));
void use(long n) { asm volatile("" ::"r"(n)); }

OUT void share_loop(long *out, int n)
{
	for (int i; (i = next.fetch_add(1)) < n;)
		out[i] = i;
}
OUT void share_looks(long *out, int n) // what it looks at is in order, too
{
	while (next.load() < n) {
		int i = next++;
		if (i < n)
			out[i] = i;
	}
}
OUT void share_put(ring *r, long v) { r->slot[r->head.fetch_add(1) & 63] = v; }
OUT unsigned long share_ticket(ring *r) { return r->head++; }
OUT void share_called(ring *r) { use(++r->head); }

OUT void share_passed() // the result is passed on where it lies
{
	for (int i; (i = next.fetch_add(8)) < 60000;)
		use(i);
}

struct part { long end; std::atomic<long> next; };
struct parts { part *of; int n; };
OUT long share_steal(parts *p) // from who is least far; what is looked at is in order, too
{
	int least = -1;
	long min = 1L << 40;
	for (int i = 0; i < p->n; i++)
		if (long n = p->of[i].next.load(std::memory_order_relaxed); n < min)
			min = n, least = i;
	return p->of[least].next.fetch_add(p->n);
}

OUT void none_count() { next++; }
OUT void none_take(object *o) { o->references.fetch_add(1, std::memory_order_relaxed); }
OUT void none_release(object *o)
{
	if (o->references.fetch_sub(1) == 1)
		o->gone(o);
}
OUT void none_first(object *o, long a, long b, long c) // what the registers of arguments hold by chance is no use
{
	if (o->references++ == 0)
		use(a + b + c);
}
OUT int none_last(object *o) { return --o->references == 0; }

int main(int, char **v)
{
	static long out[4];
	static ring r;
	static object o{{5}, [](object *) {}};
	share_loop(out, 4), share_looks(out, 4), share_put(&r, 1), share_called(&r), share_passed();
	static part two[2];
	static parts all{two, 2};
	share_steal(&all);
	none_count(), none_take(&o), none_release(&o), none_first(&o, 1, 2, 3);
	return (int)share_ticket(&r) + none_last(&o) + (v != nullptr);
}
