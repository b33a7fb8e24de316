/* real_list.h: joins the lists of the nouns. */
#include "real_thread.h"
#include "real_sync.h"
#include "real_heap.h"
#include "real_proc.h"
#include "real_signal.h"
#include "real_fd.h"
#include "real_sysv.h"
#include "real_dl.h"
#include "real_key.h"
#define RS_REAL_ALWAYS RS_REAL_THREAD RS_REAL_SYNC RS_REAL_HEAP RS_REAL_PROC RS_REAL_SIGNAL RS_REAL_FD RS_REAL_SYSV RS_REAL_DL RS_REAL_KEY
/* Of libraries that a program need not have. */
#define RS_REAL_MAYBE RS_REAL_SYNC_MAYBE
#define RS_REAL_LIST RS_REAL_ALWAYS RS_REAL_MAYBE
