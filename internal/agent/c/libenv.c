/* libenv.c: getenv, setenv and their like, as accesses of their callers to `environ` (called.h). glibc has those that change the environment take a lock, so two of them are in order, as atomic changes of one word are; getenv takes none
 * (attributes(7), "const:env"), and is a plain read. A program's own `*environ` is a mov, which may be an atomic's. */
#include "called.h"
#include <stdlib.h>
#include <unistd.h>

static void looks(const struct rs_called *c, const char *name)
{
	if (!c->t)
		return;
	rs_called_read(c, name, rs_length(name) + 1);
	rs_called_read(c, &environ, sizeof environ);
}

static void changes(const struct rs_called *c, const char *name, const char *value)
{
	if (!c->t)
		return;
	if (name)
		rs_called_read(c, name, rs_length(name) + 1);
	if (value)
		rs_called_read(c, value, rs_length(value) + 1);
	rs_called_change(c, &environ, sizeof environ);
}

#define LOOKS(name) \
	RS_TELLS(char *, name, (const char *variable)) \
	{ \
		RS_CALL(name); \
		looks(&c, variable); \
		return real_##name(variable); \
	}
LOOKS(getenv)
LOOKS(secure_getenv)

RS_TELLS(int, setenv, (const char *variable, const char *value, int replace))
{
	RS_CALL(setenv);
	changes(&c, variable, value);
	return real_setenv(variable, value, replace);
}

/* The string becomes part of the environment: what is written there later is the program's affair. */
RS_TELLS(int, putenv, (char *string))
{
	RS_CALL(putenv);
	changes(&c, string, NULL);
	return real_putenv(string);
}

RS_TELLS(int, unsetenv, (const char *variable))
{
	RS_CALL(unsetenv);
	changes(&c, variable, NULL);
	return real_unsetenv(variable);
}

RS_TELLS(int, clearenv, (void))
{
	RS_CALL(clearenv);
	changes(&c, NULL, NULL);
	return real_clearenv();
}
