package recipe

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ripstop/ripstop/internal/patch"
	"github.com/ripstop/ripstop/internal/x86"
)

// A program is code in a sandbox's text, of which instructions get recipes.
type program struct {
	w     *world
	code  []byte // at the start of the text; int3 behind it
	calls bool   // recipes may call functions: what lies below the red zone changes
	regs  unix.PtraceRegs
	x     []byte

	text    *patch.Text
	plan    *patch.Planner
	cells   map[uint64]uint64 // of each site
	visits  map[uint64]uint64 // of each instruction, natively
	highest uint64            // rsp, natively
	patches []*patch.Patch    // in place
	tiers   [patch.Tiers]int  // of sites that ran
}

// room makes areas for trampolines around a base, as scattered as a process's free memory may be.
func room(base uint64, rnd *rand.Rand, n int) (list []*area) {
	for len(list) < n {
		at := (base - 0x70000000 + rnd.Uint64N(0xd0000000)) &^ 0xfffff
		clash := func(a *area) bool { return at < a.end()+pageSize && a.at < at+roomSize+pageSize }
		if at+roomSize > base+0xf000000 && at < base+0x2b000000 || slices.ContainsFunc(list, clash) {
			continue
		}
		list = append(list, &area{at: at, size: roomSize, prot: rx})
	}
	return list
}

const (
	wholeBase = 0x550000000000
	roomSize  = 4 << 20
)

// scattered makes a world with room for trampolines.
func scattered(tb testing.TB, rnd *rand.Rand, n int) (*world, []patch.Range) {
	list := room(wholeBase, rnd, n)
	w := newWorld(tb, wholeBase, list...)
	var free []patch.Range
	for _, a := range list {
		free = append(free, patch.Range{Lo: a.at, Hi: a.end()})
	}
	return w, free
}

// tame makes code what a sandbox can run: what it cannot becomes int3, and RIP-relative operands lie in the data.
func (w *world) tame(code []byte, rnd *rand.Rand) {
	for at := 0; at < len(code); {
		in, err := x86.Decode(code[at:])
		if err != nil {
			code[at] = int3
			at++
			continue
		}
		const kernel = x86.SetSeg | x86.SetSys | x86.SetPKRU | x86.SetSSP
		here := code[at : at+in.Len]
		switch {
		case in.Flow == x86.FlowSyscall, in.Flow == x86.FlowTrap, in.Flow == x86.FlowHalt, in.Flow == x86.FlowFar, in.Flow == x86.FlowTransaction,
			slices.Contains(volatile, in.Op),
			(in.Reads|in.Writes)&kernel != 0, (in.FlagsRead|in.FlagsWritten)&^(x86.FlagsArith|x86.DF) != 0, hasKind(&in, x86.MemState):
			for i := range here {
				here[i] = int3
			}
		case in.Op != "lea":
			w.toData(&in, here, w.text.at+uint64(at), rnd)
		}
		at += in.Len
	}
}

func hasKind(in *x86.Inst, kind x86.MemKind) bool {
	return slices.ContainsFunc(in.Mems(), func(m x86.Mem) bool { return m.Kind&kind != 0 })
}

// begin makes the plan. False: code jumps to what is no instruction, of which nothing can be known.
func (p *program) begin(free []patch.Range, rnd *rand.Rand) bool {
	w := p.w
	p.text = patch.NewText(w.text.at, bytes.Clone(p.code))
	p.text.AddFunction(w.text.at, w.text.at+uint64(len(p.code)))
	for a := range p.visits { // what ran is known, too: code may jump into what looks like the middle of an instruction
		if in, err := x86.Decode(p.code[min(a-w.text.at, uint64(len(p.code))):]); err == nil && !bytes.HasPrefix(p.code[a-w.text.at:], []byte{0, 0}) { // which is taken for data
			p.text.AddFunction(a, a+uint64(in.Len))
		} else {
			return false
		}
	}
	p.plan = patch.NewPlanner(p.text, patch.NewSpace(free))
	if rnd.IntN(2) == 0 {
		p.plan.Calls = x86.PushReturn
	}
	p.cells = map[uint64]uint64{}
	return true
}

// recipe makes a recipe for an instruction: all of them count its cell once.
func (p *program) recipe(at, cell uint64, rnd *rand.Rand) (*Code, error) {
	w := p.w
	code := p.code[at-w.text.at:]
	in, err := x86.Decode(code)
	if err != nil {
		return nil, err
	}
	count := Count{Cell: cell, Of: Counter(rnd.IntN(3))}
	if count.Of == PerThread {
		count.Cell -= w.delta()
	}
	list := []Op{count}
	if p.calls && rnd.IntN(4) == 0 {
		list = append(list, w.call(rnd, 0))
	} else if p.calls && len(in.Mems()) > 0 && rnd.IntN(3) == 0 {
		list = append(list, w.tell(rnd, len(in.Mems())))
	}
	if n := len(in.Mems()); n > 0 && rnd.IntN(3) == 0 {
		c := Check{Mem: rnd.IntN(n), Table: w.table.at, Bits: 40, Shift: 24, Mask: 0x55, Then: list}
		list = []Op{c, count}
		if rnd.IntN(2) == 0 {
			c.Then = append(slices.Clone(c.Then), GS{})
			list[0] = c
		}
	} else if rnd.IntN(4) == 0 {
		list = append(list, GS{})
	}
	live := Live(code, x86.AssumeNoHandler)
	for {
		r, err := Compile(list, Site{At: at, Inst: in, Code: code}, live, w.env)
		if err == nil || len(list) == 1 && list[0] == Op(count) {
			return r, err
		}
		if !errors.Is(err, ErrAddress) && !errors.Is(err, x86.ErrNoGS) && !errors.Is(err, ErrFlow) {
			return nil, err
		}
		list = []Op{count}
	}
}

// native runs the program as it is, step by step, and notes how often each instruction began. Nil: it did not end in so many steps.
func (p *program) native(tb testing.TB, steps int) *result {
	w := p.w
	for i := range w.text.mem {
		w.text.mem[i] = int3
	}
	copy(w.text.mem, p.code)
	w.restore()
	w.regset(tb, unix.PTRACE_SETREGSET, p.x)
	p.visits = map[uint64]uint64{}
	r := p.regs
	r.Rip = w.text.at
	last := uint64(0)
	sig := unix.SIGTRAP
	p.highest = 0
	for n := 0; ; n++ {
		i := r.Rip - w.text.at
		p.highest = max(p.highest, r.Rsp)
		if n == steps {
			return nil
		}
		if i < uint64(len(w.text.mem)) {
			if w.text.mem[i] == int3 {
				break
			}
			if in, err := x86.Decode(w.text.mem[i:]); err != nil || r.Rip != last || !in.Rep && !in.Repne {
				p.visits[r.Rip]++
			}
		}
		last = r.Rip
		if sig = w.step(tb, &r); sig != unix.SIGTRAP {
			break
		}
	}
	return p.ended(tb, r, sig)
}

func (p *program) ended(tb testing.TB, r unix.PtraceRegs, sig unix.Signal) *result {
	got := &result{regs: r, sig: sig, x: make([]byte, len(p.x)), mem: map[*area][]byte{}}
	p.w.regset(tb, unix.PTRACE_GETREGSET, got.x)
	for a := range p.w.was {
		got.mem[a] = bytes.Clone(a.mem)
	}
	return got
}

// patched runs the program with its patches, and gives what the program sees at its end.
func (p *program) patched(tb testing.TB) (*result, error) {
	w := p.w
	w.restore()
	w.regset(tb, unix.PTRACE_SETREGSET, p.x)
	copy(w.text.mem, p.text.Bytes(w.text.at, w.text.at+uint64(len(p.code))))
	traps := map[uint64]uint64{}
	for _, x := range p.patches {
		copy(w.bytes(x.Trampoline.At, len(x.Trampoline.Code)), x.Trampoline.Code)
		if x.Tier == patch.TierTrap {
			traps[x.At] = x.Trampoline.At
		}
	}
	r := p.regs
	r.Rip = w.text.at
	sig := unix.SIGTRAP
	for {
		if sig = w.run(tb, &r); sig != unix.SIGTRAP {
			break
		}
		r.Rip--
		to, ok := traps[r.Rip]
		if !ok {
			break
		}
		r.Rip = to
	}
	for _, x := range p.patches {
		if t := &x.Trampoline; r.Rip >= t.At && r.Rip < t.End() {
			part := &trial{w: w, at: t.At, plan: *t}
			var s patch.State
			if r, s = part.view(r); s.Resume == patch.Restart && r.Rip != s.For {
				return nil, fmt.Errorf("no state at %#x", r.Rip)
			}
			break
		}
	}
	return p.ended(tb, r, sig), nil
}

// judge compares the two runs.
func (p *program) judge(want, got *result) error {
	w := p.w
	// With a GS prefix an address on the stack that is none at all is one beside it: a fault of another kind.
	alike := want.sig == got.sig || want.sig == unix.SIGBUS && got.sig == unix.SIGSEGV
	if !alike || want.regs.Rip != got.regs.Rip {
		return fmt.Errorf("it ends at %#x (%v), not at %#x (%v)", got.regs.Rip, got.sig, want.regs.Rip, want.sig)
	}
	live, pushed := x86.AllLive, uint64(0)
	if i := want.regs.Rip - w.text.at; i < uint64(len(p.code)) {
		live = Live(p.code[i:], x86.AssumeNoHandler)
		if in, err := x86.Decode(p.code[i:]); err == nil && in.Flow == x86.FlowIndirectCall && p.plan.Calls == x86.PushReturn {
			pushed = 8 // by a moved call whose target cannot be read
		}
	}
	if d := differ(&want.regs, &got.regs, live.Regs, live.Flags&(x86.FlagsArith|x86.DF)); d != "" {
		return errors.New(d)
	}
	for _, x := range [][]byte{want.x, got.x} {
		clear(x[6:24]) // the place of the last x87 instruction
	}
	if d := w.differVectors(want.x, got.x); d != "" {
		return errors.New(d)
	}
	for _, a := range []*area{w.data, w.stack} {
		for i, b := range got.mem[a] {
			if at := a.at + uint64(i); b != want.mem[a][i] && !(p.calls && a == w.stack && at < want.regs.Rsp && at < p.highest-128) {
				if at-(want.regs.Rsp-pushed) < pushed {
					continue
				}
				return fmt.Errorf("memory at %#x is %#x, not %#x", at, b, want.mem[a][i])
			}
		}
	}
	for at, cell := range p.cells {
		i := cell - w.many.at
		was, is := binary.LittleEndian.Uint64(w.was[w.many][i:]), binary.LittleEndian.Uint64(got.mem[w.many][i:])
		if is-was != p.visits[at] {
			return fmt.Errorf("the instruction at %#x began %d times and was counted %d times", at, p.visits[at], is-was)
		}
	}
	return nil
}

// change makes a random transaction.
func (p *program) change(tb testing.TB, rnd *rand.Rand) {
	var add []patch.Site
	var remove []uint64
	w := p.w
	density := 1 + rnd.IntN(8)
	for i := range p.code {
		at := w.text.at + uint64(i)
		if !p.text.Begins(at) {
			continue
		}
		if _, is := p.cells[at]; is {
			if rnd.IntN(3) == 0 {
				remove = append(remove, at)
			}
			continue
		}
		if rnd.IntN(8) >= density || p.code[i] == int3 || p.plan.Check(at) != nil {
			continue
		}
		r, err := p.recipe(at, w.many.at+8*uint64(i), rnd)
		if err != nil {
			tb.Fatalf("%#x: % x: %v", at, p.code[i:min(i+15, len(p.code))], err)
		}
		add = append(add, patch.Site{At: at, Recipe: r})
	}
	tx, err := p.plan.Plan(add, remove)
	for err != nil && len(add) > 0 { // too little room: less
		if !errors.Is(err, patch.ErrSpace) {
			tb.Fatal(err)
		}
		add = add[:len(add)/2]
		tx, err = p.plan.Plan(add, remove)
	}
	if err != nil {
		return
	}
	p.plan.Commit(tx)
	for _, a := range remove {
		delete(p.cells, a)
	}
	for _, s := range add {
		p.cells[s.At] = w.many.at + 8*(s.At-w.text.at)
	}
	p.patches = slices.DeleteFunc(p.patches, func(x *patch.Patch) bool {
		return slices.ContainsFunc(tx.Old, func(old *patch.Patch) bool { return old.At == x.At && old.Trampoline.At == x.Trampoline.At })
	})
	p.patches = append(p.patches, tx.New...)
	p.plan.Free(tx)
}

// try runs the program natively and with random patches, and gives how many steps it has natively; 0: it does not end.
func (p *program) try(tb testing.TB, free []patch.Range, changes int, rnd *rand.Rand) int {
	want := p.native(tb, 1500)
	if want == nil {
		return 0
	}
	n := 0
	for _, v := range p.visits {
		n += int(v)
	}
	if !p.begin(free, rnd) {
		return 0
	}
	for c := range changes {
		p.change(tb, rnd)
		got, err := p.patched(tb)
		if err == nil {
			err = p.judge(want, got)
		}
		if err != nil {
			tb.Fatalf("%d bytes of code, %d steps, change %d, %d sites: %v", len(p.code), n, c, len(p.cells), err)
		}
	}
	for _, x := range p.patches {
		if p.visits[x.At] > 0 && x.For == 0 {
			p.tiers[x.Tier]++
		}
	}
	return n
}

// prepare makes a random state for the program.
func (p *program) prepare(rnd *rand.Rand) {
	w := p.w
	w.randomMemory(rnd)
	for _, a := range []*area{w.data, w.stack} { // most of it addresses of data
		for i := 0; i+8 <= len(a.mem); i += 8 {
			if rnd.IntN(4) > 0 {
				binary.LittleEndian.PutUint64(a.mem[i:], w.data.at+1024+8*rnd.Uint64N(200))
			}
		}
		w.was[a] = bytes.Clone(a.mem)
	}
	binary.LittleEndian.PutUint64(w.tls.mem[tlsMid+int(w.env.Cells):], w.delta())
	w.was[w.tls], w.was[w.many] = bytes.Clone(w.tls.mem), bytes.Clone(w.many.mem)
	p.regs, p.x = w.randomRegs(rnd), w.randomVectors(rnd)
	for i, g := range gprs(&p.regs) {
		if i != 4 && (rnd.IntN(4) > 0 || i == 3 || i == 5 || i >= 12) {
			*g = w.data.at + 1024 + 8*rnd.Uint64N(200)
		}
	}
	p.regs.Gs_base = 0
	if rnd.IntN(4) > 0 {
		p.regs.Eflags &^= uint64(x86.DF)
	}
	if rnd.IntN(2) == 0 {
		p.regs.Rcx = rnd.Uint64N(20)
	}
}

// synthetic makes a program of instructions from code, with branches and loops that end: r15 counts the ways back.
func (w *world) synthetic(code []byte, rnd *rand.Rand) []byte {
	var prog []byte
	var starts []int
	var fix [][2]int // a rel32 and the instruction that it is to lead to
	n := 20 + rnd.IntN(100)
	jump := func(op ...byte) {
		prog = append(append(prog, op...), 0, 0, 0, 0)
		fix = append(fix, [2]int{len(prog) - 4, rnd.IntN(n)})
	}
	for len(starts) < n {
		starts = append(starts, len(prog))
		switch rnd.IntN(12) {
		case 0: // a way forward, or back if r15 allows it
			prog = append(prog, 0x41, 0xff, 0xcf)           // dec r15d
			prog = append(prog, 0x0f, 0x88, 0, 0, 0, 0)     // js: to the end
			fix = append(fix, [2]int{len(prog) - 4, n - 1}) //
			jump(0x0f, 0x80|byte(rnd.IntN(16)))
			continue
		case 1:
			at := len(prog)
			prog = append(prog, 0x70|byte(rnd.IntN(16)), 0) // over the next one
			defer func() {
				for _, s := range starts {
					if s > at+2 && s-at-2 < 128 {
						prog[at+1] = byte(s - at - 2)
						break
					}
				}
			}()
			continue
		}
		for {
			at := rnd.IntN(len(code) - 64)
			in, err := x86.Decode(code[at:])
			if err != nil || in.Flow != x86.FlowNone || unusable(&in) || (in.Reads|in.Writes)&(1<<15) != 0 {
				continue
			}
			// Most of it shall not fault: addresses come from registers that nothing writes; what lies below the red zone must not be looked at.
			const kept = 1<<3 | 1<<5 | 1<<12 | 1<<13 | 1<<14
			stack := in.Op == "push" || in.Op == "pop"
			wild := slices.ContainsFunc(in.Mems(), func(m x86.Mem) bool {
				switch {
				case m.Kind&x86.MemStack != 0, m.Base == x86.RIP:
					return false
				case m.Base == x86.RSP:
					return m.Disp < 0 || m.Disp > 900 || m.Index != x86.NoReg
				}
				return m.Base.Set()&kept == 0 || m.Base.Size() != 8 || m.Index != x86.NoReg || m.Disp < -900 || m.Disp > 900 || m.Seg != x86.NoReg
			})
			if in.Writes&kept != 0 || in.Writes.Has(x86.RSP) && !stack || wild && (rnd.IntN(50) > 0 || in.Reads.Has(x86.RSP)) || len(in.Mems()) == 0 && rnd.IntN(3) > 0 ||
				in.Op == "lea" && in.Reads.Has(x86.RSP) || in.Op == "div" || in.Op == "idiv" ||
				slices.ContainsFunc(in.Args(), func(a x86.Arg) bool { return a.Kind == x86.ArgReg && a.Reg.Num() == 4 && a.Reg.Class() == x86.ClassGPR }) {
				continue
			}
			here := bytes.Clone(code[at : at+in.Len])
			w.toData(&in, here, w.text.at+uint64(len(prog)), rnd)
			prog = append(prog, here...)
			break
		}
	}
	for _, f := range fix {
		binary.LittleEndian.PutUint32(prog[f[0]:], uint32(starts[f[1]]-f[0]-4))
	}
	return prog
}

// Programs made of random instructions with branches and loops, and functions of libraries, do with random patches what they do without: registers, flags,
// memory and the place and kind of their end; and each recipe runs as often as its instruction does.
func TestWholeEngine(t *testing.T) {
	rounds, each := 6, 20
	if soak {
		rounds, each = 12, 500
	}
	if testing.Short() {
		rounds, each = 3, 5
	}
	var list [][]byte
	for _, file := range []string{libcFile, stdcppFile, pythonFile} {
		code, _ := textOf(t, file)
		list = append(list, code)
	}
	ran, steps := 0, 0
	var tiers [patch.Tiers]int
	for round := range rounds {
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(11, uint64(round)))
			w, free := scattered(t, rnd, []int{300, 300, 60}[round%3])
			for range each {
				lib := list[rnd.IntN(len(list))]
				p := &program{w: w}
				if rnd.IntN(2) == 0 {
					p.code, p.calls = w.synthetic(lib, rnd), rnd.IntN(2) == 0
				} else {
					at := rnd.IntN(len(lib)-5000) &^ 15 // where functions begin
					p.code = bytes.Clone(lib[at : at+200+rnd.IntN(1500)])
				}
				w.tame(p.code, rnd)
				p.prepare(rnd)
				p.regs.R15 = rnd.Uint64N(20)
				if n := p.try(t, free, 3, rnd); n > 0 {
					ran++
					steps += n
				}
				for i, n := range p.tiers {
					tiers[i] += n
				}
			}
		})
	}
	t.Logf("%d programs ran, %d instructions; sites that ran, by tier: %v", ran, steps, tiers)
	if ran < rounds*each/2 || steps < 5*ran {
		t.Errorf("only %d programs ran, %d instructions", ran, steps)
	}
}

// Any bytes as code, with random patches, do what they do without.
func FuzzWholeEngine(f *testing.F) {
	code, _ := textOf(f, libcFile)
	for i := range uint64(4) {
		f.Add(code[0x20000+i*0x8000:][:300], i)
	}
	f.Add([]byte{0x48, 0x8b, 0x03, 0x48, 0x89, 0x43, 0x08, 0x41, 0xff, 0xcf, 0x7f, 0xf4}, uint64(9)) // a loop
	f.Fuzz(func(t *testing.T, code []byte, seed uint64) {
		if len(code) == 0 || len(code) > 300 {
			return
		}
		rnd := rand.New(rand.NewPCG(seed, 12))
		w, free := scattered(t, rnd, 40)
		p := &program{w: w, code: bytes.Clone(code)}
		w.tame(p.code, rnd)
		p.prepare(rnd)
		p.regs.R15 = rnd.Uint64N(20)
		p.try(t, free, 1, rnd)
	})
}
