package x86

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// notRun are the operations that the oracle does not run, and why.
var notRun = func() map[string]string {
	list := map[string]string{}
	for reason, names := range map[string]string{
		"enters the kernel":              "syscall sysenter int int1 int3",
		"raises an exception on purpose": "ud0 ud1 ud2",
		"privileged": "hlt cli sti in out insb insw insd outsb outsw outsd clts invd wbinvd wbnoinvd rdmsr wrmsr rdpmc lgdt lidt " +
			"lldt ltr lmsw invlpg invpcid swapgs xsetbv monitor mwait sysexit sysret rsm getsec",
		"virtual machines": "vmcall vmlaunch vmresume vmxoff vmfunc vmptrld vmptrst vmclear vmxon vmread vmwrite invept invvpid " +
			"vmrun vmmcall vmload vmsave stgi clgi skinit invlpga",
		"SGX, user interrupts, key locker":              "encls enclu enclv pconfig senduipi clui stui uiret testui loadiwkey encodekey128 encodekey256 hreset enqcmd enqcmds",
		"the kernel's answer, not the machine's (UMIP)": "sgdt sidt sldt str smsw",
		"selectors: only few values do not fault":       "lss lfs lgs callf jmpf retf iret iretd iretq",
		"the shadow stack is off":                       "incsspd incsspq rstorssp clrssbsy setssbsy saveprevssp wrssd wrssq wrussd wrussq",
		"off where seccomp is strict":                   "rdtsc rdtscp",
		"waits":                                         "tpause umwait umonitor monitorx mwaitx",
		"transactions end at a single step":             "xbegin xend xabort",
		"needs a valid image of the state":              "xrstors xrstors64 xsaves xsaves64",
	} {
		for _, n := range strings.Fields(names) {
			list[n] = reason
		}
	}
	return list
}()

// varies are the operations that give another answer each time: of them only what they change is checked.
var varies = map[string]bool{"rdrand": true, "rdseed": true, "rdpru": true}

// refuses says why an instruction of an operation that may be run is not.
func refuses(in *Inst) string {
	if r := notRun[in.Op]; r != "" {
		return r
	}
	if strings.HasSuffix(in.Op, "fsbase") || strings.HasSuffix(in.Op, "gsbase") {
		const fsgsbase = 1 << 1 // of AT_HWCAP2
		if v, err := auxv(26); err == nil && v&fsgsbase == 0 {
			return "the kernel does not know of FSGSBASE: if the instructions run, ptrace does not see what they write"
		}
	}
	if mems := in.Mems(); len(mems) > 0 && mems[0].Kind&MemBit != 0 && in.Args()[1].Reg.Set()&(mems[0].Base.Set()|mems[0].Index.Set()) != 0 {
		return "the bit's number is part of its address"
	}
	if a := in.Args(); in.Op == "movdir64b" && (in.mems[0].Base.Set()|in.mems[0].Index.Set())&a[0].Reg.Set() != 0 {
		return "one register must be aligned and another address"
	} else if (in.Op == "div" || in.Op == "idiv") && (a[0].Reg == AH || a[0].Reg.Class() == ClassGPR && a[0].Reg.Num() == 2 && a[0].Reg.Size() > 1) {
		return "the quotient never fits"
	}
	for _, a := range in.Args() {
		if a.Kind == ArgReg && (a.Reg.Class() == ClassSys || a.Reg.Class() == ClassSeg && a.Access&Write != 0) {
			return "moves to control registers and selectors"
		}
	}
	return ""
}

// A subject is an instruction under test.
type subject struct {
	in   Inst
	code []byte
	rip  uint64
}

// value gives what a register of an address holds.
func (st *state) value(r Reg) uint64 {
	v := st.gpr[r.Num()&15]
	switch r.Size() {
	case 1:
		if r >= AH && r < AX {
			return v >> 8 & 0xff
		}
		return v & 0xff
	case 2:
		return v & 0xffff
	case 4:
		return v & 0xffffffff
	}
	return v
}

// address gives the address of an access, of gathers and scatters that of the vector's zero.
func (st *state) address(in *Inst, m Mem) uint64 {
	a := uint64(m.Disp) + uint64(int64(m.Bias))
	narrow := m.Base.Size() == 4 || m.Index.Class() == ClassGPR && m.Index.Size() == 4
	switch m.Base.Class() {
	case ClassIP:
		a += st.rip + uint64(in.Len)
	case ClassGPR:
		a += st.value(m.Base)
	}
	if m.Index.Class() == ClassGPR {
		a += st.value(m.Index) * uint64(m.Scale)
	}
	if narrow {
		a &= 0xffffffff
	}
	switch m.Seg {
	case FS:
		a += st.fs
	case GS:
		a += st.gs
	}
	return a
}

// once runs the prepared instruction, all rounds of a repeated one.
func (s *sandbox) once(tb testing.TB, p *prepared) (*state, unix.Signal) {
	page := s.code
	base := uint64(codeAt)
	if p.rip >= farAt {
		page, base = s.far, farAt
	}
	copy(page[p.rip-base:], p.code)
	// Where the host executes CPUID for the guest and loses the trap flag, a step over it takes the next instruction along, which must not be what an instruction before left there.
	end := p.rip + uint64(len(p.code))
	if p.in.Op == "cpuid" {
		page[end-base] = 0x90
	}
	steps := 1
	if p.in.Rep || p.in.Repne {
		steps = 16
	}
	out, sig := s.run(tb, p.st, steps, func(rip uint64) bool { return rip != p.rip })
	if p.in.Op == "cpuid" && out.rip == end+1 {
		out.rip = end
	}
	return out, sig
}

// flagsSeen are the flags that the oracle looks at. Stepping sets and hides TF.
const flagsSeen = FlagsArith | DF | IF | AC

// unchanged says what the instruction changed that its facts do not say, "" if nothing.
func (s *sandbox) unchanged(p *prepared, out *state) string {
	in := &p.in
	var wrong []string
	add := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	for i := range 16 {
		if r := RAX + Reg(i); !in.Writes.Has(r) && out.gpr[i] != p.st.gpr[i] {
			add("changed %v from %#x to %#x", r, p.st.gpr[i], out.gpr[i])
		}
	}
	if f := Flags(out.flags^p.st.flags) & flagsSeen &^ in.FlagsWritten; f != 0 {
		add("changed flags %s", flagText(f))
	}
	for i := range 32 {
		a, b := p.st.vec(s, i), out.vec(s, i)
		for j := range a {
			if !in.Writes.Has(XMM0+Reg(i)) && !bytes.Equal(a[j], b[j]) {
				add("changed zmm%d", i)
				break
			}
		}
	}
	for i := range 8 {
		o := s.off.mask + 8*i
		if !in.Writes.Has(K0+Reg(i)) && !bytes.Equal(p.st.x[o:o+8], out.x[o:o+8]) {
			add("changed k%d", i)
		}
	}
	if in.Writes&SetX87 == 0 && !bytes.Equal(x87(p.st), x87(out)) {
		add("changed x87")
	}
	if in.Writes&SetMXCSR == 0 && !bytes.Equal(p.st.x[24:28], out.x[24:28]) {
		if binary.LittleEndian.Uint32(p.st.x[24:])&^0x3f != binary.LittleEndian.Uint32(out.x[24:])&^0x3f {
			add("changed mxcsr")
		}
	}
	if in.Writes&SetSeg == 0 && (p.st.fs != out.fs || p.st.gs != out.gs) {
		add("changed fs or gs")
	}
	list, _ := p.ranges()
	if a, ok := s.outside(p.st, out, list); ok {
		add("wrote to memory at %#x, which is not %v", a, list)
	}
	return strings.Join(wrong, "; ")
}

// outside finds a byte that changed and is in none of the written ranges.
func (s *sandbox) outside(before, after *state, list []touched) (uint64, bool) {
	for i := range before.data {
		if bytes.Equal(before.data[i], after.data[i]) {
			continue
		}
	bytes:
		for j := range before.data[i] {
			if before.data[i][j] == after.data[i][j] {
				continue
			}
			a := dataAt[i] + uint64(j)
			for _, t := range list {
				if t.access&Write != 0 && !t.probe && a >= t.from && a < t.from+t.size {
					continue bytes
				}
			}
			return a, true
		}
	}
	return 0, false
}

// x87 gives the x87 state that programs see; pointers to the last instruction and operand are not among it.
func x87(st *state) []byte {
	return append(append([]byte{}, st.x[:5]...), st.x[32:160]...)
}

// shuffle gives another state, which differs in all that the instruction does not read.
func (s *sandbox) shuffle(p *prepared, rnd *rand.Rand) *prepared {
	q := *p
	q.st = p.st.clone()
	in := &p.in
	other := s.random(rnd)
	for i := range 16 {
		if !in.Reads.Has(RAX + Reg(i)) {
			q.st.gpr[i] = other.gpr[i]
		}
	}
	free := uint64(flagsSeen &^ in.FlagsRead &^ (IF | AC))
	q.st.flags = p.st.flags&^free | other.flags&free
	for i := range 32 {
		if !in.Reads.Has(XMM0 + Reg(i)) {
			for j, piece := range q.st.vec(s, i) {
				copy(piece, other.vec(s, i)[j])
			}
		}
	}
	for i := range 8 {
		if o := s.off.mask + 8*i; !in.Reads.Has(K0 + Reg(i)) {
			copy(q.st.x[o:o+8], other.x[o:o+8])
		}
	}
	if in.Reads&SetX87 == 0 && in.Writes&SetX87 == 0 {
		copy(q.st.x[:24], other.x[:24])
		copy(q.st.x[32:160], other.x[32:160])
	}
	if in.Reads&SetSeg == 0 {
		q.st.fs, q.st.gs = other.fs, other.gs
	}
	list, known := p.ranges()
	if known {
		read := func(a uint64) bool {
			for _, t := range list {
				if t.access&Read != 0 && a >= t.from && a < t.from+t.size {
					return true
				}
			}
			return false
		}
		for i := range q.st.data {
			for j := range q.st.data[i] {
				if !read(dataAt[i] + uint64(j)) {
					q.st.data[i][j] = other.data[i][j]
				}
			}
		}
	}
	return &q
}

// depends says in what the outcomes from two states differ that differ only in what the instruction does not read, "" if in nothing.
func (s *sandbox) depends(p *prepared, a, b *state) string {
	in := &p.in
	var wrong []string
	add := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	kept := in.Kept &^ in.Reads // of these the old value may be there still
	sure := in.Writes &^ kept
	if a.rip != b.rip {
		add("rip %#x or %#x", a.rip, b.rip)
	}
	for i := range 16 {
		if sure.Has(RAX+Reg(i)) && a.gpr[i] != b.gpr[i] {
			add("%v is %#x or %#x", RAX+Reg(i), a.gpr[i], b.gpr[i])
		}
	}
	if f := Flags(a.flags^b.flags) & flagsSeen & in.FlagsWritten &^ (in.FlagsKept &^ in.FlagsRead); f != 0 {
		add("flags %s", flagText(f))
	}
	for i := range 32 {
		for j, piece := range a.vec(s, i) {
			if sure.Has(XMM0+Reg(i)) && !bytes.Equal(piece, b.vec(s, i)[j]) {
				add("zmm%d", i)
				break
			}
		}
	}
	for i := range 8 {
		o := s.off.mask + 8*i
		if sure.Has(K0+Reg(i)) && !bytes.Equal(a.x[o:o+8], b.x[o:o+8]) {
			add("k%d", i)
		}
	}
	if sure&SetX87 != 0 && !bytes.Equal(x87(a), x87(b)) {
		add("x87")
	}
	if sure&SetMXCSR != 0 && !bytes.Equal(a.x[24:28], b.x[24:28]) {
		add("mxcsr")
	}
	list, known := p.ranges()
	for _, t := range list {
		for k := range t.size {
			x, y := a.at(t.from+k), b.at(t.from+k)
			if known && t.access&Write != 0 && !t.probe && x != nil && *x != *y {
				add("memory at %#x (%v)", t.from+k, list)
				break
			}
		}
	}
	return strings.Join(wrong, "; ")
}

// flow says whether the instruction pointer is where the facts let control go, "" if it is.
func (p *prepared) flow(out *state) string {
	next := p.rip + uint64(p.in.Len)
	target, _ := p.in.Target(p.rip)
	ok := out.rip == next
	switch p.in.Flow {
	case FlowJump, FlowCall:
		ok = out.rip == target
	case FlowCond, FlowLoop:
		ok = ok || out.rip == target
	case FlowRet, FlowIndirectJump, FlowIndirectCall:
		ok = true
	}
	if !ok {
		return fmt.Sprintf("rip is %#x", out.rip)
	}
	return ""
}

// auxv gives an entry of the auxiliary vector; 0 if there is none.
func auxv(kind uint64) (uint64, error) {
	b, err := os.ReadFile("/proc/self/auxv")
	for ; len(b) >= 16; b = b[16:] {
		if binary.LittleEndian.Uint64(b) == kind {
			return binary.LittleEndian.Uint64(b[8:]), nil
		}
	}
	return 0, err
}
