// Ways to abort, with what is known of each: the line above a case states the texts of the report's `crash`; `%` stands for the program's name. Run with `clean` nothing is wrong.
#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int wrong;
static sigjmp_buf left;

// case assertion: said=%: testdata/aborts.c:18: assertion: Assertion `wrong == 0' failed.
static void assertion(void)
{
	assert(wrong == 0);
}

// case escaped: said=%: testdata/aborts.c:24: escaped: Assertion `"\033[2J\n\t" == 0 || !wrong' failed.
static void escaped(void)
{
	assert("\033[2J\n\t" == 0 || !wrong);
}

// case perror: said=%: a\nb:7: \x1b[1mf: Unexpected error: No such file or directory.
static void perror_(void)
{
	if (wrong)
		__assert_perror_fail(ENOENT, "a\nb", 7, "\033[1mf");
}

static void *in_thread(void *arg)
{
	assert(wrong == 0);
	return arg;
}
// case thread: said=%: testdata/aborts.c:36: in_thread: Assertion `wrong == 0' failed.
static void thread(void)
{
	pthread_t t;
	pthread_create(&t, NULL, in_thread, NULL);
	pthread_join(t, NULL);
}

// case smashed: said=*** stack smashing detected ***: terminated
static void smashed(void)
{
	char b[8];
	memset(b, 'x', 8 + 24 * (size_t)wrong);
	__asm__ volatile("" : : "r"(b) : "memory");
}

// case fortified: said=*** buffer overflow detected ***: terminated
static void fortified(void)
{
	extern void *__memset_chk(void *, int, size_t, size_t);
	char b[8];
	__memset_chk(b, 'x', 8 + (size_t)wrong, 8);
	__asm__ volatile("" : : "r"(b) : "memory");
}

// case plain:
static void plain(void)
{
	if (wrong)
		abort();
}

// case raised:
static void raised(void)
{
	if (wrong)
		raise(SIGABRT);
}

static void leave(int sig)
{
	(void)sig;
	siglongjmp(left, 1);
}
// case survived: said=
static void survived(void)
{
	signal(SIGABRT, leave);
	if (!sigsetjmp(left, 1))
		assert(wrong == 0);
	signal(SIGABRT, SIG_DFL);
	if (wrong)
		abort();
}

static const struct { const char *name; void (*f)(void); } cases[] = {{"assertion", assertion}, {"escaped", escaped}, {"perror", perror_}, {"thread", thread}, {"smashed", smashed}, {"fortified", fortified}, {"plain", plain}, {"raised", raised}, {"survived", survived}};

int main(int argc, char **argv)
{
	int clean = argc > 1 && !strcmp(argv[1], "clean");
	wrong = !clean;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
		if (clean || !strcmp(argv[1], cases[i].name))
			cases[i].f();
	puts("ok");
	return 0;
}
