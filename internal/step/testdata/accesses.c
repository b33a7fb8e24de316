// Instructions of every kind of access, each at a label of its own; the test knows what each touches.
#include <stdint.h>
#include <stdio.h>

uint8_t a[256] __attribute__((aligned(64)));
uint8_t b[256] __attribute__((aligned(64)));
int32_t indices[8] __attribute__((aligned(64))) = {0, 4, 1, 9, 2, 3, 5, 7};
int32_t lanes[8] __attribute__((aligned(64))) = {-1, 0, -1, -1, 0, 0, 0, -1};
uint8_t big[64 << 20];
uint64_t word = 0x1122334455667788;

#define AT(name) ".globl " name "\n" name ": "

int main(void) {
	uint64_t x, c, s, d;
	asm volatile(AT("at_load") "movq word(%%rip), %0" : "=r"(x));
	asm volatile(AT("at_store") "movb $1, a+3(%%rip)" ::: "memory");
	asm volatile(AT("at_modify") "addl $1, (%0)" ::"r"(a) : "memory");
	asm volatile(AT("at_locked") "lock xaddw %w1, 2(%0)" ::"r"(a), "r"(1L) : "memory");
	asm volatile(AT("at_xchg") "xchgq %1, 8(%0)" ::"r"(a), "r"(1L) : "memory");
	asm volatile(AT("at_scaled") "movl 4(%0,%1,8), %%eax" ::"r"(b), "r"(3L) : "rax");
	asm volatile(AT("at_lea") "leaq 4(%0,%1,8), %%rax" ::"r"(b), "r"(3L) : "rax");
	asm volatile(AT("at_prefetch") "prefetcht0 (%0)" ::"r"(b));
	asm volatile(AT("at_bit") "btsq %1, (%0)" ::"r"(a), "r"(131L) : "memory");
	asm volatile(AT("at_bit_below") "btl %k1, (%0)" ::"r"(a + 64), "r"(-33L) : "memory");
	d = (uint64_t)a, s = (uint64_t)b, c = 100;
	asm volatile(AT("at_movs") "rep movsb" : "+D"(d), "+S"(s), "+c"(c)::"memory");
	d = (uint64_t)(a + 200), s = (uint64_t)(b + 200), c = 10;
	asm volatile("std\n" AT("at_movs_down") "rep movsq\n cld" : "+D"(d), "+S"(s), "+c"(c)::"memory");
	d = (uint64_t)big, c = sizeof big; // so many that they cannot be stepped one by one
	asm volatile(AT("at_stos_long") "rep stosb" : "+D"(d), "+c"(c) : "a"(1) : "memory");
	d = (uint64_t)a, c = 0;
	asm volatile(AT("at_stos_none") "rep stosl" : "+D"(d), "+c"(c) : "a"(0) : "memory");
	d = (uint64_t)a, c = 256;
	asm volatile("movb $7, a+50(%%rip)\n" AT("at_scas") "repne scasb" : "+D"(d), "+c"(c) : "a"(7) : "memory");
	d = (uint64_t)a;
	asm volatile(AT("at_stos_one") "stosw" : "+D"(d) : "a"(0) : "memory");
	asm volatile("leaq 128+stack_top(%%rip), %%rax; xchgq %%rax, %%rsp\n" AT("at_push") "pushq %%rax\n" AT("at_pop_mem") "popq -64(%%rsp)\n"
		AT("at_call") "call *target(%%rip)\n" AT("at_after") "xchgq %%rax, %%rsp\n jmp 2f\n"
		"1: xchgq %%rax, %%rax\n" AT("at_ret") "ret\n 2:\n"
		".pushsection .data\n .balign 64\n stack_top: .skip 256\n target: .quad 1b\n .popsection\n" ::: "rax", "memory");
	asm volatile("vmovdqa indices(%%rip), %%ymm1; vmovdqa lanes(%%rip), %%ymm2\n" AT("at_gather") "vpgatherdd %%ymm2, (%0,%%ymm1,4), %%ymm0" ::"r"(b) : "xmm0", "xmm1", "xmm2");
	asm volatile("vmovdqa lanes(%%rip), %%ymm2\n" AT("at_masked") "vpmaskmovd %%ymm0, %%ymm2, (%0)" ::"r"(a) : "xmm0", "xmm2", "memory");
	if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl")) {
		asm volatile("movl $0x0ff1, %%eax; kmovd %%eax, %%k1\n" AT("at_mask_load") "vmovdqu8 (%0), %%ymm16%{%%k1%}%{z%}" ::"r"(b) : "rax", "xmm0");
		asm volatile(AT("at_compress") "vpcompressd %%zmm0, (%0)%{%%k1%}" ::"r"(a) : "memory");
		asm volatile("kxorq %%k2, %%k2, %%k2\n" AT("at_mask_none") "vmovdqu32 %%zmm0, (%0)%{%%k2%}" ::"r"(a) : "memory");
	}
	uint64_t flags;
	asm volatile("subq $128, %%rsp\n" AT("at_pushf") "pushfq; popq %0; addq $128, %%rsp" : "=r"(flags));
	asm volatile("movl $39, %%eax; syscall; movq %%r11, %0" : "=r"(c)::"rax", "rcx", "r11");
	printf("%d %d\n", (int)(flags >> 8 & 1), (int)(c >> 8 & 1));
	return x == word ? 0 : 1;
}
