package x86

import (
	"strconv"
	"strings"

	"golang.org/x/arch/x86/x86asm"
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

// rowOf gives the facts of an operation with a number of operands, nil if there are none.
func rowOf(name string, args int) *row {
	if r := facts[name+"/"+strconv.Itoa(args)]; r != nil {
		return r
	}
	if r := facts[name]; r != nil {
		return r
	}
	if xopOnly[name] {
		return plainVector
	}
	return nil
}

// xopOperations are vector operations that x86asm does not know: no row is made of its list for them.
func xopOperations() map[string]bool {
	set := map[string]bool{}
	for _, line := range strings.Split(strings.TrimSpace(gapTable), "\n") {
		_, does, _ := strings.Cut(line, " = ")
		if does[0] == 'v' {
			set[strings.Fields(does)[0]] = true
		}
	}
	return set
}

func factsRows() map[string]*row {
	rows := map[string]*row{}
	add := func(name string, r *row) {
		if rows[name] != nil {
			panic("BUG: x86: two rows for " + name)
		}
		rows[name] = r
	}
	for _, line := range strings.Split(strings.TrimSpace(factsTable), "\n") {
		f := append(strings.Split(line, "|"), "", "", "", "")
		for _, name := range strings.Fields(f[0]) {
			r := parseRow(f)
			if r.str != "" {
				r.unit = map[byte]uint16{'b': 1, 'w': 2, 'd': 4, 'q': 8}[name[len(name)-1]]
			}
			if strings.HasPrefix(name, "push") || strings.HasPrefix(name, "pop") {
				r.lock = false
			}
			r.quirk = quirks[strings.SplitN(name, "/", 2)[0]]
			add(name, r)
		}
	}
	for cc, flags := range conditions {
		add("j"+cc, parseRow([]string{"", "-", "r:" + flags, "", "cond"}))
		add("set"+cc, parseRow([]string{"", "w", "r:" + flags, "", ""}))
		add("cmov"+cc, parseRow([]string{"", "xr", "r:" + flags, "", ""}))
	}
	fma := parseRow([]string{"", "xrr", "", "", ""})
	for op := x86asm.Op(1); ; op++ {
		name := strings.ToLower(op.String())
		if strings.HasPrefix(name, "op(") {
			if op > 3000 {
				break
			}
			continue
		}
		if rows[name] != nil || name[0] != 'v' && name[0] != 'k' {
			continue
		}
		if strings.HasSuffix(name, "_c5") || strings.HasPrefix(name, "vpcmp") && strings.HasSuffix(name, "64") {
			continue // x86asm's second names
		}
		fused := strings.Contains(name, "132") || strings.Contains(name, "213") || strings.Contains(name, "231")
		if fused && strings.HasPrefix(name, "vf") {
			rows[name] = fma
		} else {
			rows[name] = plainVector
		}
	}
	return rows
}

func parseFlags(s string) (f Flags) {
	letters := map[rune]Flags{'o': OF, 's': SF, 'z': ZF, 'a': AF, 'p': PF, 'c': CF, 'd': DF, 'i': IF, 't': TF, 'l': AC, '*': FlagsArith}
	for _, c := range s {
		if letters[c] == 0 {
			panic("BUG: x86: flags " + s)
		}
		f |= letters[c]
	}
	return f
}

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
		a, ok := map[rune]Access{'-': None, 'r': Read, 'w': Write, 'x': ReadWrite}[c]
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
