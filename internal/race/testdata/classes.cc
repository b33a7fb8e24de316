// More of the popular races of ThreadSanitizer's manual: of objects with constructors, destructors and virtual functions.
#include "run.h"
#include <memory>
#include <mutex>
#include <semaphore.h>
#include <string>
#include <vector>

static std::mutex mutex;

// On the table of virtual functions: a destructor sets it to its own class's, while another still calls.
struct base {
	sem_t done;
	base() { sem_init(&done, 0, 0); }
	virtual void call() {}
	void finish() { sem_post(&done); }
	virtual ~base() { sem_wait(&done); sem_destroy(&done); } // race-mov vptr
};
struct derived : base {
	void call() override { use(this); }
	~derived() override {}
};
static base *volatile object;

static void *calls(void *p)
{
	base *b = object;
	b->call(); // race-mov vptr
	b->finish();
	return p;
}
static void *deletes(void *p) { delete object; /* race-mov vptr */ return p; }

// The same rightly: who deletes waits first.
struct waited {
	virtual void call() {}
	virtual ~waited() {}
};
struct waited_for : waited {
	int calls = 0;
	void call() override { calls++; }
};
static waited *volatile right;
static sem_t called;
static void *calls_right(void *p)
{
	waited *w = right;
	w->call();
	sem_post(&called);
	return p;
}
static void *deletes_right(void *p)
{
	sem_wait(&called);
	delete right;
	return p;
}

// On a complex object.
static std::vector<int> *list, *guarded_list;
static void *appends(void *p) { list->push_back(1); /* race-any vector */ return p; }
static void *appends_guarded(void *p)
{
	std::lock_guard<std::mutex> l(mutex);
	guarded_list->push_back(1);
	return p;
}

// On destruction: who destroys does not know of who still reads.
struct owner {
	volatile int state = 1;
	~owner() { state = 0; } // race-any destruction
};
static owner *owned;
static void *destroys(void *p) { owned->~owner(); /* race-any destruction */ return p; }
static void *asks(void *p) { use(owned->state); /* race-any destruction */ return p; }

// A reference count of the standard library, and each thread's copy of a string.
static std::shared_ptr<std::string> *shared;
static void *copies(void *p)
{
	std::shared_ptr<std::string> mine = *shared;
	std::string text = *mine + ", and more so that it has a block of its own";
	use(text.size());
	return p;
}

int main()
{
	object = new derived;
	both(calls, deletes);
	sem_init(&called, 0, 0);
	right = new waited_for;
	both(calls_right, deletes_right);
	list = new std::vector<int>;
	list->reserve(100);
	both(appends, appends);
	guarded_list = new std::vector<int>;
	both(appends_guarded, appends_guarded);
	owned = static_cast<owner *>(malloc(sizeof(owner) + 200));
	new (owned) owner;
	both(destroys, asks);
	shared = new std::shared_ptr<std::string>(new std::string("a text"));
	both(copies, copies);
	delete shared;
	return 0;
}
