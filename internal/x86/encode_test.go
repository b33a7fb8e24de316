package x86

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// An encoded instruction and what it must be, in our own spelling.
type encoded struct {
	want  string
	write func(c *Code)
}

// regOf gives a register of the size in bytes, none of ah to bh.
func regOf(rnd *rand.Rand, size int) Reg {
	return map[int]Reg{1: AL, 2: AX, 4: EAX, 8: RAX}[size] + Reg(rnd.IntN(16))
}

// memOf gives an operand of memory of any form.
func memOf(rnd *rand.Rand, size int) Mem {
	m := Mem{Scale: 1, Size: uint16(size), Seg: []Reg{NoReg, NoReg, FS, GS}[rnd.IntN(4)]}
	wide := 8
	if rnd.IntN(6) == 0 {
		wide = 4
	}
	m.Disp = []int64{0, 1, -128, 127, 128, -129, int64(int32(rnd.Uint32()))}[rnd.IntN(7)]
	switch rnd.IntN(8) {
	case 0:
		m.Base = RIP
		return m
	case 1: // an address alone
		m.Seg, m.Disp = GS, m.Disp&0xfffff
		return m
	}
	if rnd.IntN(5) > 0 {
		m.Base = regOf(rnd, wide)
	}
	if m.Base == NoReg || rnd.IntN(2) == 0 {
		for m.Index == NoReg || m.Index.Num() == 4 {
			m.Index = regOf(rnd, wide)
		}
		m.Scale = 1 << rnd.IntN(4)
	}
	return m
}

func imm(v int32) string { return fmt.Sprintf("%#x", int64(v)) }

// sizedImm is the number as the decoder shows it for an operand of size bytes: one byte without its sign.
func sizedImm(v int32, size int) string {
	switch size {
	case 1:
		return fmt.Sprintf("%#x", uint8(v))
	case 2:
		return imm(int32(int16(v)))
	}
	return imm(v)
}

var condNames = strings.Fields("o no b ae e ne be a s ns p np l ge le g")

// encodings gives an instruction of each function of Code, with random operands.
func encodedAll(rnd *rand.Rand) (list []encoded) {
	add := func(write func(c *Code), format string, args ...any) {
		list = append(list, encoded{fmt.Sprintf(format, args...), write})
	}
	for _, size := range []int{1, 2, 4, 8} {
		a, b, m := regOf(rnd, size), regOf(rnd, size), memOf(rnd, size)
		ptr := sizeNames[uint16(size)] + " ptr " + m.text()
		v := int32(rnd.Uint32()) >> rnd.IntN(32)
		shown := sizedImm(v, size)
		op := Arith(rnd.IntN(8))
		name := strings.Fields("add or adc sbb and sub xor cmp")[op]
		atomic, lock := m, ""
		if rnd.IntN(2) == 0 {
			atomic.Kind, lock = MemLocked, "lock "
		}
		add(func(c *Code) { c.Mov(a, b) }, "mov %v, %v", a, b)
		add(func(c *Code) { c.Load(a, m) }, "mov %v, %s", a, ptr)
		add(func(c *Code) { c.Store(m, a) }, "mov %s, %v", ptr, a)
		add(func(c *Code) { c.StoreImm(m, v) }, "mov %s, %s", ptr, shown)
		add(func(c *Code) { c.Arith(op, a, b) }, "%s %v, %v", name, a, b)
		add(func(c *Code) { c.ArithLoad(op, a, m) }, "%s %v, %s", name, a, ptr)
		add(func(c *Code) { c.ArithImm(op, a, v) }, "%s %v, %s", name, a, shown)
		if op == Cmp {
			add(func(c *Code) { c.ArithStore(op, m, a) }, "cmp %s, %v", ptr, a)
			add(func(c *Code) { c.ArithStoreImm(op, m, v) }, "cmp %s, %s", ptr, shown)
		} else {
			add(func(c *Code) { c.ArithStore(op, atomic, a) }, "%s%s %s, %v", lock, name, ptr, a)
			add(func(c *Code) { c.ArithStoreImm(op, atomic, v) }, "%s%s %s, %s", lock, name, ptr, shown)
		}
		add(func(c *Code) { c.Inc(atomic) }, "%sinc %s", lock, ptr)
		add(func(c *Code) { c.Test(a, b) }, "test %v, %v", a, b)
		add(func(c *Code) { c.TestImm(a, v) }, "test %v, %s", a, shown)
		add(func(c *Code) { c.TestMem(m, v) }, "test %s, %s", ptr, shown)
		add(func(c *Code) { c.Xchg(m, a) }, "xchg %s, %v", ptr, a)
		if size <= 2 {
			d := regOf(rnd, 4)
			add(func(c *Code) { c.LoadZX(d, m) }, "movzx %v, %s", d, ptr)
			continue
		}
		n := uint8(rnd.IntN(8 * size))
		plain := m
		plain.Seg = NoReg
		add(func(c *Code) { c.Lea(a, m) }, "lea %v, %s", a, plain.text())
		add(func(c *Code) { c.Shr(a, n) }, "shr %v, %#x", a, n)
		add(func(c *Code) { c.Shl(a, n) }, "shl %v, %#x", a, n)
	}
	r, m := regOf(rnd, 8), memOf(rnd, 8)
	v := int32(rnd.Uint32())
	cond := Cond(rnd.IntN(16))
	b := regOf(rnd, 1)
	r32 := regOf(rnd, 4)
	big := rnd.Uint64() | 1<<63 | 1
	add(func(c *Code) { c.MovImm(r32, uint64(uint32(v))) }, "mov %v, %s", r32, imm(v))
	add(func(c *Code) { c.MovImm(r, big) }, "mov %v, %#x", r, int64(big))
	add(func(c *Code) { c.MovImm(r, ^uint64(4)) }, "mov %v, -0x5", r)
	add(func(c *Code) { c.MovImm(r, 5) }, "mov %v, 0x5", EAX+Reg(r.Num()))
	add(func(c *Code) { c.Push(r) }, "push %v", r)
	add(func(c *Code) { c.Pop(r) }, "pop %v", r)
	add(func(c *Code) { c.PushImm(v) }, "push %s", imm(v))
	add(func(c *Code) { c.PushMem(m) }, "push qword ptr %s", m.text())
	if m.Base.Num() != 4 { // whose address is that behind the pop
		add(func(c *Code) { c.PopMem(m) }, "pop qword ptr %s", m.text())
	}
	add(func(c *Code) { c.Xsave(m) }, "xsave64 %s", m.text())
	add(func(c *Code) { c.Xsavec(m) }, "xsavec64 %s", m.text())
	add(func(c *Code) { c.Xrstor(m) }, "xrstor64 %s", m.text())
	add((*Code).Cld, "cld")
	add((*Code).Pushf, "pushfq")
	add((*Code).Popf, "popfq")
	add((*Code).Lahf, "lahf")
	add((*Code).Sahf, "sahf")
	add((*Code).Ret, "ret")
	add((*Code).Int3, "int3")
	add(func(c *Code) { c.Set(cond, b) }, "set%s %v", condNames[cond], b)
	add(func(c *Code) { c.JmpReg(r) }, "jmp %v", r)
	add(func(c *Code) { c.CallReg(r) }, "call %v", r)
	add(func(c *Code) { c.JmpMem(m) }, "jmp qword ptr %s", m.text())
	add(func(c *Code) { c.CallMem(m) }, "call qword ptr %s", m.text())
	to := uint64(int64(v) + 5)
	add(func(c *Code) { c.Jmp(c.PC() + to) }, "jmp .%+#x", v)
	add(func(c *Code) { c.Call(c.PC() + to) }, "call .%+#x", v)
	add(func(c *Code) { c.Jcc(cond, c.PC()+to+1) }, "j%s .%+#x", condNames[cond], v)
	return list
}

// What the functions of Code write is the instruction that they say, for our decoder and for objdump.
func TestEncode(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	c := Code{At: 1 << 40}
	type place struct {
		at, n int
	}
	var places []place
	for range 100 {
		for _, e := range encodedAll(rnd) {
			at := len(c.Bytes)
			e.write(&c)
			in, err := Decode(c.Bytes[at:])
			if err != nil || in.Len != len(c.Bytes)-at || in.String() != e.want {
				t.Errorf("% x: %v (%v), want %s", c.Bytes[at:], in, err, e.want)
			}
			places = append(places, place{at, len(c.Bytes) - at})
		}
	}
	if c.Err() != nil {
		t.Error(c.Err())
	}
	name := filepath.Join(t.TempDir(), "code")
	if err := os.WriteFile(name, c.Bytes, 0o644); err != nil {
		t.Fatal(err)
	}
	var all tally
	i := 0
	list(t, func(l listed) {
		if i < len(places) && l.addr == uint64(places[i].at) {
			all.judge(c.Bytes[places[i].at:], l.addr, places[i].n, l.text)
			i++
		}
	}, "-z", "-D", "-b", "binary", "-m", "i386:x86-64", name)
	all.report(t, "encoded")
	if i != len(places) || all.compared != len(places) {
		t.Errorf("objdump saw %d, and %d were compared, of %d instructions", i, all.compared, len(places))
	}
}

// An address is reached RIP-relative, or by itself if it is low, and what is too far is an error.
func TestEncodeReach(t *testing.T) {
	for _, x := range []struct {
		at, to uint64
		want   string
		err    error
	}{
		{0x10000000, 0x10000100, "mov rax, qword ptr [rip+0xf9]", nil},
		{0x7f0000000000, 0x1000, "mov rax, qword ptr [0x1000]", nil},
		{0x7f0000000000, 0x7f007fffffff + 7, "mov rax, qword ptr [rip+0x7fffffff]", nil},
		{0x7f0000000000, 0x7f0080000000 + 7, "", ErrReach},
		{0x7f0000000000, 0x7eff80000000 + 7, "mov rax, qword ptr [rip-0x80000000]", nil},
		{0x7f0000000000, 0x7eff7fffffff + 7, "", ErrReach},
	} {
		c := Code{At: x.at}
		c.Load(RAX, Abs(x.to, 8))
		in, err := Decode(c.Bytes)
		if !errors.Is(c.Err(), x.err) || x.err == nil && (err != nil || in.String() != x.want) {
			t.Errorf("from %#x to %#x: %v, %v (%v)", x.at, x.to, in, c.Err(), err)
		}
	}
	for _, far := range []func(c *Code){func(c *Code) { c.Jmp(1 << 33) }, func(c *Code) { c.Call(1 << 33) }, func(c *Code) { c.Jcc(CondE, 1<<33) }} {
		c := Code{At: 0x1000}
		if far(&c); !errors.Is(c.Err(), ErrReach) {
			t.Errorf("% x: %v", c.Bytes, c.Err())
		}
	}
}

// Labels are jumped to from wherever they were named, and nops have the length that was asked for.
func TestEncodeLabelsAndNops(t *testing.T) {
	for n := range 40 {
		c := Code{}
		var l Label
		c.JccTo(CondE, &l)
		c.Nop(n)
		c.JmpTo(&l)
		c.Bind(&l)
		at := 0
		for at < len(c.Bytes) {
			in, err := Decode(c.Bytes[at:])
			if err != nil {
				t.Fatalf("% x: %v", c.Bytes[at:], err)
			}
			if target, ok := in.Target(uint64(at)); ok && target != uint64(len(c.Bytes)) || !ok && in.Op != "nop" {
				t.Errorf("% x: %v", c.Bytes[at:], in)
			}
			at += in.Len
		}
		if at != n+11 {
			t.Errorf("nop of %d bytes has %d", n, at-11)
		}
	}
}
