/* displace.c: one instruction, executed elsewhere (displace.h). Its length is found as internal/x86/layout.go finds it, with the same tables; Intel SDM vol. 2, appendix A. Nothing else of the
 * agent's is used here: a test runs this file alone. */
#include "displace.h"
#include <stdbool.h>

/* How opcodes go on: '-' nothing, 'm' ModRM, 'b' imm8, 'w' imm16, 'z' imm16 or 32, 'v' imm16, 32 or 64, 'o' a memory offset, 'r' rel8, 'R' rel32, 'e' imm16 and imm8, 'B' ModRM and imm8,
 * 'Z' ModRM and imm16 or 32, 't' and 'T' ModRM and, with /0 and /1 only, imm8 or imm16/32, 'Q' ModRM and imm32, '.' invalid, 'p' prefix or escape. */
static const char one_byte[] =
	"mmmmbz..mmmmbz.p" "mmmmbz..mmmmbz.." "mmmmbzp.mmmmbzp." "mmmmbzp.mmmmbzp."
	"pppppppppppppppp" "----------------" "..pmppppzZbB----" "rrrrrrrrrrrrrrrr"
	"BZ.Bmmmmmmmmmmmm" "----------.-----" "oooo----bz------" "bbbbbbbbvvvvvvvv"
	"BBw-ppBZe-w--b.-" "mmmm...-mmmmmmmm" "rrrrbbbbRR.r----" "p-pp--tT------mm";
static const char two_byte[] =
	"mmmm.-----.-.m-B" "mmmmmmmmmmmmmmmm" "mmmm....mmmmmmmm" "------.-p.p....."
	"mmmmmmmmmmmmmmmm" "mmmmmmmmmmmmmmmm" "mmmmmmmmmmmmmmmm" "BBBBmmm-mm..mmmm"
	"RRRRRRRRRRRRRRRR" "mmmmmmmmmmmmmmmm" "---mBm..---mBmmm" "mmmmmmmmmmBmmmmm"
	"mmBmBBBm--------" "mmmmmmmmmmmmmmmm" "mmmmmmmmmmmmmmmm" "mmmmmmmmmmmmmmmm";

enum { LEGACY, VEX, XOP, EVEX };
enum { ONE_BYTE, TWO_BYTE }; /* maps */
struct layout { unsigned form, map, op, modrm, at, length; bool data16, addr32, rep, wide, has_modrm, relative; };

/* Vector prefixes at code[i]: the map, and where the opcode is; 0: it goes on; -1: none of them. */
static int vector(struct layout *l, const uint8_t *code, unsigned i, unsigned room)
{
	unsigned b = code[i], size = b == 0xc5 ? 2 : b == 0x62 ? 4 : 3;
	if (i + size >= room)
		return 0;
	l->form = b == 0x62 ? EVEX : b == 0x8f ? XOP : VEX;
	l->map = b == 0xc5 ? TWO_BYTE : code[i + 1] & (b == 0x62 ? 7 : 0x1f);
	l->op = code[i + size];
	l->at = i + size;
	return (int)(i + size + 1);
}

static char kind_of_vector(const struct layout *l)
{
	if ((l->form == XOP && l->map == 8) || (l->form != XOP && l->map == 3))
		return 'B';
	if ((l->form == XOP && l->map == 10) || (l->form == VEX && l->map == 7))
		return 'Q';
	if (l->form == XOP || l->map != TWO_BYTE)
		return 'm';
	switch (l->op) {
	case 0x70: case 0x71: case 0x72: case 0x73: case 0xc2: case 0xc4: case 0xc5: case 0xc6:
		return 'B';
	case 0x77:
		return l->form == VEX ? '-' : 'm';
	}
	return 'm';
}

static unsigned immediate(const struct layout *l, char kind)
{
	unsigned z = l->data16 && !l->wide ? 2 : 4;
	switch (kind) {
	case 'b': case 'r': case 'B':
		return 1;
	case 't':
		return (l->modrm >> 3 & 7) <= 1;
	case 'w':
		return 2;
	case 'e':
		return 3;
	case 'z': case 'Z':
		return z;
	case 'T':
		return (l->modrm >> 3 & 7) <= 1 ? z : 0;
	case 'v':
		return l->wide ? 8 : z;
	case 'o':
		return l->addr32 ? 4 : 8;
	case 'R': case 'Q':
		return 4;
	}
	return 0;
}

/* 1, 0 or -1 as rs_displace says. *disp is where a RIP-relative displacement is. */
static int measure(struct layout *l, const uint8_t *code, unsigned room, unsigned *disp)
{
	unsigned i = 0;
	for (;; i++) {
		if (i >= room)
			return -1;
		switch (code[i]) {
		case 0x26: case 0x2e: case 0x36: case 0x3e: case 0x64: case 0x65: case 0xf0:
			break;
		case 0x66:
			l->data16 = true;
			break;
		case 0x67:
			l->addr32 = true;
			break;
		case 0xf2: case 0xf3:
			l->rep = true;
			break;
		default:
			if ((code[i] & 0xf0) != 0x40)
				goto opcode;
			l->wide = code[i] & 8;
			continue;
		}
		l->wide = false; /* a REX prefix counts only right before the opcode */
	}
opcode:;
	char kind;
	unsigned b = code[i];
	if (b == 0x8f && i + 1 >= room)
		return -1;
	if (b == 0xc4 || b == 0xc5 || b == 0x62 || (b == 0x8f && (code[i + 1] & 0x1f) >= 8)) {
		int next = vector(l, code, i, room);
		if (next == 0)
			return -1;
		i = (unsigned)next;
		kind = kind_of_vector(l);
	} else {
		l->op = b;
		l->at = i++;
		kind = one_byte[b];
		if (b == 0x0f) {
			if (i >= room)
				return -1;
			l->map = TWO_BYTE;
			l->op = code[i++];
			kind = two_byte[l->op];
			if (l->op == 0x38 || l->op == 0x3a) {
				l->map = l->op == 0x38 ? 2 : 3;
				kind = l->op == 0x38 ? 'm' : 'B';
				if (i >= room)
					return -1;
				l->op = code[i++];
			} else if (l->op == 0x0f) {
				l->map = 15; /* 3DNow!, with its opcode behind the operands */
			}
		}
	}
	if (kind == '.' || kind == 'p')
		return 0;
	if (kind == 'm' || kind == 'B' || kind == 'Z' || kind == 't' || kind == 'T' || kind == 'Q') {
		if (i >= room)
			return -1;
		l->has_modrm = true;
		l->modrm = code[i++];
		unsigned mod = l->modrm >> 6, rm = l->modrm & 7, size = mod == 1 ? 1 : mod == 2 ? 4 : 0, base = rm;
		bool memory = mod != 3 && !(l->form == LEGACY && l->map == TWO_BYTE && l->op >= 0x20 && l->op <= 0x23);
		if (memory && rm == 4) {
			if (i >= room)
				return -1;
			base = code[i++] & 7;
		}
		if (memory && mod == 0 && base == 5) {
			size = 4;
			if (rm == 5) {
				l->relative = true;
				*disp = i;
			}
		}
		i += memory ? size : 0;
	}
	unsigned imm = immediate(l, kind);
	if (l->form == LEGACY && l->map == TWO_BYTE && l->op == 0x78 && (l->data16 || l->rep))
		imm = 2; /* extrq and insertq */
	l->length = i + imm;
	return l->length > RS_DISPLACED ? 0 : l->length > room ? -1 : 1;
}

/* Those of 0f 01 with a register that go on behind themselves: xgetbv and xsetbv, xtest, rdpkru and wrpkru, rdtscp. Not virtual machines' and the kernel's. */
static bool plain_system(unsigned modrm)
{
	return modrm == 0xd0 || modrm == 0xd1 || modrm == 0xd6 || modrm == 0xee || modrm == 0xef || modrm == 0xf9;
}

/* Control does not just go on behind it, or it tells where it lies. */
static bool flows(const struct layout *l)
{
	unsigned op = l->op, reg = l->modrm >> 3 & 7;
	if (l->form != LEGACY)
		return l->form == XOP && l->map == 9 && op == 0x12; /* llwpcb and slwpcb: nobody has them */
	switch (l->map) {
	case ONE_BYTE:
		return (op >= 0x70 && op <= 0x7f) || (op >= 0xe0 && op <= 0xe3) || op == 0xe8 || op == 0xe9 || op == 0xeb || op == 0xc2 || op == 0xc3 || (op >= 0xca && op <= 0xcf) || op == 0xf1 ||
			op == 0xf4 || (op == 0xff && reg >= 2 && reg <= 5) || ((op == 0xc6 || op == 0xc7) && l->modrm == 0xf8);
	case TWO_BYTE:
		return op == 0x05 || op == 0x07 || op == 0x0b || op == 0x34 || op == 0x35 || (op >= 0x80 && op <= 0x8f) || op == 0xaa || op == 0xb9 || op == 0xff ||
			(op == 0x01 && l->modrm >= 0xc0 && !plain_system(l->modrm));
	}
	return false;
}

int rs_displace(uint8_t dst[RS_DISPLACED], uintptr_t to, const uint8_t *code, unsigned room, uintptr_t from)
{
	struct layout l = {0};
	unsigned disp = 0;
	int r = measure(&l, code, room < RS_DISPLACED ? room : RS_DISPLACED, &disp);
	if (r < 0)
		return room < RS_DISPLACED ? -1 : 0;
	if (r == 0 || flows(&l))
		return 0;
	for (unsigned i = 0; i < l.length; i++)
		dst[i] = code[i];
	if (!l.relative)
		return (int)l.length;
	int64_t was = (int32_t)((uint32_t)code[disp] | (uint32_t)code[disp + 1] << 8 | (uint32_t)code[disp + 2] << 16 | (uint32_t)code[disp + 3] << 24);
	int64_t now = was + (int64_t)(from - to);
	if (l.addr32) /* the sum is cut to 32 bits */
		now = (int32_t)now;
	if (now != (int32_t)now)
		return 0;
	for (unsigned i = 0; i < 4; i++)
		dst[disp + i] = (uint8_t)((uint64_t)now >> 8 * i);
	return (int)l.length;
}
