package x86

import (
	"strconv"
	"strings"
)

// A row is a line of factsTable, read.
type row struct {
	operands             []Access
	fRead, fWrite, fKeep Flags
	fUndefined           Flags
	read, write, keep    RegSet
	accRead, accWrite    bool // the accumulator at the operand's size
	accKeep              bool // it may keep its old value
	dxRead, dxWrite      bool
	flow                 Flow
	kind                 MemKind
	push, pop            int    // bytes; -1: by operand size
	str                  string //
	unit                 uint16 // size of a string operation's element
	at                   Reg
	atAccess             Access
	atSize               uint16
	size                 int    // of the explicit operand; -1: as decoded
	special              string // what apply knows by name
	lock                 bool
	quirk                quirk
}

// A quirk is something about an operation that the table does not say and apply must know.
type quirk uint8

const (
	quirkLocked   quirk = iota + 1 // atomic without a lock prefix
	quirkAddress                   // computes an address, or names one
	quirkFar                       // the operand is a selector and an offset
	quirkEnv                       // the x87 environment, whose size goes by the operand size
	quirkState                     // the x87 state, likewise
	quirkAX                        // writes part of rax
	quirkDX                        // writes part of rdx
	quirkCompared                  // cmpxchg: the operand may keep its value
	quirkZeroes                    // gives the same, mostly zero, whatever a register holds, with itself
	quirkJecxz                     // with an address-size prefix it has another name
)

var quirks = map[string]quirk{
	"xchg": quirkLocked, "lea": quirkAddress, "nop": quirkAddress, "lss": quirkFar, "lfs": quirkFar, "lgs": quirkFar, "callf": quirkFar, "jmpf": quirkFar,
	"fldenv": quirkEnv, "fnstenv": quirkEnv, "fnsave": quirkState, "frstor": quirkState, "cbw": quirkAX, "cwd": quirkDX, "cmpxchg": quirkCompared,
	"xor": quirkZeroes, "sub": quirkZeroes, "sbb": quirkZeroes, "cmp": quirkZeroes, "pxor": quirkZeroes, "xorps": quirkZeroes, "xorpd": quirkZeroes,
	"vpxor": quirkZeroes, "jrcxz": quirkJecxz,
}

// rowOf gives the facts of an operation with a number of operands, nil if there are none. Vector operations that the table does not name have those that most have.
func rowOf(name string, args int) *row {
	if l, ok := facts[name+"/"+strconv.Itoa(args)]; ok {
		return l.row(name)
	}
	if l, ok := facts[name]; ok {
		return l.row(name)
	}
	if name[0] != 'v' && name[0] != 'k' {
		return nil
	}
	if strings.HasPrefix(name, "vf") && (strings.Contains(name, "132") || strings.Contains(name, "213") || strings.Contains(name, "231")) {
		return fmaRow
	}
	return plainVector
}

// A factsLine is a line of factsTable, in its columns.
type factsLine [5]string

// row reads the line for one of its operations, whose name is without the number of operands.
func (l factsLine) row(name string) *row {
	r := parseRow(l[:])
	if r.str != "" {
		r.unit = map[byte]uint16{'b': 1, 'w': 2, 'd': 4, 'q': 8}[name[len(name)-1]]
	}
	if strings.HasPrefix(name, "push") || strings.HasPrefix(name, "pop") {
		r.lock = false
	}
	r.quirk = quirks[name]
	return r
}

// factsLines gives the table's lines by the names that they are for.
func factsLines() map[string]factsLine {
	lines := make(map[string]factsLine, 1024)
	add := func(name string, l factsLine) {
		if _, twice := lines[name]; twice {
			panic("BUG: x86: two rows for " + name)
		}
		lines[name] = l
	}
	for line := range strings.SplitSeq(strings.TrimSpace(factsTable), "\n") {
		var l factsLine
		copy(l[:], strings.Split(line, "|"))
		for name := range strings.FieldsSeq(l[0]) {
			add(name, l)
		}
	}
	for cc, flags := range conditions {
		add("j"+cc, factsLine{"", "-", "r:" + flags, "", "cond"})
		add("set"+cc, factsLine{"", "w", "r:" + flags, "", ""})
		add("cmov"+cc, factsLine{"", "xr", "r:" + flags, "", ""})
	}
	return lines
}

func parseFlags(s string) (f Flags) {
	for _, c := range s {
		if flagLetters[c] == 0 {
			panic("BUG: x86: flags " + s)
		}
		f |= flagLetters[c]
	}
	return f
}

var (
	flagLetters   = map[rune]Flags{'o': OF, 's': SF, 'z': ZF, 'a': AF, 'p': PF, 'c': CF, 'd': DF, 'i': IF, 't': TF, 'l': AC, '*': FlagsArith}
	accessLetters = map[rune]Access{'-': None, 'r': Read, 'w': Write, 'x': ReadWrite}
)

var unitNames = map[string]RegSet{
	"x87": SetX87, "mxcsr": SetMXCSR, "seg": SetSeg, "pkru": SetPKRU, "ssp": SetSSP, "sys": SetSys, "vec": SetVec,
	"xmm0": 1 << 16, "low": 0xffff << 16, "all": SetX87 | SetMXCSR | SetVec | SetMask | SetPKRU,
	"ax": 1 << 0, "cx": 1 << 1, "dx": 1 << 2, "bx": 1 << 3, "sp": 1 << 4, "bp": 1 << 5, "si": 1 << 6, "di": 1 << 7,
	"8": 1 << 8, "9": 1 << 9, "10": 1 << 10, "11": 1 << 11,
}

var flowNames = map[string]Flow{
	"": FlowNone, "jmp": FlowJump, "cond": FlowCond, "loop": FlowLoop, "call": FlowCall, "ret": FlowRet, "far": FlowFar,
	"sys": FlowSyscall, "trap": FlowTrap, "halt": FlowHalt, "tx": FlowTransaction,
}

var kindNames = map[string]MemKind{
	"nt": MemNonTemporal, "hint": MemHint, "bit": MemBit, "state": MemState, "masked": MemMasked, "gather": MemGather | MemMasked,
	"scatter": MemScatter | MemMasked,
}

func parseRow(f []string) *row {
	r := &row{size: -1}
	for _, c := range strings.TrimSpace(f[1]) {
		a, ok := accessLetters[c]
		if !ok {
			panic("BUG: x86: operands " + f[1])
		}
		r.operands = append(r.operands, a)
	}
	for _, s := range strings.Fields(f[2]) {
		switch s[:2] {
		case "r:":
			r.fRead |= parseFlags(s[2:])
		case "w:":
			r.fWrite |= parseFlags(s[2:])
		case "u:":
			r.fWrite |= parseFlags(s[2:])
			r.fUndefined |= parseFlags(s[2:])
		case "k:":
			r.fWrite |= parseFlags(s[2:])
			r.fKeep |= parseFlags(s[2:])
		default:
			panic("BUG: x86: flags " + f[2])
		}
	}
	for _, s := range strings.Fields(f[3]) {
		r.effect(s)
	}
	flow, ok := flowNames[strings.TrimSpace(f[4])]
	if !ok {
		panic("BUG: x86: flow " + f[4])
	}
	r.flow = flow
	return r
}

// effect reads a word of the table's fourth column.
func (r *row) effect(s string) {
	verb, what, colon := strings.Cut(s, ":")
	switch {
	case colon && verb == "str":
		r.str = what
		return
	case colon && verb == "size":
		n, err := strconv.Atoi(what)
		if err != nil {
			panic("BUG: x86: " + s)
		}
		r.size = n
		return
	case colon && verb == "at":
		p := strings.Split(what, "/")
		n, err := strconv.Atoi(p[2])
		if err != nil {
			panic("BUG: x86: " + s)
		}
		r.at, r.atSize = map[string]Reg{"di": RDI, "ax": RAX}[p[0]], uint16(n)
		r.atAccess = map[string]Access{"r": Read, "w": Write}[p[1]]
		return
	case colon:
		read, write := verb == "r" || verb == "x", verb != "r"
		switch what {
		case "A", "AD":
			r.accRead, r.accWrite, r.accKeep = r.accRead || read, r.accWrite || write, r.accKeep || verb == "k"
			if what == "AD" {
				r.dxRead, r.dxWrite = r.dxRead || read, r.dxWrite || write
			}
			return
		}
		set, ok := unitNames[what]
		if !ok || !strings.Contains("rwxk", verb) {
			panic("BUG: x86: " + s)
		}
		if read {
			r.read |= set
		}
		if write {
			r.write |= set
		}
		if verb == "k" {
			r.keep |= set
		}
		return
	}
	if k, ok := kindNames[s]; ok {
		r.kind |= k
		return
	}
	size := func(prefix string) int {
		n := -1
		if t := strings.TrimPrefix(s, prefix); t != "" {
			var err error
			if n, err = strconv.Atoi(t); err != nil {
				panic("BUG: x86: " + s)
			}
		}
		return n
	}
	switch {
	case s == "lock":
		r.lock = true
	case strings.HasPrefix(s, "push"):
		r.push = size("push")
	case strings.HasPrefix(s, "pop"):
		r.pop = size("pop")
	case s == "count", s == "enter", s == "leave", s == "xlat", s == "dir64", s == "four", s == "pairk", s == "lock0":
		r.special = s
	default:
		panic("BUG: x86: " + s)
	}
}
