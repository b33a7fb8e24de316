// The environment, which functions of libc look at and change. Those that change it take a lock of libc's, those that look take none: two threads that change it at once are none the worse for it, one that looks meanwhile is.
#include "../run.h"

#define MUST(x) do { if (!(x)) abort(); } while (0)
static char name[32] = "RACE_OF_NAME", value[32] = "value";

static void *looks(void *p) { use(getenv("RACE_A")); return p; } // race set
static void *sets(void *p) { MUST(setenv("RACE_A", "1", 1) == 0); return p; } // race set
static void *looks_while_put(void *p) { use(getenv("RACE_A")); return p; } // race put
static void *puts_it(void *p) { MUST(putenv("RACE_A=2") == 0); return p; } // race put
static void *looks_while_unset(void *p) { use(secure_getenv("RACE_A")); return p; } // race unset
static void *unsets(void *p) { MUST(unsetenv("RACE_A") == 0); return p; } // race unset
static void *looks_while_cleared(void *p) { use(getenv("PATH")); return p; } // race cleared
static void *clears(void *p) { MUST(clearenv() == 0); return p; } // race cleared

// What is handed to them.
static void *names(void *p) { name[5] = 'o'; return p; } // race name
static void *sets_named(void *p) { MUST(setenv(name, "1", 1) == 0); return p; } // race name
static void *gives_value(void *p) { value[2] = 'l'; return p; } // race value
static void *sets_value(void *p) { MUST(setenv("RACE_B", value, 1) == 0); return p; } // race value
static void *looks_named(void *p) { use(getenv(name)); return p; } // race looked
static void *names_again(void *p) { name[6] = 'f'; return p; } // race looked

// Rightly: all look, all change, or a lock.
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static void *only_looks(void *p)
{
	use(getenv("RACE_A"));
	use(getenv(name));
	return p;
}
static void *only_changes(void *p)
{
	MUST(setenv("RACE_C", value, 1) == 0 && unsetenv("RACE_A") == 0);
	return p;
}
static void *both_with_lock(void *p)
{
	pthread_mutex_lock(&mutex);
	use(getenv("RACE_C"));
	MUST(setenv("RACE_C", "3", 1) == 0);
	pthread_mutex_unlock(&mutex);
	return p;
}
// Who has it by one lock that the other gave, though libc's lock would do as well for what came before.
static int handed;
static void *hands_over(void *p)
{
	handed++;
	MUST(setenv("RACE_D", "4", 1) == 0);
	unseen_done();
	return p;
}
static void *takes_over(void *p)
{
	unseen_wait();
	MUST(setenv("RACE_D", "5", 1) == 0);
	handed++;
	return p;
}

int main(void)
{
	both(only_looks, only_looks);
	both(only_changes, only_changes);
	both(both_with_lock, both_with_lock);
	unseen(hands_over, takes_over);
	both(looks, sets);
	both(looks_while_put, puts_it);
	both(looks_while_unset, unsets);
	both(names, sets_named);
	both(gives_value, sets_value);
	both(looks_named, names_again);
	both(looks_while_cleared, clears);
	return 0;
}
