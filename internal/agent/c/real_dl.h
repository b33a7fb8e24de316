/* real_dl.h: real functions that dl.c interposes. dlsym is never interposed: it looks at its caller. */
#ifndef RS_REAL_DL_H
#define RS_REAL_DL_H
#include <dlfcn.h>
#define RS_REAL_DL \
	R(void *, dlopen, "", (const char *, int)) \
	R(void *, dlmopen, "", (Lmid_t, const char *, int)) \
	R(int, dlclose, "", (void *))
#endif
