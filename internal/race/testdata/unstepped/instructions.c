// Kinds of instructions that access memory: each races with a mov to the last byte that it accesses, and not with one to the byte behind it, or to one that a mask leaves out. `missed` is a race
// that no detector is told of: of pushes nothing is told (docs/status.md). More of those whose bytes registers decide are in lanes.c.
#include "../run.h"
#include <immintrin.h>

#define AVX2 __attribute__((target("avx2")))
#define AVX512 __attribute__((target("avx512f,avx512bw")))
#define PLACE(name) static char name[1024] __attribute__((aligned(64)))
#define SET(at) (*(volatile char *)(at) = 1)
#define GET(at) use(*(volatile char *)(at))

// Strings, and one that goes downwards; those that end early.
PLACE(moved);
static void *movs(void *p)
{
	void *to = moved, *from = moved + 512;
	long n = 25;
	__asm__ volatile("rep movsq" : "+D"(to), "+S"(from), "+c"(n) : : "memory"); // race movs_to
	return p;
}
static void *sets_moved(void *p) { SET(moved + 199); /* race movs_to */ return p; }
static void *sets_behind_moved(void *p) { SET(moved + 200); SET(moved + 511); SET(moved + 712); return p; }

PLACE(downwards);
static void *stos_down(void *p)
{
	void *to = downwards + 100;
	long n = 10;
	__asm__ volatile("std; rep stosw; cld" : "+D"(to), "+c"(n) : "a"(7) : "memory"); // race stos_down
	return p;
}
static void *sets_downwards(void *p) { SET(downwards + 82); /* race stos_down */ return p; }
static void *sets_below(void *p) { SET(downwards + 81); SET(downwards + 102); return p; }

PLACE(scanned);
static void *scas(void *p)
{
	void *at = scanned;
	long n = 100;
	__asm__ volatile("repne scasb" : "+D"(at), "+c"(n) : "a"(9) : "cc", "memory"); // race scas
	return p;
}
static void *sets_scanned(void *p) { SET(scanned + 30); /* race scas */ return p; }
static void *sets_not_scanned(void *p) { SET(scanned + 51); return p; }

PLACE(compared);
static void *cmps(void *p)
{
	void *a = compared, *b = compared + 512;
	long n = 100;
	__asm__ volatile("repe cmpsb" : "+D"(a), "+S"(b), "+c"(n) : : "cc", "memory"); // race cmps
	return p;
}
static void *sets_compared(void *p) { SET(compared + 512 + 20); /* race cmps */ return p; }
static void *sets_not_compared(void *p) { SET(compared + 512 + 41); return p; }

// The stack's own: a thread changes what another pushed, called through and left.
PLACE(called_by);
static void nothing(void) {}
static void *calls(void *p)
{
	__asm__ volatile("sub $128, %%rsp; call *(%0); add $128, %%rsp" : : "r"(called_by) : "memory", "cc", "rax", "rcx", "rdx", "rsi", "rdi"); // race-mov calls
	return p;
}
static void *changes_called(void *p) { *(void (*volatile *)(void))called_by = nothing; /* race-mov calls */ return p; }

PLACE(pushed);
static void *pushes(void *p)
{
	__asm__ volatile("mov %%rsp, %%rbx; mov %0, %%rsp; push $1; pop %%rax; mov %%rbx, %%rsp" : : "r"(pushed + 512) : "memory", "rax", "rbx"); // missed push
	return p;
}
static void *changes_pushed(void *p) { SET(pushed + 511); /* missed push */ return p; }
static void *changes_beside_pushed(void *p) { SET(pushed + 512); SET(pushed + 503); return p; }

// x87: 10 bytes; the states of fxsave and xsave.
PLACE(x87);
static void *stores_x87(void *p) { __asm__ volatile("fld1; fstpt %0" : "=m"(*(char (*)[10])x87)); /* race x87 */ return p; }
static void *sets_x87(void *p) { SET(x87 + 9); /* race x87 */ return p; }
static void *sets_behind_x87(void *p) { SET(x87 + 10); return p; }

PLACE(state);
static void *saves(void *p) { __asm__ volatile("fxsave %0" : "=m"(*(char (*)[512])state)); /* race fxsave */ return p; }
static void *sets_state(void *p) { SET(state + 400); /* race fxsave */ return p; }
static void *sets_behind_state(void *p) { SET(state + 512); return p; }

// Wide, masked, gathered. Where the processor has none, plain ones in their places.
PLACE(wide);
AVX2 static void wide_avx(void) { _mm256_store_si256((__m256i *)wide, _mm256_set1_epi8(1)); } // race wide_store
static void *stores_wide(void *p)
{
	if (__builtin_cpu_supports("avx2"))
		wide_avx();
	else
		memset(wide, 1, 32); // race wide_store
	return p;
}
static void *sets_wide(void *p) { SET(wide + 31); /* race wide_store */ return p; }
static void *sets_behind_wide(void *p) { SET(wide + 32); return p; }

PLACE(masked);
AVX2 static void masked_avx(void) { _mm256_maskstore_epi32((int *)masked, _mm256_setr_epi32(-1, 0, -1, 0, 0, -1, 0, 0), _mm256_set1_epi32(1)); } // race maskmov
static void *stores_masked(void *p)
{
	if (__builtin_cpu_supports("avx2"))
		masked_avx();
	else
		*(volatile short *)(masked + 21) = 1; // race maskmov
	return p;
}
static void *sets_masked(void *p) { SET(masked + 22); /* race maskmov */ return p; }
static void *sets_left_out(void *p) { SET(masked + 4); SET(masked + 24); return p; }

PLACE(gathered);
AVX2 static void gathers_avx(void) { __asm__ volatile("" : : "x"(_mm256_i32gather_epi32((int *)gathered, _mm256_setr_epi32(0, 20, 40, 60, 80, 100, 120, 140), 4))); } // race gather
static void *gathers(void *p)
{
	if (__builtin_cpu_supports("avx2"))
		gathers_avx();
	else
		use(*(volatile short *)(gathered + 561)); // race gather
	return p;
}
static void *sets_gathered(void *p) { SET(gathered + 562); /* race gather */ return p; }
static void *sets_between(void *p) { SET(gathered + 564); SET(gathered + 4); return p; }

PLACE(opmasked);
AVX512 static void opmasked_avx(void) { _mm512_mask_storeu_epi8(opmasked, 0x8000000000000001, _mm512_set1_epi8(1)); } // race opmask
static void *stores_opmasked(void *p)
{
	if (__builtin_cpu_supports("avx512bw"))
		opmasked_avx();
	else
		*(volatile short *)(opmasked + 63) = 1; // race opmask
	return p;
}
static void *sets_opmasked(void *p) { SET(opmasked + 63); /* race opmask */ return p; }
static void *sets_not_opmasked(void *p) { SET(opmasked + 1); SET(opmasked + 62); SET(opmasked + 65); return p; }

// Past the caches; the mask of bytes of SSE2.
PLACE(streamed);
static void *streams(void *p) { _mm_stream_si64((long long *)streamed, 1); /* race-mov stream */ return p; }
static void *gets_streamed(void *p) { use(*(volatile long *)streamed); /* race-mov stream */ return p; }
static void *sets_behind_streamed(void *p) { SET(streamed + 8); return p; }

PLACE(bytes);
static void *masks_bytes(void *p)
{
	_mm_maskmoveu_si128(_mm_set1_epi8(1), _mm_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, -1), bytes); // race maskmovdqu
	return p;
}
static void *gets_bytes(void *p) { GET(bytes + 15); /* race maskmovdqu */ return p; }
static void *sets_other_bytes(void *p) { SET(bytes + 14); return p; }

// Bits whose number says where they are; 16 bytes at once; a byte of a table.
PLACE(bits);
static void *sets_bit(void *p) { __asm__ volatile("btsq %1, %0" : "+m"(bits) : "r"(1000l) : "cc"); /* race bts */ return p; }
static void *gets_bit(void *p) { GET(bits + 125); /* race bts */ return p; }
static void *sets_behind_bits(void *p) { SET(bits + 128); SET(bits + 119); return p; }

PLACE(sixteen);
static void *swaps_sixteen(void *p)
{
	long a = 0, d = 0;
	__asm__ volatile("lock cmpxchg16b %0" : "+m"(*(__int128 *)sixteen), "+a"(a), "+d"(d) : "b"(1l), "c"(2l) : "cc"); // race cmpxchg16b
	return p;
}
static void *sets_of_sixteen(void *p) { *(volatile short *)(sixteen + 13) = 1; /* race cmpxchg16b */ return p; }
static void *sets_behind_sixteen(void *p) { SET(sixteen + 16); return p; }

PLACE(table);
static void *looks_up(void *p) { __asm__ volatile("xlat" : : "b"(table), "a"(77) : "memory"); /* race-mov xlat */ return p; }
static void *changes_table(void *p) { SET(table + 77); /* race-mov xlat */ return p; }
static void *changes_beside(void *p) { SET(table + 78); SET(table + 76); return p; }

// Memory to memory, in two pages.
static char pages[8192] __attribute__((aligned(4096)));
static void *crosses(void *p) { __asm__ volatile("addl $1, %0" : "+m"(*(int *)(pages + 4094)) : : "cc"); /* race crosses */ return p; }
static void *is_crossed(void *p) { SET(pages + 4097); /* race crosses */ return p; }
static void *is_behind(void *p) { SET(pages + 4098); SET(pages + 4093); return p; }

int main(void)
{
	scanned[50] = 9;
	compared[512 + 40] = 1;
	*(void (**)(void))called_by = nothing;
	both(movs, sets_moved);
	both(movs, sets_behind_moved);
	both(stos_down, sets_downwards);
	both(stos_down, sets_below);
	both(scas, sets_scanned);
	both(scas, sets_not_scanned);
	both(cmps, sets_compared);
	both(cmps, sets_not_compared);
	both(calls, changes_called);
	both(pushes, changes_pushed);
	both(pushes, changes_beside_pushed);
	both(stores_x87, sets_x87);
	both(stores_x87, sets_behind_x87);
	both(saves, sets_state);
	both(saves, sets_behind_state);
	both(stores_wide, sets_wide);
	both(stores_wide, sets_behind_wide);
	both(stores_masked, sets_masked);
	both(stores_masked, sets_left_out);
	both(gathers, sets_gathered);
	both(gathers, sets_between);
	both(stores_opmasked, sets_opmasked);
	both(stores_opmasked, sets_not_opmasked);
	both(streams, gets_streamed);
	both(streams, sets_behind_streamed);
	both(masks_bytes, gets_bytes);
	both(masks_bytes, sets_other_bytes);
	both(sets_bit, gets_bit);
	both(sets_bit, sets_behind_bits);
	both(swaps_sixteen, sets_of_sixteen);
	both(swaps_sixteen, sets_behind_sixteen);
	both(looks_up, changes_table);
	both(looks_up, changes_beside);
	both(crosses, is_crossed);
	both(crosses, is_behind);
	return 0;
}
