package x86

import (
	"encoding/binary"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A sandbox is a process that does nothing but hold a few pages and run, one at a time, the instructions that the test puts there. It may make no
// system call (seccomp's strict mode) and has no open file. Its pages are ours too, so that code and data are put there without a system call.
type sandbox struct {
	pid        int
	code, far  []byte // at codeAt and farAt, read and execute
	data       [3][]byte
	regs       unix.PtraceRegs // as the process had them at first
	xstate     []byte          // likewise; only xsize bytes are the kernel's
	xsize      int
	components uint64
	off        xstateOffsets
	stepped    int
}

// Where the pages are. Nothing is mapped around them, and all are in reach of 32-bit addresses and of each other's 32-bit distances.
const (
	codeAt   = 0x10000000
	farAt    = 0x50000000
	codeSize = 16 * pageSize
	pageSize = 4096
)

// dataAt are the pages of data: two to read and write, one to read only.
var dataAt = [3]uint64{0x20000000, 0x40000000, 0x30000000}

// xstateOffsets are where the components lie in the XSAVE area (CPUID leaf 0xd).
type xstateOffsets struct{ ymm, mask, zmm, hi16 int }

// The layout of the legacy area and the header (Intel SDM vol. 1, 13.4).
const (
	xstateXMM    = 160
	xstateHeader = 512
)

// newSandbox starts one. The test's goroutine stays on its thread, since a tracer is a thread.
func newSandbox(tb testing.TB) *sandbox {
	tb.Helper()
	runtime.LockOSThread()
	// The smallest ELF file: a header, a program header, and code at its end.
	elf := make([]byte, 0, 256)
	le := binary.LittleEndian
	elf = append(elf, 0x7f, 'E', 'L', 'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0)
	elf = le.AppendUint16(elf, 2)
	elf = le.AppendUint16(elf, 62)
	elf = le.AppendUint32(elf, 1)
	const base, entry = 0x400000, 0x400000 + 64 + 56
	for _, v := range []uint64{entry, 64, 0} {
		elf = le.AppendUint64(elf, v)
	}
	elf = le.AppendUint32(elf, 0)
	for _, v := range []uint16{64, 56, 1, 0, 0, 0} {
		elf = le.AppendUint16(elf, v)
	}
	elf = le.AppendUint32(elf, 1)
	elf = le.AppendUint32(elf, 5)
	for _, v := range []uint64{0, base, base, 256, 256, pageSize} {
		elf = le.AppendUint64(elf, v)
	}
	elf = append(elf, 0x0f, 0x05, 0x0f, 0xa2, 0x90, 0xcc) // syscall; cpuid; nop: a step over cpuid may take the next instruction along (once); int3
	elf = append(elf, make([]byte, 256-len(elf))...)
	name := filepath.Join(tb.TempDir(), "sandbox")
	if err := os.WriteFile(name, elf, 0o755); err != nil {
		tb.Fatal(err)
	}
	s := &sandbox{}
	const total = 2*codeSize + 3*pageSize
	fd, err := unix.MemfdCreate("x86-sandbox", unix.MFD_CLOEXEC)
	if err != nil {
		tb.Fatal(err)
	}
	memory := os.NewFile(uintptr(fd), "memfd")
	defer memory.Close()
	if err := unix.Ftruncate(fd, total); err != nil {
		tb.Fatal(err)
	}
	ours, err := unix.Mmap(fd, 0, total, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		tb.Fatal(err)
	}
	s.code, s.far = ours[:codeSize], ours[codeSize:2*codeSize]
	for i := range s.data {
		s.data[i] = ours[2*codeSize+i*pageSize:][:pageSize]
	}
	p, err := os.StartProcess(name, []string{name}, &os.ProcAttr{Env: []string{}, Files: []*os.File{memory},
		Sys: &unix.SysProcAttr{Ptrace: true, Pdeathsig: unix.SIGKILL}})
	if err != nil {
		tb.Fatalf("starting the sandbox: %v", err)
	}
	s.pid = p.Pid
	tb.Cleanup(func() {
		unix.Kill(s.pid, unix.SIGKILL)
		p.Wait()
		unix.Munmap(ours)
		runtime.UnlockOSThread()
	})
	if ws := s.wait(tb); !ws.Stopped() {
		tb.Fatalf("the sandbox did not stop at its start: %#x", int(ws))
	}
	if err := unix.PtraceSetOptions(s.pid, unix.PTRACE_O_EXITKILL); err != nil {
		tb.Fatal(err)
	}
	if err := unix.PtraceGetRegs(s.pid, &s.regs); err != nil {
		tb.Fatal(err)
	}
	call := func(nr uint64, args ...uint64) {
		var a [6]uint64
		copy(a[:], args)
		r := s.regs
		r.Rip, r.Rax, r.Orig_rax = entry, nr, ^uint64(0)
		r.Rdi, r.Rsi, r.Rdx, r.R10, r.R8, r.R9 = a[0], a[1], a[2], a[3], a[4], a[5]
		if sig := s.step(tb, &r); sig != unix.SIGTRAP || int64(r.Rax) < 0 && int64(r.Rax) > -4096 {
			tb.Fatalf("system call %d%v in the sandbox: %d (%v)", nr, args, int64(r.Rax), sig)
		}
	}
	at := uint64(0)
	mapping := func(addr, size, prot uint64) {
		call(unix.SYS_MMAP, addr, size, prot, unix.MAP_SHARED|unix.MAP_FIXED_NOREPLACE, 0, at)
		at += size
	}
	mapping(codeAt, codeSize, unix.PROT_READ|unix.PROT_EXEC)
	mapping(farAt, codeSize, unix.PROT_READ|unix.PROT_EXEC)
	mapping(dataAt[0], pageSize, unix.PROT_READ|unix.PROT_WRITE)
	mapping(dataAt[1], pageSize, unix.PROT_READ|unix.PROT_WRITE)
	mapping(dataAt[2], pageSize, unix.PROT_READ)
	call(unix.SYS_CLOSE, 0)
	cpuid := func(leaf, sub uint64) unix.PtraceRegs {
		r := s.regs
		r.Rip, r.Rax, r.Rcx, r.Orig_rax = entry+2, leaf, sub, ^uint64(0)
		if sig := s.step(tb, &r); sig != unix.SIGTRAP {
			tb.Fatalf("cpuid in the sandbox: %v", sig)
		}
		return r
	}
	s.components = cpuid(0xd, 0).Rax & xstateComponents
	var offsets [8]int
	for i := range offsets {
		offsets[i] = int(cpuid(0xd, uint64(i)).Rbx)
	}
	call(unix.SYS_PRCTL, unix.PR_SET_SECCOMP, 1)
	s.xstate = make([]byte, 16384)
	s.xsize = s.regset(tb, unix.PTRACE_GETREGSET, s.xstate)
	s.xstate = s.xstate[:s.xsize]
	for i, o := range []*int{2: &s.off.ymm, 5: &s.off.mask, 6: &s.off.zmm, 7: &s.off.hi16} {
		if o == nil {
			continue
		}
		if s.components>>i&1 != 0 {
			*o = offsets[i]
		} else { // the processor has none: a place behind the area that nothing reads
			*o = len(s.xstate)
			s.xstate = append(s.xstate, make([]byte, 1024)...)
		}
	}
	return s
}

func (s *sandbox) wait(tb testing.TB) (ws unix.WaitStatus) {
	tb.Helper()
	for {
		_, err := unix.Wait4(s.pid, &ws, unix.WALL, nil)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			tb.Fatalf("waiting for the sandbox: %v", err)
		}
		return ws
	}
}

// regset reads or writes the extended state, and gives its size.
func (s *sandbox) regset(tb testing.TB, request int, buf []byte) int {
	tb.Helper()
	iov := unix.Iovec{Base: &buf[0], Len: uint64(len(buf))}
	const xstateNote = 0x202
	_, _, e := unix.RawSyscall6(unix.SYS_PTRACE, uintptr(request), uintptr(s.pid), xstateNote, uintptr(unsafe.Pointer(&iov)), 0, 0)
	if e != 0 {
		tb.Fatalf("ptrace of the extended state, %d bytes: %v", len(buf), e)
	}
	return int(iov.Len)
}

// step runs one instruction (of a repeated one, one round) from these registers, leaves there what they are afterwards, and gives the signal that it
// raised, SIGTRAP if none.
func (s *sandbox) step(tb testing.TB, r *unix.PtraceRegs) unix.Signal {
	tb.Helper()
	if err := unix.PtraceSetRegs(s.pid, r); err != nil {
		tb.Fatalf("setting registers %+v: %v", *r, err)
	}
	if err := unix.PtraceSingleStep(s.pid); err != nil {
		tb.Fatal(err)
	}
	ws := s.wait(tb)
	if !ws.Stopped() {
		tb.Fatalf("the sandbox ended, status %#x, at %#x", int(ws), r.Rip)
	}
	s.stepped++
	if err := unix.PtraceGetRegs(s.pid, r); err != nil {
		tb.Fatal(err)
	}
	return ws.StopSignal()
}

// A state is all that an instruction can see and change: registers, and the pages of data.
type state struct {
	gpr    [16]uint64
	flags  uint64
	rip    uint64
	fs, gs uint64
	x      []byte // the XSAVE area
	data   [3][]byte
}

func (st *state) clone() *state {
	c := *st
	c.x = append([]byte(nil), st.x...)
	for i := range c.data {
		c.data[i] = append([]byte(nil), st.data[i]...)
	}
	return &c
}

// order gives the registers of ptrace's structure by number.
func order(r *unix.PtraceRegs) [16]*uint64 {
	return [16]*uint64{&r.Rax, &r.Rcx, &r.Rdx, &r.Rbx, &r.Rsp, &r.Rbp, &r.Rsi, &r.Rdi, &r.R8, &r.R9, &r.R10, &r.R11, &r.R12, &r.R13, &r.R14, &r.R15}
}

// run runs at most steps instructions from the state, until the instruction pointer is where done says or a signal (0: it could not be tried) comes, and gives the state and the
// signal afterwards.
func (s *sandbox) run(tb testing.TB, st *state, steps int, done func(rip uint64) bool) (*state, unix.Signal) {
	tb.Helper()
	if !canonical(st.gpr[4]) {
		return st, 0 // would not run where random says so: no answer
	}
	for i := range s.data {
		copy(s.data[i], st.data[i])
	}
	s.regset(tb, unix.PTRACE_SETREGSET, st.x[:s.xsize])
	r := s.regs
	for i, p := range order(&r) {
		*p = st.gpr[i]
	}
	r.Rip, r.Orig_rax, r.Eflags, r.Fs_base, r.Gs_base = st.rip, ^uint64(0), st.flags, st.fs, st.gs
	sig := unix.SIGTRAP
	for n := 0; n < steps && sig == unix.SIGTRAP; n++ {
		sig = s.step(tb, &r)
		if done(r.Rip) {
			break
		}
	}
	out := &state{flags: r.Eflags, rip: r.Rip, fs: r.Fs_base, gs: r.Gs_base, x: make([]byte, len(s.xstate))}
	for i, p := range order(&r) {
		out.gpr[i] = *p
	}
	s.regset(tb, unix.PTRACE_GETREGSET, out.x[:s.xsize])
	for i := range s.data {
		out.data[i] = append([]byte(nil), s.data[i]...)
	}
	return out, sig
}

// evex says whether the processor has AVX-512, by whose opmasks' place in the state it is known.
func (s *sandbox) evex() bool { return s.components>>5&1 != 0 }

// least is how many instructions a test must run at the least, n where all kinds of them are tried that there are: half of that without AVX-512, if time is short.
func (s *sandbox) least(n int) int {
	if testing.Short() && !s.evex() {
		return n / 2
	}
	return n
}

// xstateComponents are those that states are made of: x87, SSE, AVX and AVX-512.
const xstateComponents = 0xe7

// fill fills with random bytes, of which some are 0 and some 0xff.
func fill(rnd *rand.Rand, p []byte) {
	for i := 0; i+8 <= len(p); i += 8 {
		binary.LittleEndian.PutUint64(p[i:], word(rnd))
	}
}

// word gives a random number: any, small, a power of two, or close to one of the ends.
func word(rnd *rand.Rand) uint64 {
	switch v := rnd.Uint64(); rnd.IntN(8) {
	case 0:
		return v & 0xff
	case 1:
		return 1 << (v & 63)
	case 2:
		return -(v & 0xf)
	case 3:
		return v & 0xffffffff
	default:
		return v
	}
}

func canonical(v uint64) bool { return uint64(int64(v)<<16>>16) == v }

// random makes a state. Floating-point exceptions are masked; the direction flag may be set.
func (s *sandbox) random(rnd *rand.Rand) *state {
	st := &state{x: append([]byte(nil), s.xstate...), flags: uint64(Flags(rnd.Uint32())&(FlagsArith|DF)) | 0x202, rip: codeAt}
	for i := range st.gpr {
		st.gpr[i] = word(rnd)
	}
	// Where the kernel's return to user mode asks for it (FRED's ERETU; seen on an AMD EPYC of family 26), an rsp that is no canonical address raises #GP before the instruction runs.
	st.gpr[4] = uint64(int64(st.gpr[4]) << 16 >> 16)
	st.fs, st.gs = rnd.Uint64()&0xffff8, rnd.Uint64()&0xffff8
	all := make([]byte, len(st.data)*pageSize)
	for i := 0; i < len(all); i += 8 {
		binary.LittleEndian.PutUint64(all[i:], rnd.Uint64())
	}
	for range 64 { // some of it as registers are
		fill(rnd, all[8*rnd.IntN(len(all)/8):][:8])
	}
	for i := range st.data {
		st.data[i] = all[i*pageSize:][:pageSize]
	}
	st.randomX87(rnd)
	for i := range 32 {
		st.setVec(s, i, rnd)
	}
	for i := range 8 {
		binary.LittleEndian.PutUint64(st.x[s.off.mask+8*i:], word(rnd))
	}
	le := binary.LittleEndian
	le.PutUint32(st.x[24:], 0x1f80|rnd.Uint32()&0xe040) // MXCSR: rounding, flush and denormals any
	bv := le.Uint64(st.x[xstateHeader:])
	le.PutUint64(st.x[xstateHeader:], bv|s.components)
	clear(st.x[s.xsize:]) // what the processor does not have is 0 before and after
	return st
}

// randomX87 gives the x87 a random state.
func (st *state) randomX87(rnd *rand.Rand) {
	le := binary.LittleEndian
	le.PutUint16(st.x[0:], 0x33f|uint16(rnd.Uint32())&0xc00|0x40) // control: any rounding, extended precision, all masked
	le.PutUint16(st.x[2:], uint16(rnd.Uint32())&0x7f00)           // status: any top and condition codes, no exception
	st.x[4] = 0xff                                                // tags: all full
	if rnd.IntN(4) == 0 {
		st.x[4] = byte(rnd.Uint32())
	}
	for i := range 8 {
		fill(rnd, st.x[32+16*i:][:8])
		le.PutUint16(st.x[32+16*i+8:], 0x3fff+uint16(rnd.IntN(64))-32|uint16(rnd.Uint32())&0x8000)
		clear(st.x[32+16*i+10 : 32+16*i+16])
	}
}

// vec gives a vector register's 64 bytes, in pieces.
func (st *state) vec(s *sandbox, i int) (pieces [3][]byte) {
	if i >= 16 {
		return [3][]byte{st.x[s.off.hi16+64*(i-16):][:64]}
	}
	return [3][]byte{st.x[xstateXMM+16*i:][:16], st.x[s.off.ymm+16*i:][:16], st.x[s.off.zmm+32*i:][:32]}
}

// setVec fills a vector register: with random bytes or with floating-point numbers of usual size.
func (st *state) setVec(s *sandbox, i int, rnd *rand.Rand) {
	how := rnd.IntN(3)
	for _, p := range st.vec(s, i) {
		fill(rnd, p)
		for j := 0; how == 1 && j < len(p); j += 8 {
			binary.LittleEndian.PutUint64(p[j:], rnd.Uint64()&^(0x7ff<<52)|uint64(1023+rnd.IntN(40)-20)<<52)
		}
		for j := 0; how == 2 && j < len(p); j += 4 {
			binary.LittleEndian.PutUint32(p[j:], rnd.Uint32()&^(0xff<<23)|uint32(127+rnd.IntN(40)-20)<<23)
		}
	}
}
