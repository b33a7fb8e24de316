package x86

// undoMoveVector is undoMove of vectors.
func undoMoveVector(e *Emulator, op *Op) { e.undoMoveBytes(op, op.vectorSize()) }

// undoMoveWord is for movd and movq.
func undoMoveWord(e *Emulator, op *Op) { e.undoMoveBytes(op, op.wordSize()) }

// undoMoveScalar is for movss and movsd; of three operands the one in the middle is not known by it.
func undoMoveScalar(e *Emulator, op *Op) {
	if op.nargs != 2 {
		e.undoByFacts(op)
		return
	}
	e.undoMoveBytes(op, op.unit)
}

// undoMoveBytes learns the source, n bytes, from the destination.
func (e *Emulator) undoMoveBytes(op *Op, n uint8) {
	dst, src := &op.args[0], &op.args[1]
	if dst.kind == inMem {
		e.locate(op)
		v := e.readVector(dst, n)
		e.learnVector(src, n, &v)
		e.locate(op)
		e.forget(0, n)
		return
	}
	var v Vector
	if dst.kind == inGPR {
		v.setWord(0, e.read(op, dst))
	} else {
		v = e.Vec[dst.reg]
	}
	e.forgetRegisters(op)
	e.locate(op)
	e.learnVector(src, n, &v)
}

// learnVector is learn for the lower n bytes of a vector, memory or, of up to 8 bytes, a general register.
func (e *Emulator) learnVector(a *operand, n uint8, v *Vector) {
	switch a.kind {
	case inGPR:
		e.learn(a, v.word(0))
	case inMem:
		if !e.known[0] {
			return
		}
		for j := 0; 8*j < int(n); j++ {
			size := min(8, int(n)-8*j)
			at := e.addrs[0] + uint64(8*j)
			was, w := e.Mem.Load(at, size), v.word(j)
			k := w.Known &^ was.Known & widthMask(uint8(size))
			e.Mem.Store(at, size, Value{was.Bits | w.Bits&k, was.Known | k})
		}
	case inVec:
		r := &e.Vec[a.reg]
		for j := 0; 8*j < int(n); j++ {
			m := widthMask(uint8(min(8, int(n)-8*j)))
			w, was := v.word(j), r.word(j)
			k := w.Known & m &^ was.Known
			r.setWord(j, Value{was.Bits | w.Bits&k, was.Known | k})
		}
	}
}

// undoMoveHalf is for movlps and movhps.
func undoMoveHalf(e *Emulator, op *Op) {
	half := int(op.cond)
	if dst := &op.args[0]; dst.kind == inVec {
		v := e.Vec[dst.reg].word(half)
		e.forgetRegisters(op)
		e.locate(op)
		e.learnMemory(0, 8, v)
		return
	}
	e.locate(op)
	r := &e.Vec[op.args[1].reg]
	was, w := r.word(half), e.load(0, 8)
	k := w.Known &^ was.Known
	r.setWord(half, Value{was.Bits | w.Bits&k, was.Known | k})
	e.forget(0, 8)
}
