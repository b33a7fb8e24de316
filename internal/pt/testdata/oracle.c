// What libipt makes of a trace, for the tests of package pt. It reads requests from standard input and answers each on standard output, all
// numbers little-endian: a request is a byte that says what is wanted, four bytes of length, and the trace.
//
//	'p'  packets: records of what pt_pkt_next gives; after an error the decoder goes to the next PSB
//	'i'  instructions: records of what pt_insn_next gives, over the image that was sent before
//	'm'  not a trace but an image: pages of an address and 4096 bytes, replacing the image before
//	't'  how long packets take: the nanoseconds of CPU time of one pass, best of five, in one record
//	'n'  the same for instructions
//
// An answer is four bytes with the number of records, and the records.
#include <intel-pt.h>

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct record {
	uint64_t offset;
	int32_t status; // of libipt: an error if below zero
	uint8_t kind, form, flag, size;
	uint32_t extra, count;
	uint64_t value;
};

enum { page_bytes = 4096 };

struct page {
	uint64_t address;
	uint8_t bytes[page_bytes];
};

static struct record *records;
static size_t used, room;
static uint8_t *image;
static size_t pages;

static void die(const char *what) {
	fprintf(stderr, "oracle: %s\n", what);
	exit(1);
}

static void add(struct record r) {
	if (used == room) {
		room = room ? room * 2 : 4096;
		records = realloc(records, room * sizeof(*records));
		if (!records) {
			die("no memory");
		}
	}
	records[used++] = r;
}

// The numbers are package pt's kinds.
static void fill(struct record *r, const struct pt_packet *p) {
	enum { Bad, PAD, PSB, PSBEND, TNT8, TNT64, TIP, TIPPGE, TIPPGD, FUP, ModeExec, ModeTSX, PIP, VMCS, TSC, TMA, MTC, CYC, CBR, OVF, PTW, EXSTOP, MWAIT,
	       PWRE, PWRX, BBP, BIP, BEP, CFE, EVD, TraceStop, MNT };
	switch (p->type) {
	case ppt_pad: r->kind = PAD; break;
	case ppt_psb: r->kind = PSB; break;
	case ppt_psbend: r->kind = PSBEND; break;
	case ppt_ovf: r->kind = OVF; break;
	case ppt_stop: r->kind = TraceStop; break;
	case ppt_tnt_8:
	case ppt_tnt_64:
		r->kind = p->type == ppt_tnt_8 ? TNT8 : TNT64, r->form = p->payload.tnt.bit_size, r->value = p->payload.tnt.payload;
		break;
	case ppt_tip: r->kind = TIP; goto ip;
	case ppt_tip_pge: r->kind = TIPPGE; goto ip;
	case ppt_tip_pgd: r->kind = TIPPGD; goto ip;
	case ppt_fup:
		r->kind = FUP;
	ip:
		r->form = p->payload.ip.ipc, r->value = p->payload.ip.ip;
		break;
	case ppt_mode:
		if (p->payload.mode.leaf == pt_mol_exec) {
			r->kind = ModeExec, r->value = p->payload.mode.bits.exec.csl | p->payload.mode.bits.exec.csd << 1;
		} else {
			r->kind = ModeTSX, r->value = p->payload.mode.bits.tsx.intx | p->payload.mode.bits.tsx.abrt << 1;
		}
		break;
	case ppt_pip: r->kind = PIP, r->value = p->payload.pip.cr3, r->flag = p->payload.pip.nr; break;
	case ppt_vmcs: r->kind = VMCS, r->value = p->payload.vmcs.base; break;
	case ppt_cbr: r->kind = CBR, r->value = p->payload.cbr.ratio; break;
	case ppt_tsc: r->kind = TSC, r->value = p->payload.tsc.tsc; break;
	case ppt_tma: r->kind = TMA, r->value = p->payload.tma.ctc, r->extra = p->payload.tma.fc; break;
	case ppt_mtc: r->kind = MTC, r->value = p->payload.mtc.ctc; break;
	case ppt_cyc: r->kind = CYC, r->value = p->payload.cyc.value; break;
	case ppt_mnt: r->kind = MNT, r->value = p->payload.mnt.payload; break;
	case ppt_exstop: r->kind = EXSTOP, r->flag = p->payload.exstop.ip; break;
	case ppt_mwait: r->kind = MWAIT, r->value = p->payload.mwait.hints, r->extra = p->payload.mwait.ext; break;
	case ppt_pwre:
		// libipt looks for the HW bit at bit 3; the manual and Linux have it at bit 7.
		r->kind = PWRE, r->value = (uint64_t)p->payload.pwre.state << 4 | p->payload.pwre.sub_state;
		break;
	case ppt_pwrx:
		// libipt has no place for bit 9, another wake reason.
		r->kind = PWRX, r->value = p->payload.pwrx.deepest | (uint64_t)p->payload.pwrx.last << 4 | (uint64_t)p->payload.pwrx.interrupt << 8 |
					   (uint64_t)p->payload.pwrx.store << 10 | (uint64_t)p->payload.pwrx.autonomous << 11;
		break;
	case ppt_ptw: r->kind = PTW, r->value = p->payload.ptw.payload, r->form = p->payload.ptw.plc, r->flag = p->payload.ptw.ip; break;
	default: die("a packet that the header does not name");
	}
	r->size = p->size;
}

// The clocks that package pt's tests encode with.
static struct pt_config config(uint8_t *trace, size_t len) {
	struct pt_config c;
	pt_config_init(&c);
	c.begin = trace;
	c.end = trace + len;
	c.cpuid_0x15_eax = 2;
	c.cpuid_0x15_ebx = 84;
	c.mtc_freq = 3;
	c.nom_freq = 21;
	return c;
}

static void packets(uint8_t *trace, size_t len) {
	struct pt_config c = config(trace, len);
	struct pt_packet_decoder *d = pt_pkt_alloc_decoder(&c);
	if (!d) {
		die("pt_pkt_alloc_decoder");
	}
	int status = pt_pkt_sync_set(d, 0);
	while (status >= 0) {
		struct record r = {0};
		struct pt_packet p;
		memset(&p, 0, sizeof(p));
		if (pt_pkt_get_offset(d, &r.offset) < 0) {
			die("pt_pkt_get_offset");
		}
		r.status = pt_pkt_next(d, &p, sizeof(p));
		if (r.status >= 0) {
			fill(&r, &p);
			add(r);
			continue;
		}
		if (r.status == -pte_eos && r.offset == len) {
			break;
		}
		add(r);
		status = pt_pkt_sync_forward(d);
	}
	pt_pkt_free_decoder(d);
}

static int by_address(const void *key, const void *element) {
	uint64_t a = *(const uint64_t *)key, b = ((const struct page *)element)->address;
	return a < b ? -1 : a > b;
}

static int from_image(uint8_t *buffer, size_t size, const struct pt_asid *asid, uint64_t ip, void *context) {
	(void)asid;
	(void)context;
	size_t done = 0;
	while (done < size) {
		uint64_t at = ip + done, base = at & ~(uint64_t)(page_bytes - 1);
		const struct page *p = bsearch(&base, image, pages, sizeof(*p), by_address);
		if (!p) {
			break;
		}
		size_t n = page_bytes - (at - base);
		if (n > size - done) {
			n = size - done;
		}
		memcpy(buffer + done, p->bytes + (at - base), n);
		done += n;
	}
	return done ? (int)done : -pte_nomap;
}

// instructions records each instruction (status 0, extra 1 when libipt already knows that the trace ends, value the address), each
// error, and the events that change the flow (kind 1 + the event's number, value its address).
static void instructions(uint8_t *trace, size_t len) {
	struct pt_config c = config(trace, len);
	struct pt_insn_decoder *d = pt_insn_alloc_decoder(&c);
	struct pt_image *im = d ? pt_insn_get_image(d) : NULL;
	if (!im || pt_image_set_callback(im, from_image, NULL) < 0) {
		die("pt_insn_alloc_decoder");
	}
	for (;;) {
		int status = pt_insn_sync_forward(d);
		if (status == -pte_eos) {
			break;
		}
		while (status >= 0) {
			while (status >= 0 && status & pts_event_pending) {
				struct pt_event ev;
				status = pt_insn_event(d, &ev, sizeof(ev));
				if (status < 0) {
					break;
				}
				struct record r = {.kind = (uint8_t)(1 + ev.type), .flag = ev.status_update};
				if (ev.type == ptev_overflow && !ev.ip_suppressed) {
					r.value = ev.variant.overflow.ip;
				} else if (ev.type == ptev_ptwrite) {
					r.value = ev.variant.ptwrite.payload;
				}
				add(r);
			}
			if (status < 0 || status & pts_eos) {
				break;
			}
			struct pt_insn insn;
			memset(&insn, 0, sizeof(insn));
			status = pt_insn_next(d, &insn, sizeof(insn));
			if (status >= 0 || insn.iclass != ptic_error) {
				struct record r = {.value = insn.ip, .size = insn.size, .extra = status >= 0 && status & pts_eos};
				uint64_t now = 0;
				if (pt_insn_time(d, &now, NULL, NULL) >= 0) {
					r.offset = now;
				}
				add(r);
			}
		}
		if (status >= 0) {
			break;
		}
		struct record r = {.status = status};
		if (pt_insn_get_offset(d, &r.offset) < 0) {
			r.offset = 0;
		}
		if (status == -pte_eos) {
			break;
		}
		add(r);
	}
	pt_insn_free_decoder(d);
}

static void timed(void (*f)(uint8_t *, size_t), uint8_t *trace, size_t len) {
	uint64_t best = UINT64_MAX;
	for (int i = 0; i < 5; i++) {
		struct timespec a, b;
		used = 0;
		clock_gettime(CLOCK_THREAD_CPUTIME_ID, &a);
		f(trace, len);
		clock_gettime(CLOCK_THREAD_CPUTIME_ID, &b);
		uint64_t ns = (uint64_t)(b.tv_sec - a.tv_sec) * 1000000000 + (uint64_t)b.tv_nsec - (uint64_t)a.tv_nsec;
		if (ns < best) {
			best = ns;
		}
	}
	struct record r = {.value = best, .count = (uint32_t)used};
	used = 0;
	add(r);
}

int main(void) {
	for (;;) {
		uint8_t what;
		uint32_t len;
		if (fread(&what, 1, 1, stdin) != 1) {
			return 0;
		}
		if (fread(&len, sizeof(len), 1, stdin) != 1) {
			die("a request without a length");
		}
		uint8_t *trace = malloc(len ? len : 1);
		if (!trace || fread(trace, 1, len, stdin) != len) {
			die("a request that ends early");
		}
		used = 0;
		switch (what) {
		case 'p': packets(trace, len); break;
		case 'i': instructions(trace, len); break;
		case 't': timed(packets, trace, len); break;
		case 'n': timed(instructions, trace, len); break;
		case 'm':
			free(image);
			image = trace, trace = NULL;
			pages = len / sizeof(struct page);
			break;
		default: die("an unknown request");
		}
		free(trace);
		uint32_t n = (uint32_t)used;
		if (fwrite(&n, sizeof(n), 1, stdout) != 1 || fwrite(records, sizeof(*records), used, stdout) != used || fflush(stdout)) {
			die("cannot answer");
		}
	}
}
