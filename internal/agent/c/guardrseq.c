/* guardrseq.c: with how many bytes glibc has registered rseq areas. See guardrseq.h.
 *
 * Who gives an area up must say as many as it was registered with, or is refused, and is killed where the kernel writes to it when its memory is gone. glibc 2.36 registers 32; newer ones as much as the kernel has fields (AT_RSEQ_FEATURE_SIZE), and more than 32 from Linux 7.0 on. The first thread's call was
 * made before we were there. So the kernel is asked: to register once more the very area, with the very length, is EBUSY; with any other it is EINVAL; and neither does anything. General registers only. */
#include "guardrseq.h"
#include <errno.h>

uint32_t rs_rseq_bytes = RS_RSEQ_LEAST;

void rs_rseq_find(uintptr_t area)
{
	for (uint32_t n = RS_RSEQ_LEAST; n <= RS_RSEQ_MOST; n++) {
		long r = RS_SYS4(RS_RSEQ, area, n, 0, RS_RSEQ_SIGNATURE);
		if (r == 0)
			RS_SYS4(RS_RSEQ, area, n, RS_RSEQ_GIVE_UP, RS_RSEQ_SIGNATURE); /* there was none */
		if (r == -EBUSY)
			rs_rseq_bytes = n;
		if (r != -EINVAL)
			return;
	}
}
