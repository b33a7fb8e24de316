/* real.c: the real functions. The only place that looks symbols up. */
#include "core.h"
#include <dlfcn.h>

struct rs_real_table rs_real;

void *rs_real_find(const char *name, const char *version)
{
	return version[0] ? dlvsym(RTLD_NEXT, name, version) : dlsym(RTLD_NEXT, name);
}

extern const struct rs_second *const __start_rs_seconds[] RS_HIDDEN, *const __stop_rs_seconds[] RS_HIDDEN;

void rs_real_init(void)
{
	/* 0 not yet, 1 under way (the look-up itself may call what is interposed), 2 done. Runs before there is a second thread, perhaps
	 * in the middle of the program's own malloc: a look-up that misses calls malloc, for the text of its error. */
	static uint32_t state;
	if (state != 0)
		return;
	state = 1;
#define R_AS(ret, member, name, version, args) rs_real.member = (ret(*) args)rs_real_find(#name, version);
	RS_REAL_ALWAYS
#undef R_AS
	size_t seconds = ((uintptr_t)__stop_rs_seconds - (uintptr_t)__start_rs_seconds) / sizeof *__start_rs_seconds;
	for (size_t i = 0; i < seconds; i++) {
		const struct rs_second *s = __start_rs_seconds[i];
		void *second = rs_real_find(s->name, "");
		if (second != rs_real_find(s->first, ""))
			*s->own = second;
	}
	state = 2;
}

void rs_real_quietly(void (*find)(void))
{
	__typeof__(rs_real.malloc) malloc = rs_real.malloc;
	__typeof__(rs_real.calloc) calloc = rs_real.calloc;
	__typeof__(rs_real.realloc) realloc = rs_real.realloc;
	rs_real.malloc = NULL;
	rs_real.calloc = NULL;
	rs_real.realloc = NULL;
	find();
	rs_real.malloc = malloc;
	rs_real.calloc = calloc;
	rs_real.realloc = realloc;
}

static void find_maybe(void)
{
#define R_AS(ret, member, name, version, args) rs_real.member = (ret(*) args)rs_real_find(#name, version);
	RS_REAL_MAYBE
#undef R_AS
	dlerror(); /* a miss must not be the program's first dlerror() */
}

void rs_real_init_maybe(void) { rs_real_quietly(find_maybe); }

void *rs_real_meant(const char *name, const char *version)
{
	void *at = version[0] ? dlvsym(RTLD_DEFAULT, name, version) : dlsym(RTLD_DEFAULT, name);
	if (!at)
		dlerror();
	return at;
}
