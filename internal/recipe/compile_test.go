package recipe

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ripstop/ripstop/internal/patch"
	"github.com/ripstop/ripstop/internal/x86"
)

var soak = os.Getenv("RIPSTOP_SOAK") != ""

// A trial is a recipe for an instruction, with the state that it is run from.
type trial struct {
	w     *world
	site  Site
	ops   []Op
	live  x86.Live
	code  *Code
	regs  unix.PtraceRegs
	x     []byte
	tramp []byte // recipe, the instruction if the recipe has none, int3
	at    uint64 // where that lies
	plan  patch.Trampoline
}

// A result is what a run ends with.
type result struct {
	regs unix.PtraceRegs
	sig  unix.Signal
	x    []byte
	mem  map[*area][]byte
}

// ops makes random operations.
func (w *world) ops(rnd *rand.Rand, in *x86.Inst, depth int) (ops []Op) {
	for n := rnd.IntN(4 - depth); n > 0; n-- {
		switch rnd.IntN(7) {
		case 6:
			mems := 0
			if in != nil {
				mems = len(in.Mems())
			}
			if rnd.IntN(4) == 0 {
				ops = append(ops, Defer{Mem: w.tell(rnd, mems).Mem, At: deferredAt, Shape: uint8(rnd.Uint32())})
			} else {
				ops = append(ops, w.tell(rnd, mems))
			}
		case 0, 1, 2:
			c := Count{Of: Counter(rnd.IntN(3))}
			a := []*area{w.cells, w.cells, w.farCells}[rnd.IntN(3)]
			c.Cell = a.at + 8*rnd.Uint64N(uint64(len(a.mem))/8)
			if c.Of == PerThread {
				c.Cell -= w.delta()
			}
			ops = append(ops, c)
		case 3:
			ops = append(ops, w.call(rnd, 0))
		default:
			c := Check{Mem: rnd.IntN(2), Mask: byte(rnd.Uint32())}
			if in != nil && len(in.Mems()) > 0 {
				c.Mem %= len(in.Mems())
			}
			c.Table = []*area{w.table, w.farTable}[rnd.IntN(2)].at
			c.Shift = uint8(48 + rnd.IntN(16))
			if rnd.IntN(3) > 0 {
				c.Shift = uint8(rnd.IntN(32))
				c.Bits = c.Shift + 1 + uint8(rnd.IntN(16))
			}
			if depth < 2 {
				c.Then = w.ops(rnd, in, depth+1)
			}
			ops = append(ops, c)
		}
	}
	switch rnd.IntN(8) {
	case 0, 1:
		ops = append(ops, GS{})
	case 2:
		ops = append(ops, Emulate(w.call(rnd, 1)))
	}
	return ops
}

func (w *world) call(rnd *rand.Rand, emulate int) Call {
	wide := rnd.IntN(2)
	list := w.funcs[emulate|wide<<1]
	c := Call{Func: list[rnd.IntN(len(list))], General: wide == 0, Data: rnd.Uint64()}
	if rnd.IntN(2) == 0 {
		c.Data = uint64(rnd.IntN(100)) - 50
	}
	return c
}

// delta is what lies at fs:Env.Cells.
func (w *world) delta() uint64 { return 0x40 }

// a model is the thread that Run acts on.
type model struct {
	t        *trial
	regs     unix.PtraceRegs
	cells    map[uint64]uint64 // how often
	log      []Context         // Data of a Tell is toldData, Info its shape
	deferred [4]uint64         // a Defer's words, its shape for the mark's address
	done     bool              // the instruction does not run
}

// Address computes it from the facts, without what Compile knows.
func (m *model) Address(i int) uint64 {
	in := &m.t.site.Inst
	x := in.Mems()[i]
	value := func(r x86.Reg) uint64 {
		switch {
		case r == x86.NoReg:
			return 0
		case r.Class() == x86.ClassIP:
			return m.t.site.At + uint64(in.Len)
		}
		v := *gprs(&m.regs)[r.Num()]
		if r.Size() == 4 {
			v &= 0xffffffff
		}
		return v
	}
	v := value(x.Base) + value(x.Index)*uint64(x.Scale) + uint64(x.Disp) + uint64(int64(x.Bias))
	if x.Base.Size() == 4 || x.Index.Size() == 4 {
		v &= 0xffffffff
	}
	if x.Seg == x86.FS {
		v += m.regs.Fs_base
	}
	return v
}

func (m *model) Byte(addr uint64) byte { return m.t.w.bytes(addr, 1)[0] }

func (m *model) Add(cell uint64, of Counter) {
	if of == PerThread {
		cell += m.t.w.delta()
	}
	m.cells[cell]++
}

func (m *model) Call(f, data uint64, emulate bool) {
	c := Context{Flags: m.regs.Eflags, Site: m.t.site.At, Next: m.t.site.At + uint64(m.t.site.Inst.Len), Data: data}
	for i, p := range gprs(&m.regs) {
		c.GPR[i] = *p
	}
	for i, x := range m.t.site.Inst.Mems() {
		c.Info |= uint64(uint32(x.Size)|uint32(x.Access)<<16|uint32(x.Kind)<<18) << (32 * i)
		if x.Kind&(x86.MemAddress|x86.MemBit) == 0 && x.Seg != x86.GS && x.Index.Class() != x86.ClassVec && x.Index.Size() != 1 {
			c.Addr[i] = m.Address(i)
		}
	}
	m.log = append(m.log, c)
	if emulate {
		for i, p := range gprs(&m.regs) {
			if i != 4 {
				*p += uint64(i + 100)
			}
		}
		m.regs.Rsp -= 16
		m.regs.Eflags ^= flagsChanged
	}
}

func (m *model) Defer(_ int32, addr uint64, shape uint8) {
	m.deferred = [4]uint64{addr, uint64(shape), m.regs.Rsp, m.regs.Rbp}
}

func (m *model) Clear(int32) { m.deferred[0] = 0 }

func (m *model) Open(gate int32) bool { return gate == m.t.w.gates[1] }

func (m *model) Tell(_ int32, addr uint64, shape uint8) {
	c := Context{Flags: m.regs.Eflags, Site: m.t.site.At, Data: toldData, Info: uint64(shape)}
	for i, p := range gprs(&m.regs) {
		c.GPR[i] = *p
	}
	c.Addr[0] = addr
	m.log = append(m.log, c)
}

// runAt runs code from an address in a state.
func (w *world) runAt(tb testing.TB, at uint64, regs unix.PtraceRegs, x []byte) result {
	tb.Helper()
	regs.Rip = at
	w.regset(tb, unix.PTRACE_SETREGSET, x)
	r := result{regs: regs, mem: map[*area][]byte{}}
	r.sig = w.run(tb, &r.regs)
	r.x = make([]byte, len(x))
	w.regset(tb, unix.PTRACE_GETREGSET, r.x)
	for a := range w.was {
		r.mem[a] = bytes.Clone(a.mem)
	}
	return r
}

const int3 = 0xcc

// expected is what a run in place ends with behind what the recipe means: the registers and the memory of the program.
func (t *trial) expected(tb testing.TB) (result, *model) {
	m := &model{t: t, regs: t.regs, cells: map[uint64]uint64{}}
	w := t.w
	w.restore()
	end := Run(t.ops, m)
	code, at := t.site.Code[:t.site.Inst.Len], t.site.At
	switch end {
	case WithGS:
		at = w.refs.at + 64
		var err error
		if code, err = x86.WithGS(nil, &t.site.Inst, code, t.site.At, at); err != nil {
			tb.Fatalf("%v: %v", t.site.Inst, err)
		}
	case Done:
		m.done = true
		r := result{regs: m.regs, sig: unix.SIGTRAP, mem: map[*area][]byte{}, x: bytes.Clone(t.x)}
		w.regset(tb, unix.PTRACE_SETREGSET, r.x)
		w.regset(tb, unix.PTRACE_GETREGSET, r.x)
		for a, b := range w.was {
			r.mem[a] = b
		}
		r.regs.Rip = t.site.At + uint64(t.site.Inst.Len)
		return r, m
	}
	here := w.bytes(at, len(code)+1)
	copy(here, code)
	here[len(code)] = int3
	r := w.runAt(tb, at, m.regs, t.x)
	if r.sig == unix.SIGTRAP && r.regs.Rip == at+uint64(len(code))+1 {
		r.regs.Rip = t.site.At + uint64(t.site.Inst.Len)
	} else if r.regs.Rip == at {
		r.regs.Rip = t.site.At
	}
	return r, m
}

// make puts the trampoline in place.
func (t *trial) make(at uint64) error {
	code, states, err := t.code.Append(nil, at)
	if err != nil {
		return err
	}
	if len(code) > t.code.Size() {
		return fmt.Errorf("%d bytes, more than %d", len(code), t.code.Size())
	}
	t.at = at
	end := len(code)
	if !t.code.Replaces() {
		states = append(states, patch.State{Off: end, For: t.site.At, Resume: end})
		if code, err = x86.Relocate(code, &t.site.Inst, t.site.Code, t.site.At, at+uint64(end), x86.RefuseCalls); err != nil {
			return err
		}
	}
	states = append(states, patch.State{Off: len(code), For: t.site.At + uint64(t.site.Inst.Len), Resume: patch.Restart})
	t.tramp = append(code, int3)
	t.plan = patch.Trampoline{At: at, Code: t.tramp, States: states}
	b := t.plan.AppendStates(nil, t.site.At) // what the agent sees
	if t.plan.States, _, err = patch.ParseStates(b, t.site.At); err != nil {
		return err
	}
	copy(t.w.bytes(at, len(t.tramp)), t.tramp)
	return nil
}

// after are the registers and flags that are defined behind the instruction: what is live before it and what it writes.
func (t *trial) after(undone bool) (x86.RegSet, x86.Flags) {
	in, live := &t.site.Inst, t.code.live
	if undone {
		return live.Regs, live.Flags & (x86.FlagsArith | x86.DF)
	}
	regs := live.Regs | in.Writes&^in.Kept
	flags := live.Flags&^in.FlagsUndefined | in.FlagsWritten&^in.FlagsKept&^in.FlagsUndefined
	return regs, flags & (x86.FlagsArith | x86.DF)
}

// differVectors compares extended states: the legacy area without MXCSR's mask and what is reserved, and the upper halves.
func (w *world) differVectors(want, got []byte) string {
	for _, r := range [][2]int{{0, 28}, {32, 416}, {576, 832}} {
		for i := r[0]; i < r[1] && (i < 576 || w.xsave.Mask&4 != 0); i++ {
			if want[i] != got[i] {
				return fmt.Sprintf("byte %d of the extended state is %#x, not %#x", i, got[i], want[i])
			}
		}
	}
	return ""
}

// judge compares how a run of the trampoline ended with what is expected.
func (t *trial) judge(want result, m *model, got result) error {
	w := t.w
	// pop rsp may leave an address that is not canonical. An interrupt that comes then ends in a signal of its own on some processors (FRED's ERETU; SIGILL was seen at the int3
	// behind the instruction, on an AMD EPYC of family 26), which says nothing about the code.
	if rsp := want.regs.Rsp; uint64(int64(rsp)<<16>>16) != rsp {
		return nil
	}
	regs := got.regs
	if got.sig == unix.SIGTRAP && regs.Rip == t.at+uint64(len(t.tramp)) {
		regs.Rip = t.site.At + uint64(t.site.Inst.Len)
	} else if regs.Rip >= t.at && regs.Rip < t.at+uint64(len(t.tramp)) {
		regs, _ = t.view(regs)
	}
	if want.sig != got.sig || want.regs.Rip != regs.Rip {
		return fmt.Errorf("it ends at %#x (%v), not at %#x (%v); in the trampoline %+#x", regs.Rip, got.sig, want.regs.Rip, want.sig, got.regs.Rip-t.at)
	}
	live, flags := t.after(want.sig != unix.SIGTRAP || m.done)
	if d := differ(&want.regs, &regs, live, flags); d != "" {
		return errors.New(d)
	}
	if d := w.differVectors(want.x, got.x); d != "" {
		return errors.New(d)
	}
	for _, a := range []*area{w.data, w.stack} {
		for i, b := range got.mem[a] {
			if at := a.at + uint64(i); b != want.mem[a][i] && (a != w.stack || at >= t.regs.Rsp-128) {
				return fmt.Errorf("memory at %#x is %#x, not %#x", at, b, want.mem[a][i])
			}
		}
	}
	for _, a := range []*area{w.cells, w.farCells} {
		for i := 0; i < len(a.mem); i += 8 {
			at := a.at + uint64(i)
			was, is := binary.LittleEndian.Uint64(w.was[a][i:]), binary.LittleEndian.Uint64(got.mem[a][i:])
			if is-was != m.cells[at] {
				return fmt.Errorf("the cell at %#x has counted %d, not %d", at, is-was, m.cells[at])
			}
		}
	}
	return t.judgeLog(m, got)
}

// judgeLog compares the contexts of the calls.
func (t *trial) judgeLog(m *model, got result) error {
	log := got.mem[t.w.log]
	n := binary.LittleEndian.Uint64(log) - t.w.log.at - logStart
	if want := uint64(len(m.log)) * (ContextSize + 8); n != want {
		return fmt.Errorf("%d bytes of calls were logged, not %d", n, want)
	}
	log = log[logStart:]
	for i, want := range m.log {
		var c Context
		if _, err := binary.Decode(log, binary.LittleEndian, &c); err != nil {
			return err
		}
		here := binary.LittleEndian.Uint64(log[ContextSize:])
		log = log[ContextSize+8:]
		if want.Data == toldData {
			mark := t.w.bytes(c.Site, 8)
			if !bytes.Equal(mark[:3], tellMark[:]) || uint64(mark[3]) != want.Info {
				return fmt.Errorf("call %d: at the return address lie % x", i, mark)
			}
			c.Site += uint64(int64(int32(binary.LittleEndian.Uint32(mark[4:]))))
			if c.GPR[7] != c.Addr[0] {
				return fmt.Errorf("call %d: rdi is %#x, the log has %#x", i, c.GPR[7], c.Addr[0])
			}
			c.GPR[7], c.Next = c.Next, 0
			c.Info, here = want.Info, (want.GPR[4]-128-ContextSize)&^63
		}
		for r := range 16 {
			if c.GPR[r] != want.GPR[r] && t.code.live.Regs>>r&1 != 0 {
				return fmt.Errorf("call %d: register %d is %#x, not %#x", i, r, c.GPR[r], want.GPR[r])
			}
		}
		if d := (c.Flags ^ want.Flags) & uint64(t.code.live.Flags&(x86.FlagsArith|x86.DF)); d != 0 {
			return fmt.Errorf("call %d: flags are %#x, not %#x", i, c.Flags, want.Flags)
		}
		if here == 0 || here%64 != 0 || here+ContextSize > want.GPR[4]-128 {
			return fmt.Errorf("call %d: its context is at %#x, rsp is %#x", i, here, want.GPR[4])
		}
		c.GPR, c.Flags, want.GPR, want.Flags, want.Outer = [16]uint64{}, 0, [16]uint64{}, 0, 0
		if c != want {
			return fmt.Errorf("call %d: %+v, want %+v", i, c, want)
		}
	}
	var words [4]uint64
	for i := range words {
		words[i] = binary.LittleEndian.Uint64(got.mem[t.w.tls][tlsMid+deferredAt+8*i:])
	}
	if ret := words[1]; ret != 0 {
		mark, _ := TellMark(ret, t.site.At, uint8(m.deferred[1]))
		if [8]byte(t.w.bytes(ret, 8)) != mark {
			return fmt.Errorf("no mark is at %#x, where a Defer says", ret)
		}
		words[1] = m.deferred[1]
	}
	if !t.code.live.Regs.Has(x86.RBP) {
		words[3] = m.deferred[3]
	}
	if words != m.deferred {
		return fmt.Errorf("%#x are deferred, not %#x", words, m.deferred)
	}
	if v := binary.LittleEndian.Uint64(got.mem[t.w.tls][tlsMid+int(t.w.env.Context):]); v != 0 {
		return fmt.Errorf("fs:Context is %#x afterwards", v)
	}
	return nil
}

// randomTrial makes one of an instruction's bytes; false: there is nothing to try.
func (w *world) randomTrial(tb testing.TB, code []byte, rnd *rand.Rand) (*trial, bool) {
	in, err := x86.Decode(code)
	if err != nil || in.Flow != x86.FlowNone || unusable(&in) {
		return nil, false
	}
	t := &trial{w: w}
	t.site.At = w.text.at + 64 + rnd.Uint64N(64)
	t.site.Code = bytes.Clone(code[:in.Len])
	w.toData(&in, t.site.Code, t.site.At, rnd)
	t.site.Inst = in
	t.ops = w.ops(rnd, &in, 0)
	t.live = x86.AllLive
	if rnd.IntN(3) > 0 {
		t.live = x86.Live{Regs: x86.RegSet(rnd.Uint64()) | x86.SetVec | x86.SetMask | x86.SetX87, Flags: x86.Flags(rnd.Uint32()) | x86.DF}
	}
	if rnd.IntN(4) == 0 {
		t.live.Flags &^= x86.FlagsArith
	}
	t.code, err = Compile(t.ops, t.site, t.live, w.env)
	if err != nil {
		if !errors.Is(err, ErrAddress) && !errors.Is(err, x86.ErrNoGS) {
			tb.Errorf("%v: %v", in, err)
		}
		return nil, false
	}
	t.regs, t.x = w.randomRegs(rnd), w.randomVectors(rnd)
	w.aim(&in, &t.regs, rnd)
	w.randomMemory(rnd)
	binary.LittleEndian.PutUint64(w.tls.mem[tlsMid+int(w.env.Cells):], w.delta())
	clear(w.tls.mem[tlsMid+deferredAt:][:32])
	copy(w.was[w.tls], w.tls.mem)
	if err := t.make(w.tramp.at + 64*rnd.Uint64N(100)); err != nil {
		tb.Errorf("%v: %v", in, err)
		return nil, false
	}
	return t, true
}

func (t *trial) String() string {
	return fmt.Sprintf("%v (% x) at %#x, live %#x flags %#x, recipe %+v, %d bytes of code at %#x",
		t.site.Inst, t.site.Code, t.site.At, uint64(t.live.Regs), uint32(t.live.Flags), t.ops, len(t.tramp), t.at)
}

// trials runs f on random recipes for instructions of libraries, in worlds below 2 GiB and high up.
func trials(tb testing.TB, n int, seed uint64, f func(t *trial, rnd *rand.Rand)) {
	if testing.Short() { // under the race detector, which has nothing to see here
		n = max(n/10, 20)
	}
	var list []byte
	for _, file := range []string{libcFile, stdcppFile, pythonFile} {
		code, _ := textOf(tb, file)
		list = append(list, code...)
	}
	for i, base := range []uint64{0, 0x550000000000} {
		w := newWorld(tb, base)
		rnd := rand.New(rand.NewPCG(seed, uint64(i)))
		for tried := 0; tried < n; {
			at := rnd.IntN(len(list) - 64)
			in, err := x86.Decode(list[at:])
			if err != nil || len(in.Mems()) == 0 && rnd.IntN(8) > 0 {
				continue
			}
			if t, ok := w.randomTrial(tb, list[at:], rnd); ok {
				tried++
				f(t, rnd)
			}
		}
	}
}

// The code of random recipes does to registers, flags, memory and cells what Run says, and then what the instruction does in place.
func TestCodeAgainstProcessor(t *testing.T) {
	n := 3000
	if soak {
		n = 100000
	}
	faults, ran, bad := 0, 0, 0
	trials(t, n, 1, func(x *trial, rnd *rand.Rand) {
		want, m := x.expected(t)
		x.w.restore()
		got := x.w.runAt(t, x.at, x.regs, x.x)
		ran++
		if want.sig != unix.SIGTRAP {
			faults++
		}
		if err := x.judge(want, m, got); err != nil && bad < 10 {
			bad++
			t.Errorf("%v\n%v", x, err)
		}
	})
	t.Logf("%d recipes ran, %d ended in a fault of the instruction", ran, faults)
	if faults < ran/100 || faults > ran/2 {
		t.Errorf("%d of %d recipes ended in a fault", faults, ran)
	}
}
