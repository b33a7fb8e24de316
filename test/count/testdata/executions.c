// A plugin for qemu's user mode (TCG): how often each instruction of a program began to execute. It shares nothing with ripstop: qemu finds the
// instructions, and qemu runs them.
//
// qemu runs each iteration of a string instruction with a rep prefix as an execution of its own, in a block that holds nothing else. Here the instruction is
// counted once: an execution follows another instruction, an iteration follows an iteration (`repeated`).
//
// What is used of qemu-plugin.h is declared below, since Debian 12 does not ship it: version 1 of the interface, which qemu has had since 6.2
// (https://qemu.org/docs/master/devel/tcg-plugins.html). Only programs with one thread: a cell is added to without a lock.
//
//   qemu-x86_64 -plugin ./executions.so,out=FILE PROGRAM
//
// FILE gets the text of /proc/self/maps at the end, an empty line, and for each address that ran a line "address executions" in hexadecimal and decimal.
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

typedef uint64_t qemu_plugin_id_t;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
enum { CB_NO_REGS = 0 };
enum { INLINE_ADD_U64 = 0 };

extern void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t, void (*)(qemu_plugin_id_t, struct qemu_plugin_tb *));
extern void qemu_plugin_register_vcpu_tb_exec_inline(struct qemu_plugin_tb *, int op, void *cell, uint64_t add);
extern void qemu_plugin_register_vcpu_insn_exec_inline(struct qemu_plugin_insn *, int op, void *cell, uint64_t add);
extern void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *, void (*)(unsigned, void *), int flags, void *data);
extern void qemu_plugin_register_atexit_cb(qemu_plugin_id_t, void (*)(qemu_plugin_id_t, void *), void *data);
extern size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *);
extern struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *, size_t);
extern uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *);
extern const void *qemu_plugin_insn_data(const struct qemu_plugin_insn *);
extern size_t qemu_plugin_insn_size(const struct qemu_plugin_insn *);

EXPORT int qemu_plugin_version = 1;

struct cell {
	struct cell *next;
	uint64_t addr, count;
	uint64_t last; // instructions begun when this one last was
};

enum { BUCKETS = 1 << 20 };
static struct cell *table[BUCKETS];
static uint64_t begun; // instructions in the blocks begun
static char out[4096];

static struct cell *cell_of(uint64_t addr)
{
	struct cell **p = &table[(addr ^ addr >> 20) % BUCKETS];
	while (*p && (*p)->addr != addr)
		p = &(*p)->next;
	if (!*p) {
		*p = calloc(1, sizeof **p);
		if (!*p) {
			fprintf(stderr, "executions.so: no memory\n");
			abort();
		}
		(*p)->addr = addr;
	}
	return *p;
}

// repeated counts a string instruction with a rep prefix. Between two executions at least one other instruction begins; an iteration is the next one that begins.
static void repeated(unsigned cpu, void *data)
{
	(void)cpu;
	struct cell *c = data;
	if (!c->count || begun != c->last + 1)
		c->count++;
	c->last = begun;
}

static bool is_repeated(struct qemu_plugin_insn *insn)
{
	const uint8_t *code = qemu_plugin_insn_data(insn);
	size_t n = qemu_plugin_insn_size(insn), i = 0;
	bool rep = false;
	for (; i < n; i++) {
		if (code[i] == 0xf2 || code[i] == 0xf3)
			rep = true;
		else if (code[i] != 0x66 && code[i] != 0x67 && (code[i] & 0xe7) != 0x26 && (code[i] & 0xfe) != 0x64)
			break;
	}
	if (i < n && (code[i] & 0xf0) == 0x40)
		i++;
	if (!rep || i >= n)
		return false;
	uint8_t op = code[i];
	return (op >= 0xa4 && op <= 0xa7) || (op >= 0xaa && op <= 0xaf) || (op >= 0x6c && op <= 0x6f);
}

static void translated(qemu_plugin_id_t id, struct qemu_plugin_tb *tb)
{
	(void)id;
	size_t n = qemu_plugin_tb_n_insns(tb);
	qemu_plugin_register_vcpu_tb_exec_inline(tb, INLINE_ADD_U64, &begun, n);
	for (size_t i = 0; i < n; i++) {
		struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);
		struct cell *c = cell_of(qemu_plugin_insn_vaddr(insn));
		if (is_repeated(insn))
			qemu_plugin_register_vcpu_insn_exec_cb(insn, repeated, CB_NO_REGS, c);
		else
			qemu_plugin_register_vcpu_insn_exec_inline(insn, INLINE_ADD_U64, &c->count, 1);
	}
}

static void ended(qemu_plugin_id_t id, void *data)
{
	(void)id;
	(void)data;
	FILE *f = fopen(out, "w"), *maps = fopen("/proc/self/maps", "r");
	char line[8192];
	if (!f || !maps) {
		perror(out);
		return;
	}
	while (fgets(line, sizeof line, maps))
		fputs(line, f);
	fputc('\n', f);
	for (size_t i = 0; i < BUCKETS; i++)
		for (struct cell *c = table[i]; c; c = c->next)
			if (c->count)
				fprintf(f, "%llx %llu\n", (unsigned long long)c->addr, (unsigned long long)c->count);
	if (fclose(f))
		perror(out);
}

EXPORT int qemu_plugin_install(qemu_plugin_id_t id, const void *info, int argc, char **argv)
{
	(void)info;
	for (int i = 0; i < argc; i++)
		if (!strncmp(argv[i], "out=", 4))
			snprintf(out, sizeof out, "%s", argv[i] + 4);
	if (!out[0]) {
		fprintf(stderr, "executions.so: say out=FILE\n");
		return -1;
	}
	qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
	qemu_plugin_register_atexit_cb(id, ended, NULL);
	return 0;
}
