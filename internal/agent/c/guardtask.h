/* guardtask.h: what a program reads of its own threads in /proc. See guardtask.c. */
#ifndef RS_GUARDTASK_H
#define RS_GUARDTASK_H
#include "calls.h"
#include "core.h"

/* Behind a call that the kernel has made, before anybody looks at what it gave: of a process that has a coordinator. */
void rs_guard_tasks_hide(struct rs_call *c) RS_HIDDEN;
#endif
