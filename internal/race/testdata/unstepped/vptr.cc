// What destructors store to the vptr, while other threads call virtual functions: they store their own class's first of all, which is there already if no derived class's destructor ran. A destructor that only then waits for
// the thread that calls was told as a race of two movs.
#include "../run.h"
#include <new>

// A thread that calls virtual functions until its object's destructor has come to its body, and is joined there.
struct caller {
	pthread_t thread;
	int stop = 0;
	static bool stopped(int *stop) { return __atomic_load_n(stop, __ATOMIC_SEQ_CST); }
	void finish()
	{
		__atomic_store_n(&stop, 1, __ATOMIC_SEQ_CST);
		pthread_join(thread, 0);
	}
};

// One class, which joins in its destructor.
struct alone : caller {
	alone() { pthread_create(&thread, 0, calls, this); }
	__attribute__((noinline)) virtual void call() { use(this); }
	__attribute__((noinline)) virtual ~alone() { finish(); }
	static void *calls(void *p)
	{
		alone *a = (alone *)p;
		do
			a->call();
		while (!stopped(&a->stop));
		return p;
	}
};

// A derived class, which waits; and one of two bases, whose vptrs lie side by side and are stored together.
struct first {
	__attribute__((noinline)) virtual void one() { use(this); }
	virtual ~first() {}
};
struct second {
	__attribute__((noinline)) virtual void two() { use(this); }
	virtual ~second() {}
};
struct third {
	__attribute__((noinline)) virtual void three() { use(this); }
	virtual ~third() {}
};
struct waits : first {
	caller c;
	void start() { pthread_create(&c.thread, 0, calls, this); }
	void one() override { use(&c); }
	__attribute__((noinline)) ~waits() override { c.finish(); }
	static void *calls(void *p)
	{
		waits *w = (waits *)p;
		first *f = w;
		do
			f->one();
		while (!caller::stopped(&w->c.stop));
		return p;
	}
};
struct waits_with_two : first, second, third {
	caller c;
	void start() { pthread_create(&c.thread, 0, calls, this); }
	void one() override { use(&c); }
	void two() override { use(&c); }
	__attribute__((noinline)) ~waits_with_two() override { c.finish(); }
	static void *calls(void *p)
	{
		waits_with_two *w = (waits_with_two *)p;
		first *f = w;
		second *s = w;
		third *t = w;
		do {
			f->one();
			s->two();
			t->three();
		} while (!caller::stopped(&w->c.stop));
		return p;
	}
};

// Constructed again in place, as it was, while another thread calls.
struct plain {
	__attribute__((noinline)) virtual void call() { use(this); }
};
static plain again;
static void *calls_plain(void *p)
{
	plain *volatile a = &again;
	a->call();
	return p;
}
static void *constructs_plain(void *p)
{
	new (&again) plain;
	return p;
}

// Wrongly: the base's destructor waits, when the vptr has become its own.
struct base {
	__attribute__((noinline)) virtual void call() { use(this); }
	__attribute__((noinline)) virtual ~base() { unseen_wait(); } // race-mov base
};
struct derived : base {
	void call() override { use(&use_it); }
	int use_it = 0;
	__attribute__((noinline)) ~derived() override {}
};
static base *volatile object;
static void *calls_base(void *p)
{
	object->call(); // race-mov base
	unseen_done();
	return p;
}
static void *destroys_derived(void *p)
{
	((derived *)object)->derived::~derived();
	return p;
}

// Of the second of two bases alone.
struct other_base {
	__attribute__((noinline)) virtual void call() { use(this); }
	__attribute__((noinline)) virtual ~other_base() { unseen_wait(); } // race-mov other
};
struct of_two : first, other_base {
	void call() override { use(&use_it); }
	int use_it = 0;
	__attribute__((noinline)) ~of_two() override {}
};
static of_two *volatile two;
static void *calls_other(void *p)
{
	other_base *volatile o = two;
	o->call(); // race-mov other
	unseen_done();
	return p;
}
static void *destroys_two(void *p)
{
	two->of_two::~of_two();
	return p;
}

// Both at once are stored together.
struct left { // race-any replaced
	__attribute__((noinline)) virtual void call() { use(this); }
};
struct right { // race-any replaced
	__attribute__((noinline)) virtual void call_right() { use(this); }
};
struct pair : left, right { // race-any replaced
	void call() override { use(this); }
	void call_right() override { use(this); }
};
struct pair_below : pair {
	int x = 0;
	void call() override { use(&x); }
	void call_right() override { use(&x); }
};
static pair *volatile replaced;
static void *calls_pair(void *p)
{
	right *volatile r = replaced;
	r->call_right(); // race-any replaced
	unseen_done();
	return p;
}
__attribute__((noinline)) static void replace(void *at)
{
	new (at) pair; // race-any replaced
}
static void *replaces(void *p)
{
	void *at = replaced;
	unseen_wait();
	replace(at);
	return p;
}

int main()
{
	for (int i = 0; i < 3; i++) {
		delete new alone;
		waits *w = new waits;
		w->start();
		delete w;
		waits_with_two *t = new waits_with_two;
		t->start();
		delete t;
	}
	both(calls_plain, constructs_plain);
	object = new derived;
	unseen(calls_base, destroys_derived);
	two = new of_two;
	unseen(calls_other, destroys_two);
	replaced = new pair_below;
	unseen(calls_pair, replaces);
	puts("done");
	return 0;
}
