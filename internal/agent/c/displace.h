/* displace.h: one instruction, executed elsewhere than where it lies. */
#ifndef RS_DISPLACE_H
#define RS_DISPLACE_H
#include <stdint.h>

enum { RS_DISPLACED = 15 }; /* the longest instruction */

/* Writes to dst what does at address to what the instruction in code, of which there are `room` bytes, does at address from: as many bytes as it has, which are given. 0: it is left alone, since it says
 * itself where control goes on, or leaves its own address somewhere (branches, calls, system calls, traps), or its RIP-relative operand is out of reach, or it is none; -1: it goes on behind the bytes.
 * It is held against x86.Relocate. */
int rs_displace(uint8_t dst[RS_DISPLACED], uintptr_t to, const uint8_t *code, unsigned room, uintptr_t from);
#endif
