// Programs that abort by a condition on what another function wrote: in each kind it is spoil_KIND, the last one. Its argument: which.
#include <assert.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FUNCTION __attribute__((noinline, noclone)) static

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int balance = 100;
static struct account { char name[24]; long limit; unsigned char open; } *account;
static volatile int rounds;

// An assertion on a variable that another thread writes, in a loop.
FUNCTION void spoil_assert(void)
{
	for (int i = 0; i < 12; i++) {
		pthread_mutex_lock(&lock);
		balance -= 10;
		pthread_mutex_unlock(&lock);
		usleep(500);
	}
}

static void *spends(void *arg)
{
	spoil_assert();
	return arg;
}

FUNCTION void check_assert(void)
{
	pthread_mutex_lock(&lock);
	assert(balance >= 0);
	pthread_mutex_unlock(&lock);
}

static void use_assert(void)
{
	pthread_t t;
	pthread_create(&t, NULL, spends, NULL);
	for (;; usleep(200))
		check_assert();
}

// abort() behind a comparison of a block's word, and behind a call.
FUNCTION void spoil_field(void) { account->limit = -5; }

FUNCTION void use_field(void)
{
	if (account->limit < 0) {
		fputs("over its limit\n", stderr);
		abort();
	}
}

// A byte, behind other conditions that hold.
FUNCTION void spoil_byte(void) { memset(&account->open, 0, 1); }

FUNCTION void use_byte(void)
{
	assert(account && account->name[0] == 'a' && account->open);
}

// A string that is longer than its room: the stack protector's word.
FUNCTION void spoil_smash(char *to, const char *from) { strcpy(to, from); }

FUNCTION void use_smash(void)
{
	char room[16];
	spoil_smash(room, "this is much longer than its room, and then some more");
	rounds += room[1];
}

// What is compared was computed: it is said of what that was computed from.
FUNCTION void spoil_sum(void) { account->limit = 40; }

FUNCTION void use_sum(void)
{
	long sum = account->limit + 3;
	assert(sum == 4);
}

// kill(): nobody is named; the report is as without.
FUNCTION void use_kill(void) { kill(getpid(), SIGABRT); pause(); }

int main(int argc, char **argv)
{
	const char *kind = argc > 1 ? argv[1] : "";
	account = calloc(1, sizeof *account);
	strcpy(account->name, "alice");
	account->limit = 1;
	account->open = 1;
	if (!strcmp(kind, "assert"))
		use_assert();
	if (!strcmp(kind, "field"))
		spoil_field(), use_field();
	if (!strcmp(kind, "byte"))
		spoil_byte(), use_byte();
	if (!strcmp(kind, "smash"))
		use_smash();
	if (!strcmp(kind, "sum"))
		spoil_sum(), use_sum();
	if (!strcmp(kind, "kill"))
		use_kill();
	puts("well");
	return 0;
}
