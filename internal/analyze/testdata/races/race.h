// Programs with one race each, of the kinds in ProRace's table 2 (ASPLOS 2017): by the addressing of the racing instruction. Each is a function of its file's name, and all are
// linked into one program, so that the loader is stepped once. With CLEAN each is right. With TIMED they run long enough to be sampled by a clock, and one at a time. A line that ends in `race` has one of the two accesses.
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#ifdef CLEAN
#define LOCK(m) pthread_mutex_lock(m)
#define UNLOCK(m) pthread_mutex_unlock(m)
#else
#define LOCK(m) ((void)(m))
#define UNLOCK(m) ((void)(m))
#endif
#if defined TIMED
enum { ROUNDS = 4000000 };
#elif defined CLEAN
enum { ROUNDS = 25 };
#elif defined LONG // so long that a sample of 10,000 accesses finds some
enum { ROUNDS = 2000 };
#else
enum { ROUNDS = 60 };
#endif

// work does something of a thread's own.
long work(long *own, long n);

// both runs two functions in a thread each.
void both(void *(*one)(void *), void *(*two)(void *), void *arg);
