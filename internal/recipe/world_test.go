package recipe

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ripstop/ripstop/internal/x86"
)

const (
	libcFile   = "/usr/lib/x86_64-linux-gnu/libc.so.6"
	stdcppFile = "/usr/lib/x86_64-linux-gnu/libstdc++.so.6"
	pythonFile = "/usr/bin/python3"
)

// A world is a sandbox with what recipes need in it: a thread's storage, cells, tables, functions of the agent's.
type world struct {
	*sandbox
	base                               uint64
	text, tramp, refs, agent, farAgent *area
	data                               *area // of which the first half is data, the second its mirror by GS
	stack, tls, cells, farCells        *area
	table, farTable, log, many         *area
	env                                Env
	tells                              []int32          // where entries for Tell lie, from fs
	gates                              [2]int32         // where gates for it lie: a closed one, an open one
	funcs                              [4][]uint64      // the agent's: those that change their context are odd, those that destroy vectors 2 and 3
	was                                map[*area][]byte // memory as it is before a run
}

const (
	mirror     = 2 * pageSize // from data to its mirror
	tlsMid     = 2048
	logStart   = 16
	deferredAt = -960 // from fs: what a Defer notes
)

// newWorld makes one whose memory begins at a base: below 2 GiB, or not. Some of it is out of reach of the rest.
func newWorld(tb testing.TB, base uint64, more ...*area) *world {
	w := &world{base: base}
	var areas []*area
	mk := func(at uint64, pages int, prot uint64) *area {
		a := &area{at: at, size: pages * pageSize, prot: prot}
		areas = append(areas, a)
		return a
	}
	w.text, w.tramp, w.refs, w.agent = mk(base+0x10000000, 16, rx), mk(base+0x12000000, 16, rx), mk(base+0x13000000, 4, rx), mk(base+0x14000000, 1, rx)
	w.data, w.stack, w.tls, w.cells = mk(base+0x20000000, 4, rw), mk(base+0x22000000, 8, rw), mk(base+0x24000000, 1, rw), mk(base+0x26000000, 1, rw)
	w.table, w.log, w.many = mk(base+0x28000000, 16, rw), mk(base+0x2a000000, 4, rw), mk(base+0x2a800000, 32, rw)
	const far = 0x600000000000
	w.farAgent, w.farCells, w.farTable = mk(far, 1, rx), mk(far+0x10000000, 1, rw), mk(far+0x20000000, 16, rw)
	w.sandbox = newSandbox(tb, append(areas, more...))
	w.env = Env{Save: -1024, Slots: MaxSlots, Cells: -512, Context: -520, XSave: w.xsave}
	copy(w.tls.mem[tlsMid:], binary.LittleEndian.AppendUint64(nil, w.fs()))
	for i := range w.gates {
		w.gates[i] = -704 - 8*int32(i)
		at := -800 - 32*i
		binary.LittleEndian.PutUint64(w.tls.mem[tlsMid+int(w.gates[i]):], w.fs()+uint64(at))
		w.tls.mem[tlsMid+at+TellGate] = byte(0x80 * i)
	}
	for _, a := range []*area{w.agent, w.farAgent} {
		a.mem[0] = 0xcc
		c := x86.Code{At: a.at + 64}
		for kind := range 4 {
			for len(c.Bytes)%128 != 0 {
				c.Int3()
			}
			at := c.PC()
			w.function(&c, kind&1 != 0, kind&2 != 0)
			w.funcs[kind] = append(w.funcs[kind], at)
		}
		entry := -640 - 8*int32(len(w.tells))
		w.tells = append(w.tells, entry)
		binary.LittleEndian.PutUint64(w.tls.mem[tlsMid+entry:], c.PC())
		w.told(&c)
		if c.Err() != nil {
			tb.Fatal(c.Err())
		}
		copy(a.mem[64:], c.Bytes)
	}
	return w
}

// tell gives a Tell of one of so many accesses.
func (w *world) tell(rnd *rand.Rand, mems int) Tell {
	t := Tell{Entry: w.tells[rnd.IntN(len(w.tells))], Shape: uint8(rnd.Uint32()), Gate: [...]int32{0, 0, w.gates[0], w.gates[1]}[rnd.IntN(4)]}
	if rnd.IntN(4) == 0 {
		t.Clears = deferredAt
	}
	if mems > 0 {
		t.Mem = rnd.IntN(mems)
	}
	return t
}

func (w *world) fs() uint64 { return w.tls.at + tlsMid }

// changes is what a function that changes its context makes of it.
const flagsChanged = uint64(x86.FlagsArith)

// function writes a function of the agent's: it appends its context and what fs:Context says to the log, changes the context if it is to, and destroys what a
// function may.
func (w *world) function(c *x86.Code, emulate, wide bool) {
	const rax, rcx, rsi, rdi = x86.RAX, x86.RCX, x86.RSI, x86.RDI
	c.Mov(rsi, rdi)
	c.MovImm(rax, w.log.at)
	c.Load(rdi, at(rax, 0))
	c.MovImm(rcx, ContextSize/8)
	c.Bytes = append(c.Bytes, 0xf3, 0x48, 0xa5) // rep movsq
	c.Load(rcx, fs(w.env.Context))
	c.Store(at(rdi, 0), rcx)
	c.ArithImm(x86.Add, rdi, 8)
	c.MovImm(rcx, w.log.end()-ContextSize-8)
	c.Arith(x86.Cmp, rdi, rcx)
	var fits x86.Label
	c.JccTo(x86.CondBE, &fits)
	c.MovImm(rdi, w.log.at+logStart) // a program may call often: then the log is not looked at
	c.Bind(&fits)
	c.Store(at(rax, 0), rdi)
	if emulate {
		c.ArithImm(x86.Sub, rsi, ContextSize)
		for r := range 16 {
			if r != 4 {
				c.ArithStoreImm(x86.Add, at(rsi, 8*r), int32(r+100))
			}
		}
		c.ArithStoreImm(x86.Sub, at(rsi, 8*4), 16)
		c.ArithStoreImm(x86.Xor, at(rsi, ctxFlags), int32(flagsChanged))
	}
	if wide {
		c.Bytes = append(c.Bytes, 0xdb, 0xe3) // fninit
		if w.xsave.Mask&4 != 0 {
			c.Bytes = append(c.Bytes, 0xc5, 0xfc, 0x77) // vzeroall
		} else {
			c.Bytes = append(c.Bytes, 0x66, 0x0f, 0xef, 0xc0, 0x66, 0x0f, 0xef, 0xff) // pxor xmm0; xmm7
		}
		if w.xsave.Mask&0x20 != 0 {
			c.Bytes = append(c.Bytes, 0xc5, 0xf4, 0x47, 0xc9) // kxorw k1, k1, k1
		}
	}
	for i, r := range callerSaved {
		c.MovImm(r, 0x1111111111*uint64(i+1))
	}
	c.Arith(x86.Cmp, rax, rcx)
	c.Ret()
}

// toldWords is the length of what told appends to the log.
const (
	toldWords = ContextSize/8 + 1
	toldData  = 0x7e117e11 // its Data
)

// told writes what a Tell calls: it appends to the log, in the place of a context, all registers as they are and those words of it that a Tell has: Flags, Addr[0], and as Site its return
// address, as Next the word above it. All it changes is on the stack.
func (w *world) told(c *x86.Code) {
	const rax, rcx, rdi = x86.RAX, x86.RCX, x86.RDI
	c.Push(rax)
	c.Push(rcx)
	c.Pushf()
	c.MovImm(rcx, w.log.at)
	c.Load(rax, at(rcx, 0)) // where
	for r := range x86.Reg(16) {
		if r := x86.RAX + r; r != rax && r != rcx && r != x86.RSP {
			c.Store(at(rax, 8*r.Num()), r)
		}
	}
	from := func(n, to int) {
		c.Load(rcx, at(x86.RSP, n))
		c.Store(at(rax, to), rcx)
	}
	c.Store(at(rax, ctxAddr), rdi)
	from(16, 8*rax.Num())
	from(8, 8*rcx.Num())
	from(0, ctxFlags)
	from(24, ctxSite)
	from(32, ctxNext)
	c.Lea(rcx, at(x86.RSP, 24+8+tellDepth))
	c.Store(at(rax, 8*x86.RSP.Num()), rcx)
	c.StoreImm(at(rax, ctxData), toldData)
	c.Lea(rax, at(rax, 8*toldWords))
	c.MovImm(rcx, w.log.end()-8*toldWords)
	c.Arith(x86.Cmp, rax, rcx)
	var fits x86.Label
	c.JccTo(x86.CondBE, &fits)
	c.MovImm(rax, w.log.at+logStart)
	c.Bind(&fits)
	c.MovImm(rcx, w.log.at)
	c.Store(at(rcx, 0), rax)
	c.Popf()
	c.Pop(rcx)
	c.Pop(rax)
	c.Load(rdi, at(x86.RSP, 8))
	c.Bytes = append(c.Bytes, 0xc2, tellDepth, 0) // ret $
}

// randomMemory fills the memory that programs see, and notes what is there.
func (w *world) randomMemory(rnd *rand.Rand) {
	for _, a := range []*area{w.data, w.stack, w.cells, w.farCells} {
		for i := 0; i < len(a.mem); i += 8 {
			binary.LittleEndian.PutUint64(a.mem[i:], rnd.Uint64())
		}
	}
	for _, a := range []*area{w.table, w.farTable} {
		for i := range a.mem {
			v := rnd.Uint32()
			a.mem[i] = byte(v & (v >> 8))
		}
	}
	clear(w.log.mem)
	binary.LittleEndian.PutUint64(w.log.mem, w.log.at+logStart)
	w.was = map[*area][]byte{}
	for _, a := range []*area{w.data, w.stack, w.cells, w.farCells, w.tls, w.log} {
		w.was[a] = bytes.Clone(a.mem)
	}
}

// restore makes memory as randomMemory left it.
func (w *world) restore() {
	for a, b := range w.was {
		copy(a.mem, b)
	}
}

// word gives a number: any, or a small one, or an address of data.
func (w *world) word(rnd *rand.Rand) uint64 {
	switch rnd.IntN(4) {
	case 0:
		return rnd.Uint64N(16)
	case 1, 2:
		return w.data.at + 512 + 8*rnd.Uint64N(300)
	}
	return rnd.Uint64()
}

// randomRegs gives registers.
func (w *world) randomRegs(rnd *rand.Rand) unix.PtraceRegs {
	r := w.regs
	for i, p := range gprs(&r) {
		*p = w.word(rnd)
		if i == 4 {
			*p = w.stack.at + uint64(len(w.stack.mem)) - 2048 + rnd.Uint64N(1024)
			if rnd.IntN(2) == 0 {
				*p &^= 7
			}
		}
	}
	r.Eflags = uint64(x86.Flags(rnd.Uint32())&(x86.FlagsArith|x86.DF)) | 0x202
	r.Fs_base, r.Gs_base = w.fs(), mirror
	return r
}

// randomVectors gives an extended state.
func (w *world) randomVectors(rnd *rand.Rand) []byte {
	x := bytes.Clone(w.xstate)
	for i := 160; i < 416; i++ {
		x[i] = byte(rnd.Uint32())
	}
	bv := uint64(3)
	if w.xsave.Mask&4 != 0 {
		for i := 576; i < 832; i++ {
			x[i] = byte(rnd.Uint32())
		}
		bv |= 4
	}
	binary.LittleEndian.PutUint16(x[0:], 0xf7f)
	binary.LittleEndian.PutUint64(x[512:], binary.LittleEndian.Uint64(x[512:])|bv)
	return x
}

// textOf gives a file's text.
func textOf(tb testing.TB, file string) (code []byte, at uint64) {
	tb.Helper()
	f, err := elf.Open(file)
	if err != nil {
		tb.Fatal(err)
	}
	defer f.Close()
	s := f.Section(".text")
	code, err = s.Data()
	if err != nil {
		tb.Fatal(err)
	}
	return code, s.Addr
}

// volatile are the operations whose result differs from run to run, or which touch more than is known.
var volatile = []string{"rdtsc", "rdtscp", "rdrand", "rdseed", "cpuid", "xgetbv", "rdpid", "rdpmc", "wait", "fwait", "pause", "tpause", "umwait", "umonitor"}

// unusable says whether an instruction is not for sandboxes: it does what differs from run to run, or needs privileges, or waits.
func unusable(in *x86.Inst) bool {
	const state = x86.SetSeg | x86.SetSys | x86.SetPKRU | x86.SetSSP | x86.SetMXCSR | x86.SetX87
	if slices.Contains(volatile, in.Op) || in.Op == "enter" || in.Op == "leave" {
		return true
	}
	for _, m := range in.Mems() {
		if m.Kind&(x86.MemState|x86.MemGather|x86.MemScatter) != 0 {
			return true
		}
	}
	return (in.Reads|in.Writes)&state != 0 || (in.FlagsRead|in.FlagsWritten)&^(x86.FlagsArith|x86.DF) != 0
}

// toData makes the RIP-relative operand of an instruction that is to lie at an address one of the data's.
func (w *world) toData(in *x86.Inst, code []byte, at uint64, rnd *rand.Rand) {
	if m := in.Mems(); len(m) > 0 && m[0].Base == x86.RIP {
		d := w.data.at + 512 + 8*rnd.Uint64N(300) - at - uint64(in.Len)
		binary.LittleEndian.PutUint32(code[in.DispOff:], uint32(d))
		again, err := x86.Decode(code)
		if err != nil {
			panic("BUG: " + err.Error())
		}
		*in = again
	}
}

// aim sets registers so that accesses lie in data, mostly.
func (w *world) aim(in *x86.Inst, r *unix.PtraceRegs, rnd *rand.Rand) {
	g := gprs(r)
	if in.Rep || in.Repne {
		r.Rcx = rnd.Uint64N(4)
	}
	for _, m := range in.Mems() {
		if m.Kind&x86.MemStack != 0 || m.Base.Class() != x86.ClassGPR || m.Base.Size() != 8 || m.Base == x86.RSP {
			continue
		}
		to := w.data.at + 512 + rnd.Uint64N(pageSize-1024)
		if rnd.IntN(2) == 0 {
			to &^= 63
		}
		if rnd.IntN(12) == 0 {
			to = w.data.at + rnd.Uint64N(8) - 4 // over the edge
		}
		to -= uint64(m.Disp)
		if m.Seg == x86.FS {
			to -= r.Fs_base
		} else if m.Seg == x86.GS {
			to -= r.Gs_base
		}
		if m.Index.Class() == x86.ClassGPR && m.Index.Size() == 8 && m.Index != m.Base {
			*g[m.Index.Num()] = rnd.Uint64N(32)
			to -= *g[m.Index.Num()] * uint64(m.Scale)
		}
		*g[m.Base.Num()] = to
	}
}
