// Instructions whose bytes registers or memory decide: each races with a mov to a byte that it accesses, and not with movs to those beside it and to those that a mask leaves out or that come behind
// the end of a string. Where the processor has no such instruction nothing runs but a plain inc in its place (a mov would be told as one).
#include "../run.h"

enum { MIDDLE = 6144 };

// A function that makes the accesses to its own `place`, with another that it races with; then one that it does not race with.
#define FORM(name, feature, hit, instead, ...) FORM_BESIDE(name, feature, hit, instead, ((volatile char *)name##_at)[MIDDLE + hit] = 1, __VA_ARGS__)
#define FORM_BESIDE(name, feature, hit, instead, other, ...) \
	static char name##_at[12288] __attribute__((aligned(4096))); \
	static void *name(void *p) { char *place = name##_at + MIDDLE; if (__builtin_cpu_supports(feature)) __VA_ARGS__ else __asm__ volatile("inc%z0 %0" : "+m"(*(instead *)(place + hit))); return p; } \
	static void *name##_hit(void *p) { other; return p; }
#define BESIDE(name, ...) \
	static void *name##_beside(void *p) { static const int at[] = {__VA_ARGS__}; for (unsigned i = 0; i < sizeof at / sizeof *at; i++) ((volatile char *)name##_at)[MIDDLE + at[i]] = 1; return p; }
#define RUN(name) both(name, name##_beside), both(name, name##_hit)
#define ASM(code, ...) { __asm__ volatile(code : : "r"(place), ##__VA_ARGS__ : "memory", "cc", "rax", "rcx", "rdx", "rsi", "rdi"); }
#define VECTORS "xmm1", "xmm2", "xmm3"
// As above, with a table of numbers for masks and indices behind %1.
#define WITH(table, code) { static const long long numbers[] __attribute__((aligned(64))) = table; __asm__ volatile(code : : "r"(place), "r"(numbers) : "memory", "cc", "rax", "rcx", "rdx", "rdi", VECTORS); }
#define N(...) {__VA_ARGS__}

// Strings. place[-1024] on and place[0] on are compared; what was put there is at the end.
FORM(repne_cmps, "sse", 9, short, ASM("mov %0, %%rdi; lea -1024(%0), %%rsi; mov $100, %%ecx; repne cmpsw")) // race repne_cmps
BESIDE(repne_cmps, -1, 10, 11, -1024 + 10, -1025)
FORM(down_scas, "sse", -8, int, ASM("mov %0, %%rdi; mov $100, %%ecx; mov $0, %%eax; std; repe scasl; cld")) // race down_scas
BESIDE(down_scas, -9, 4)
FORM(all_cmps, "sse", 23, int, ASM("mov %0, %%rdi; lea -1024(%0), %%rsi; mov $3, %%ecx; repe cmpsq")) // race all_cmps
BESIDE(all_cmps, -1, 24, -1025, -1000)
FORM(none_scas, "sse", 0, int, ASM("mov %0, %%rdi; mov $1, %%ecx; repe scasb; mov %0, %%rdi; add $64, %%rdi; xor %%ecx, %%ecx; repne scasb")) // race none_scas
BESIDE(none_scas, 64, 1)
FORM(long_scas, "sse", 1000, int, ASM("lea -3000(%0), %%rdi; mov $6000, %%ecx; xor %%eax, %%eax; repe scasb")) // race long_scas
BESIDE(long_scas, -3001, 3000)

// Conditions, beside a write that is no mov: what reads by one could be told what a mov hands over, as any read could. A variable that a function reads if its argument says so was a race with whoever writes it when the argument did not: gcc reads it in any case, and drops the value.
#define CONDITION(name, ...) FORM_BESIDE(name, "sse", 0, int, __asm__ volatile("incb %0" : "+m"(name##_at[MIDDLE])), __VA_ARGS__)
CONDITION(conditions, ASM("mov $1, %%ecx; cmp $2, %%ecx; cmovb (%0), %%eax; cmovbe (%0), %%eax; cmovl (%0), %%eax; cmovle (%0), %%eax; cmovne (%0), %%eax; cmovs (%0), %%eax; cmovp (%0), %%eax; cmovno (%0), %%eax;" /* race conditions */
	"cmovae 64(%0), %%eax; cmova 64(%0), %%rax; cmovge 64(%0), %%ax; cmovg 64(%0), %%eax; cmove 64(%0), %%eax; cmovns 64(%0), %%eax; cmovnp 64(%0), %%eax; cmovo 64(%0), %%eax"))
BESIDE(conditions, -1, 4, 64, 65, 68)
CONDITION(overflown, ASM("mov $0x7fffffff, %%ecx; add $1, %%ecx; cmovo (%0), %%eax; cmovge (%0), %%eax; cmovg (%0), %%eax; cmova (%0), %%eax; cmovno 64(%0), %%eax; cmovl 64(%0), %%eax; cmovle 64(%0), %%eax; cmovbe 64(%0), %%eax")) // race overflown
BESIDE(overflown, -1, 4, 64)
CONDITION(equal, ASM("xor %%ecx, %%ecx; cmove (%0), %%eax; cmovbe (%0), %%eax; cmovle (%0), %%eax; cmovne 64(%0), %%eax; cmova 64(%0), %%eax; cmovg 64(%0), %%eax; cmovb 64(%0), %%eax")) // race equal
BESIDE(equal, -1, 4, 64)

// Bits, below and above the address.
FORM(bit_down, "sse", -1, char, ASM("mov $-1, %%rax; bt %%rax, (%0)")) // race bit_down
BESIDE(bit_down, -9, 0)
FORM(bit_word, "sse", 2, char, ASM("mov $0x10011, %%eax; btc %%ax, (%0)")) // race bit_word
BESIDE(bit_word, 1, 4)
FORM(bit_int, "sse", 44, char, ASM("mov $95, %%eax; mov $9, %%edx; btr %%eax, (%0,%%rdx,4)")) // race bit_int
BESIDE(bit_int, 43, 48)

// A lock of bits, whose number is in a register: it orders.
static long bit_lock[4], counted;
static int bit_taken(long n)
{
	char was;
	__asm__ volatile("lock btsq %2, %1; setc %0" : "=q"(was), "+m"(bit_lock) : "r"(n) : "cc", "memory");
	return was;
}
static void bit_back(long n) { __asm__ volatile("lock btrq %1, %0" : "+m"(bit_lock) : "r"(n) : "cc", "memory"); }
static void *counts(void *p)
{
	for (int i = 0; i < 100; i++) {
		while (bit_taken(200))
			sched_yield();
		counted++;
		bit_back(200);
	}
	return p;
}

// Masks of signs.
FORM(mask_load, "avx2", 12, char, WITH(N(0x8000000000000000, 0x80000000, 0, 0), "vmovdqu (%1), %%ymm2; vpmaskmovd 4(%0), %%ymm2, %%ymm1")) // race mask_load
BESIDE(mask_load, 7, 8 - 8, 16, 20, 35)
FORM(mask_store, "avx2", 31, char, WITH(N(0, -1, 0, -1), "vmovdqu (%1), %%ymm2; vmaskmovpd %%ymm1, %%ymm2, (%0)")) // race mask_store
BESIDE(mask_store, 0, 7, 16, 23, 32)
FORM(mask_none, "avx2", 0, char, WITH(N(-1, 0, 0, 0), "vmovdqu (%1), %%ymm2; vpmaskmovq (%0), %%xmm2, %%xmm1; vpxor %%ymm2, %%ymm2, %%ymm2; vmaskmovps %%ymm1, %%ymm2, (%0)")) // race mask_none
BESIDE(mask_none, 8, 16, 31)
FORM(mask_mmx, "mmx", 5, char, WITH(N(0x0000800000000000), "movq (%1), %%mm2; mov %0, %%rdi; maskmovq %%mm2, %%mm1; emms")) // race mask_mmx
BESIDE(mask_mmx, 0, 4, 6)

// Gathers: indices of four bytes and of eight, below zero, without a base.
FORM(gather_dd, "avx2", -20, char, WITH(N((unsigned)-5 | 3ll << 32, 7, -1, 0x8000000000000000), "vmovq (%1), %%xmm2; vpcmpeqd %%xmm3, %%xmm3, %%xmm3; vpgatherdd %%xmm3, (%0,%%xmm2,4), %%xmm1")) // race gather_dd
BESIDE(gather_dd, -21, -16, 8, 16, 28)
FORM(gather_masked, "avx2", 96, char, WITH(N(1, 2, 3, 4, 0, -1, 0, -1), "vmovdqu (%1), %%ymm2; vmovdqu 32(%1), %%ymm3; add %0, %%rdi; lea 64(%0), %%rax; vgatherqpd %%ymm3, (%%rax,%%ymm2,8), %%ymm1")) // race gather_masked
BESIDE(gather_masked, 72, 79, 88, 104)
FORM(gather_qd, "avx2", 42, char, WITH(N(10, 20, -1, -1), "vmovdqu (%1), %%xmm2; vmovdqu 16(%1), %%xmm3; vpgatherqd %%xmm3, (%0,%%xmm2,4), %%xmm1")) // race gather_qd
BESIDE(gather_qd, 39, 44, 84, 0)

// Masks of their own registers.
FORM(opmask_load, "avx512bw", 61, char, ASM("mov $0x6000000000000001, %%rax; kmovq %%rax, %%k1; vmovdqu8 (%0), %%zmm1%{%%k1%}%{z%}", "m"(*place))) // race opmask_load
BESIDE(opmask_load, 1, 60, 63)
FORM(opmask_add, "avx512f", 60, char, ASM("mov $0x8001, %%eax; kmovw %%eax, %%k1; vaddps (%0), %%zmm1, %%zmm1%{%%k1%}", "m"(*place))) // race opmask_add
BESIDE(opmask_add, 4, 59, 64)
FORM(opmask_one, "avx512f", 11, char, ASM("mov $0x8000, %%eax; kmovw %%eax, %%k1; vaddps 8(%0)%{1to16%}, %%zmm1, %%zmm1%{%%k1%}; vaddss (%0), %%xmm1, %%xmm1%{%%k1%}", "m"(*place))) // race opmask_one
BESIDE(opmask_one, 0, 7, 12)
FORM(compressed, "avx512f", 7, char, ASM("mov $0x8001, %%eax; kmovw %%eax, %%k1; vcompressps %%zmm1, (%0)%{%%k1%}", "m"(*place))) // race compressed
BESIDE(compressed, -1, 8, 60)
FORM(expanded, "avx512f", 8, char, ASM("mov $0x82, %%eax; kmovw %%eax, %%k1; vexpandpd (%0), %%zmm1%{%%k1%}", "m"(*place))) // race expanded
BESIDE(expanded, -1, 16, 56)
FORM(scattered, "avx512f", 803, char, ASM("mov $100, %%eax; vpbroadcastd %%eax, %%zmm17; mov $0x80, %%eax; kmovw %%eax, %%k1; vpscatterdq %%zmm1, (%0,%%ymm17,8)%{%%k1%}", "m"(*place))) // race scattered
BESIDE(scattered, 799, 808, 400)
FORM(gathered, "avx512f", 803, char, ASM("mov $100, %%eax; vpbroadcastq %%rax, %%zmm17; mov $0x80, %%eax; kmovw %%eax, %%k1; vpgatherqq (%0,%%zmm17,8), %%zmm1%{%%k1%}", "m"(*place))) // race gathered
BESIDE(gathered, 799, 808, 400)

// States of the processor.
FORM(fx_load, "sse", 300, char, ASM("movl $0x1f80, 24(%0); movw $0x37f, (%0); fxrstor (%0)")) // race fx_load
BESIDE(fx_load, 416, 512, -1)
FORM(fx_save, "sse", 0, char, ASM("fxsave64 (%0)")) // race fx_save
BESIDE(fx_save, 416, 512, -1)
FORM(x87_save, "sse", 107, char, ASM("fnsave (%0); frstor (%0)")) // race x87_save
BESIDE(x87_save, 108, -1)
FORM(x87_env, "sse", 27, char, ASM("fnstenv (%0); fldenv (%0)")) // race x87_env
BESIDE(x87_env, 28, -1)
FORM(x_save, "avx", 576 + 255, char, ASM("mov $7, %%eax; xor %%edx, %%edx; xsave (%0)")) // race x_save
BESIDE(x_save, 464, 576 + 256, -1)
FORM(x_save_sse, "avx", 160, char, ASM("mov $2, %%eax; xor %%edx, %%edx; xsave (%0)")) // race x_save_sse
BESIDE(x_save_sse, 0, 32, 416, 576, -1)
FORM(x_load, "avx", 576 + 13, char, ASM("mov $4, %%eax; xor %%edx, %%edx; movl $0x1f80, 24(%0); movl $4, 512(%0); xrstor (%0)")) // race x_load
BESIDE(x_load, 160, 32, 0, 416, 576 + 256, -1)

int main(void)
{
	memset(repne_cmps_at + MIDDLE, 1, 100);
	repne_cmps_at[MIDDLE + 8] = repne_cmps_at[MIDDLE + 9] = 0;
	*(int *)(down_scas_at + MIDDLE - 8) = 5;
	none_scas_at[MIDDLE] = 7;
	RUN(repne_cmps);
	RUN(down_scas);
	RUN(all_cmps);
	RUN(none_scas);
	RUN(long_scas);
	RUN(conditions);
	RUN(overflown);
	RUN(equal);
	RUN(bit_down);
	RUN(bit_word);
	RUN(bit_int);
	both(counts, counts);
	printf("%ld\n", counted);
	RUN(mask_load);
	RUN(mask_store);
	RUN(mask_none);
	RUN(mask_mmx);
	RUN(gather_dd);
	RUN(gather_masked);
	RUN(gather_qd);
	RUN(opmask_load);
	RUN(opmask_add);
	RUN(opmask_one);
	RUN(compressed);
	RUN(expanded);
	RUN(scattered);
	RUN(gathered);
	RUN(fx_load);
	RUN(fx_save);
	RUN(x87_save);
	RUN(x87_env);
	RUN(x_save);
	RUN(x_save_sse);
	RUN(x_load);
	return 0;
}
