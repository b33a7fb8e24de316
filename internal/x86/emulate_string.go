package x86

// longestString is how many bytes a string instruction copies, sets or looks at here; of more the destination is unknown afterwards.
const longestString = 1 << 16

// A passage is what a string instruction does from here on.
type passage struct {
	n     uint64 // rounds; 1 without a rep prefix
	step  uint64 // from one element to the next
	size  uint64 // of an element
	known bool   // n and step are
}

// passage gives how often and which way the instruction goes, and notes it with the accesses.
func (e *Emulator) passage(op *Op) passage {
	p := passage{n: 1, size: uint64(op.size), known: true}
	if op.rep != noRep {
		p.n, p.known = e.GPR[rcx].Bits, e.GPR[rcx].Whole()
	}
	down := e.flag(DF)
	p.step = p.size
	if down.set {
		p.step = -p.size
	}
	p.known = p.known && (down.known || p.n == 0)
	if p.known {
		e.count(p.n, down.set)
	}
	return p
}

// count notes with the accesses how many elements there were.
func (e *Emulator) count(n uint64, down bool) {
	if n == 0 {
		e.Accesses = e.Accesses[:0]
	}
	for i := range e.Accesses {
		e.Accesses[i].Count, e.Accesses[i].Down = n, down && n > 1
	}
}

// lost is a passage of unknown length: unknown is what the instruction may change. rcx is 0 in the end unless a comparison may end it before.
func (e *Emulator) lost(op *Op, counted bool) {
	e.clobber(op)
	if op.rep != noRep && counted {
		e.GPR[rcx] = Exactly(0)
	}
}

// advance moves the index registers over k of the rounds.
func (e *Emulator) advance(op *Op, p passage, k uint64) {
	for i := range op.nmems {
		e.addTo(int(op.mems[i].base), k*p.step)
	}
	if op.rep != noRep {
		e.addTo(rcx, -k)
	}
}

// extent gives the lowest address that a passage from addr on touches.
func (p *passage) extent(addr uint64) uint64 {
	if p.step != p.size {
		return addr - (p.n-1)*p.size
	}
	return addr
}

// short says whether the passage is done element by element.
func (p *passage) short() bool { return p.n <= longestString/p.size }

func moveString(e *Emulator, op *Op) {
	const to, from = 0, 1
	p := e.passage(op)
	switch {
	case !p.known:
		e.lost(op, true)
		return
	case p.n == 0:
	case !e.known[to]:
		e.Mem.ForgetAll()
	case !e.known[from] || !p.short():
		e.Mem.Forget(p.extent(e.addrs[to]), p.n*p.size)
	default:
		dst, src, left, unit := e.addrs[to], e.addrs[from], p.n*p.size, p.size
		if p.step == p.size && dst-src >= 8 { // as good as one element after the other
			unit = 8
		}
		for left > 0 {
			n := min(unit, left)
			e.Mem.Store(dst, int(n), e.Mem.Load(src, int(n)))
			left -= n
			if p.step == p.size {
				dst, src = dst+n, src+n
			} else {
				dst, src = dst-n, src-n
			}
		}
	}
	e.advance(op, p, p.n)
}

func storeString(e *Emulator, op *Op) {
	p := e.passage(op)
	v := e.read(op, &operand{kind: inGPR, size: op.size})
	switch {
	case !p.known:
		e.lost(op, true)
		return
	case p.n == 0:
	case !e.known[0]:
		e.Mem.ForgetAll()
	case v.Known == 0 || !p.short():
		e.Mem.Forget(p.extent(e.addrs[0]), p.n*p.size)
	default:
		for w := 8 * op.size; w < 64; w *= 2 {
			v.Bits |= v.Bits << w
			v.Known |= v.Known << w
		}
		at, left := p.extent(e.addrs[0]), p.n*p.size
		for left > 0 {
			n := min(8, left)
			e.Mem.Store(at, int(n), v)
			at += n
			left -= n
		}
	}
	e.advance(op, p, p.n)
}

func loadString(e *Emulator, op *Op) {
	p := e.passage(op)
	if !p.known {
		e.lost(op, true)
		return
	}
	if p.n > 0 {
		v := Value{}
		if e.known[0] {
			v = e.Mem.Load(e.addrs[0]+(p.n-1)*p.step, int(p.size))
		}
		e.setGPR(0, op.size, 0, v)
	}
	e.advance(op, p, p.n)
}

func compareString(e *Emulator, op *Op) {
	e.search(op, func(off uint64) (a, b Value) { return e.element(op, 0, off), e.element(op, 1, off) })
}

func scanString(e *Emulator, op *Op) {
	acc := e.read(op, &operand{kind: inGPR, size: op.size})
	e.search(op, func(off uint64) (a, b Value) { return acc, e.element(op, 0, off) })
}

func (e *Emulator) element(op *Op, i int, off uint64) Value {
	if !e.known[i] {
		return Value{}
	}
	return e.Mem.Load(e.addrs[i]+off, int(op.size))
}

// search compares pairs until rcx or the flags end it.
func (e *Emulator) search(op *Op, pair func(off uint64) (a, b Value)) {
	p := e.passage(op)
	if !p.known {
		e.lost(op, false)
		return
	}
	k := uint64(0)
	for k < p.n {
		a, b := pair(k * p.step)
		_, set, known := difference(a, b, clear0, op.size)
		k++
		if op.rep != noRep && k < p.n && known&ZF == 0 || k > longestString {
			e.count(1, false)
			for i := range e.Accesses {
				e.Accesses[i].Count, e.Accesses[i].Down = 0, e.Flags&DF != 0
			}
			e.lost(op, false)
			return
		}
		e.setFlags(FlagsArith, set, known)
		if op.rep == repeat && set&ZF == 0 || op.rep == repeatNot && set&ZF != 0 {
			break
		}
	}
	if p.n > 0 {
		e.count(k, p.step != p.size)
	}
	e.advance(op, p, k)
}
