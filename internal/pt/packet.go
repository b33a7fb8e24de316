package pt

import (
	"fmt"
	"math/bits"
	"strings"
)

// A Kind is a kind of packet.
type Kind uint8

// The packets. The comments say what Packet's fields hold; a field not named is zero. "IP" means that a FUP with the address follows.
const (
	Bad       Kind = iota
	PAD            //
	PSB            // packet stream boundary: the decoder may begin here
	PSBEND         // end of PSB+, the state that follows a PSB
	TNT8           // Form branches, 1 to 6, in Value; the oldest in the highest of the Form bits; 1: taken, or a compressed return
	TNT64          // the same, 1 to 47
	TIP            // target of an indirect branch, an interrupt, …: Form is an IPForm, Value the payload, zero-extended
	TIPPGE         // the same, where tracing begins (packet generation enable)
	TIPPGD         // the same, where tracing ends (packet generation disable)
	FUP            // the same, of a source (flow update)
	ModeExec       // Value: ExecCSL, ExecCSD, ExecIF
	ModeTSX        // Value: TSXInTX, TSXAbort
	PIP            // Value CR3, Flag non-root
	VMCS           // Value the physical address
	TSC            // Value the low 56 bits
	TMA            // Value the crystal clock's low 16 bits (CTC), Extra the 9 bits of TSC ticks since (FastCounter)
	MTC            // Value 8 bits of the crystal clock
	CYC            // Value core cycles since the last CYC
	CBR            // Value the core-to-bus frequency ratio
	OVF            // overflow: packets were lost
	PTW            // PTWRITE: Value the operand, Form 0: of 4 bytes, 1: of 8; Flag IP
	EXSTOP         // Flag IP
	MWAIT          // Value hints (EAX), Extra extensions (ECX)
	PWRE           // Value thread C-state·16 + sub-state, Flag by hardware
	PWRX           // Value deepest core C-state + last·16 + wake reason·256
	BBP            // block begin: Form the type, Flag items of 4 bytes instead of 8
	BIP            // block item: Form its number, Value the payload, Flag of 4 bytes
	BEP            // block end: Flag IP
	CFE            // control flow event: Form the type, Value the vector, Flag IP
	EVD            // event data: Form the type, Value the payload
	TraceStop      //
	MNT            // maintenance: Value the payload
	TRIG           // trigger: Value the triggers that hit, Form TrigMult and TrigCount, Extra the instruction count with TrigCount, Flag IP
	numKinds
)

// Bits of Value and Form.
const (
	ExecCSL  = 1 << 0 // with CSD clear: 64-bit mode
	ExecCSD  = 1 << 1 // with CSL clear: 32-bit, both clear: 16-bit
	ExecIF   = 1 << 2 // interrupts enabled (event trace)
	TSXInTX  = 1 << 0
	TSXAbort = 1 << 1

	TrigMult  = 1 << 0 // several triggers
	TrigCount = 1 << 1 // an instruction count is there
)

// An IPForm says how the payload of TIP, TIPPGE, TIPPGD and FUP gives an address (SDM: IPBytes).
type IPForm = uint8

// The forms; 5 and 7 are reserved.
const (
	IPNone     IPForm = 0 // no address: it is out of context
	IPUpdate16 IPForm = 1 // the low 16 bits, the others of the last address
	IPUpdate32 IPForm = 2
	IPSext48   IPForm = 3 // 48 bits, sign-extended
	IPUpdate48 IPForm = 4
	IPFull     IPForm = 6
)

var ipBytes = [8]int8{IPNone: 0, IPUpdate16: 2, IPUpdate32: 4, IPSext48: 6, IPUpdate48: 6, 5: -1, IPFull: 8, 7: -1}

// A Packet is one packet. What the fields hold is said at its Kind.
type Packet struct {
	Kind  Kind
	Len   uint8 // bytes in the stream
	Form  uint8
	Flag  bool
	Extra uint32
	Value uint64
}

// Limits of the format.
const (
	MaxTNT8  = 6
	MaxTNT64 = 47
	psbLen   = 16
	maxLen   = 16 // of a packet
)

const psbPattern = "\x02\x82\x02\x82\x02\x82\x02\x82\x02\x82\x02\x82\x02\x82\x02\x82"

// A place is a field of Packet.
type place uint8

const (
	inValue place = iota
	inExtra
	inForm
	inFlag
	mustZero // reserved, and checked, since it tells a broken stream early
)

// A field is bits of a packet: n of them from bit off of its bytes taken as a little-endian number, giving a value shifted left.
type field struct {
	to     place
	off, n uint8
	shift  uint8
}

// A layout is a row of the table of packets. The header's last byte is fixed but for the bits of free, which belong to fields. A size of 0
// means that the packet's own bits give it: sizeOf and the special cases of Next and Append know how.
type layout struct {
	name   string
	header string
	free   byte
	size   uint8
	fields []field
}

var layouts = [numKinds]layout{
	Bad:       {name: "bad"},
	PAD:       {"PAD", "\x00", 0, 1, nil},
	PSB:       {"PSB", "\x02\x82", 0, psbLen, nil},
	PSBEND:    {"PSBEND", "\x02\x23", 0, 2, nil},
	TNT8:      {"TNT", "\x00", 0xfe, 1, nil},
	TNT64:     {"TNT.64", "\x02\xa3", 0, 8, nil},
	TIP:       {"TIP", "\x0d", 0xe0, 0, nil},
	TIPPGE:    {"TIP.PGE", "\x11", 0xe0, 0, nil},
	TIPPGD:    {"TIP.PGD", "\x01", 0xe0, 0, nil},
	FUP:       {"FUP", "\x1d", 0xe0, 0, nil},
	ModeExec:  {"MODE.Exec", "\x99\x00", 0x1f, 2, []field{{inValue, 8, 3, 0}}},
	ModeTSX:   {"MODE.TSX", "\x99\x20", 0x1f, 2, []field{{inValue, 8, 2, 0}}},
	PIP:       {"PIP", "\x02\x43", 0, 8, []field{{inFlag, 16, 1, 0}, {inValue, 17, 47, 5}}},
	VMCS:      {"VMCS", "\x02\xc8", 0, 7, []field{{inValue, 16, 40, 12}}},
	TSC:       {"TSC", "\x19", 0, 8, []field{{inValue, 8, 56, 0}}},
	TMA:       {"TMA", "\x02\x73", 0, 7, []field{{inValue, 16, 16, 0}, {mustZero, 32, 8, 0}, {inExtra, 40, 9, 0}, {mustZero, 49, 7, 0}}},
	MTC:       {"MTC", "\x59", 0, 2, []field{{inValue, 8, 8, 0}}},
	CYC:       {"CYC", "\x03", 0xfc, 0, nil},
	CBR:       {"CBR", "\x02\x03", 0, 4, []field{{inValue, 16, 8, 0}}},
	OVF:       {"OVF", "\x02\xf3", 0, 2, nil},
	PTW:       {"PTW", "\x02\x12", 0xe0, 0, []field{{inForm, 13, 2, 0}, {inFlag, 15, 1, 0}, {inValue, 16, 64, 0}}},
	EXSTOP:    {"EXSTOP", "\x02\x62", 0x80, 2, []field{{inFlag, 15, 1, 0}}},
	MWAIT:     {"MWAIT", "\x02\xc2", 0, 10, []field{{inValue, 16, 32, 0}, {inExtra, 48, 32, 0}}},
	PWRE:      {"PWRE", "\x02\x22", 0, 4, []field{{inFlag, 23, 1, 0}, {inValue, 24, 8, 0}}},
	PWRX:      {"PWRX", "\x02\xa2", 0, 7, []field{{inValue, 16, 12, 0}}},
	BBP:       {"BBP", "\x02\x63", 0, 3, []field{{inForm, 16, 5, 0}, {inFlag, 23, 1, 0}}},
	BIP:       {"BIP", "\x04", 0xf8, 0, []field{{inForm, 3, 5, 0}, {inValue, 8, 64, 0}}},
	BEP:       {"BEP", "\x02\x33", 0x80, 2, []field{{inFlag, 15, 1, 0}}},
	CFE:       {"CFE", "\x02\x13", 0, 4, []field{{inForm, 16, 5, 0}, {inFlag, 23, 1, 0}, {inValue, 24, 8, 0}}},
	EVD:       {"EVD", "\x02\x53", 0, 11, []field{{inForm, 16, 5, 0}, {inValue, 24, 64, 0}}},
	TraceStop: {"TraceStop", "\x02\x83", 0, 2, nil},
	MNT:       {"MNT", "\x02\xc3\x88", 0, 11, []field{{inValue, 24, 64, 0}}},
	TRIG:      {"TRIG", "\xd9", 0, 0, []field{{inForm, 13, 2, 0}, {inFlag, 15, 1, 0}, {inValue, 16, 8, 0}, {inExtra, 24, 16, 0}}},
}

// opcodes and extensions give the kind by the first byte, and by the second behind 0x02.
var opcodes, extensions = func() (first, second [256]Kind) {
	for k := PAD; k < numKinds; k++ {
		l := &layouts[k]
		if k == BIP || k == MNT || len(l.header) == 2 && l.header[0] != 0x02 {
			continue // by context, by a third byte, by the leaf in the second
		}
		last := l.header[len(l.header)-1]
		for b := range 256 {
			if byte(b)&^l.free != last {
				continue
			}
			switch {
			case len(l.header) == 2:
				second[b] = k
			case k == TNT8 && b <= 0x02: // PAD and the extensions
			default:
				first[b] = k
			}
		}
	}
	first[0x02], first[0x99], second[0xc3] = extended, moded, maintained
	return first, second
}()

// Stand-ins in the tables above for what a further byte decides.
const (
	extended Kind = numKinds + iota
	moded
	maintained
)

// String gives the packet's name in the manual.
func (k Kind) String() string {
	if k < numKinds {
		return layouts[k].name
	}
	return fmt.Sprintf("Kind(%d)", uint8(k))
}

// HasIP says whether the packet is one with an IPForm.
func (k Kind) HasIP() bool { return k >= TIP && k <= FUP }

// String gives the packet for a human reader.
func (p Packet) String() string {
	s := p.Kind.String()
	switch {
	case p.Kind == TNT8 || p.Kind == TNT64:
		var b strings.Builder
		for i := int(p.Form) - 1; i >= 0; i-- {
			b.WriteByte("NT"[p.Value>>i&1])
		}
		return s + " " + b.String()
	case p.Kind.HasIP() && p.Form == IPNone:
		return s + " no ip"
	case p.Kind.HasIP():
		return fmt.Sprintf("%s %d: %#x", s, p.Form, p.Value)
	}
	if p.Form != 0 {
		s += fmt.Sprintf(" form=%d", p.Form)
	}
	if p.Value != 0 || layouts[p.Kind].has(inValue) || p.Kind == CYC {
		s += fmt.Sprintf(" %#x", p.Value)
	}
	if p.Extra != 0 {
		s += fmt.Sprintf(" extra=%#x", p.Extra)
	}
	if p.Flag {
		s += " flag"
	}
	return s
}

func (l *layout) has(where place) bool {
	for _, f := range l.fields {
		if f.to == where {
			return true
		}
	}
	return false
}

// A LastIP is the address that compressed ones refer to; a PSB and an OVF set it to the zero value.
type LastIP uint64

// Update gives the address of a packet with an IPForm, and whether there is one.
func (l *LastIP) Update(p *Packet) (ip uint64, ok bool) {
	last := uint64(*l)
	switch p.Form {
	case IPNone:
		return 0, false
	case IPUpdate16:
		ip = last&^0xffff | p.Value
	case IPUpdate32:
		ip = last&^0xffffffff | p.Value
	case IPUpdate48:
		ip = last&^0xffffffffffff | p.Value
	case IPSext48:
		ip = uint64(int64(p.Value<<16) >> 16)
	default:
		ip = p.Value
	}
	*l = LastIP(ip)
	return ip, true
}

// Compress sets form and payload of a packet with an address to the shortest that gives ip, and remembers it.
func (l *LastIP) Compress(p *Packet, ip uint64) {
	diff := uint64(*l) ^ ip
	switch {
	case diff>>16 == 0:
		p.Form, p.Value = IPUpdate16, ip&0xffff
	case diff>>32 == 0:
		p.Form, p.Value = IPUpdate32, ip&0xffffffff
	case uint64(int64(ip<<16)>>16) == ip:
		p.Form, p.Value = IPSext48, ip&0xffffffffffff
	case diff>>48 == 0:
		p.Form, p.Value = IPUpdate48, ip&0xffffffffffff
	default:
		p.Form, p.Value = IPFull, ip
	}
	*l = LastIP(ip)
}

// tnt splits the payload of a TNT packet, with its stop bit, into the number of branches and the branches.
func tnt(payload uint64) (n uint8, branches uint64) {
	if payload == 0 {
		return 0, 0
	}
	n = uint8(bits.Len64(payload) - 1)
	return n, payload &^ (1 << n)
}
