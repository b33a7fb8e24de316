package recover

import (
	"testing"

	"github.com/ripstop/ripstop/internal/pt"
	"github.com/ripstop/ripstop/internal/sample"
	"github.com/ripstop/ripstop/internal/x86"
)

// made is a program as pieces of code, of which a thread ran all, in the order of their calls.
type made struct {
	code []byte
	ips  []uint64
}

const madeAt = 0x401000

// run appends instructions and lets the thread run them.
func (m *made) run(insts ...[]byte) {
	for _, b := range insts {
		m.ips = append(m.ips, madeAt+uint64(len(m.code)))
		m.code = append(m.code, b...)
	}
}

// shard makes a trace of what ran, with one sample after the instruction with that number.
func (m *made) shard(t *testing.T, at int, regs sample.Registers) *Shard {
	t.Helper()
	const tick = 10000
	enc, err := pt.NewFlowEncoder(bytesAt{madeAt, m.code}, pt.EncoderOptions{TSC: true, CYC: true, Timing: pt.Timing{Nominal: 20}})
	if err != nil {
		t.Fatal(err)
	}
	for i, ip := range m.ips {
		enc.Tick(uint64(i+1) * tick)
		if err := enc.Execute(ip); err != nil {
			t.Fatal(err)
		}
	}
	enc.Flush()
	s := &Shard{Trace: enc.Bytes(), Config: pt.Config{Timing: pt.Timing{Nominal: 20}}, Segments: pt.Segments(enc.Bytes(), 1), End: forever, OwnEnd: forever}
	s.Behind = len(s.Segments)
	s.Samples = []sample.Sample{{TSC: uint64(at+1) * tick, Kind: sample.LoadEvent, IP: m.ips[at], Addr: regs[7], Regs: regs, Has: 1<<18 - 1}}
	return s
}

// What a thread keeps in its frame is known again when it is loaded, unless somebody else may have a pointer to the frame, or all may have changed.
func TestFrames(t *testing.T) {
	nop := []byte{0x90}
	jump := []byte{0xeb, 0x00}
	for _, c := range []struct {
		name  string
		op    []byte // between store and load
		alone bool
		known bool
	}{
		{"nothing", nop, false, true},
		{"lea rcx, [rsp+8]", []byte{0x48, 0x8d, 0x4c, 0x24, 0x08}, false, false},
		{"lea rcx, [rsp+8]", []byte{0x48, 0x8d, 0x4c, 0x24, 0x08}, true, true},
		{"mov rcx, rsp", []byte{0x48, 0x89, 0xe1}, false, false},
		{"mov [rdi], rsp", []byte{0x48, 0x89, 0x27}, false, false},
		{"push rsp; its own slot", []byte{0x54}, false, false},
		{"mov rcx, rbp, which is a pointer elsewhere", []byte{0x48, 0x89, 0xe9}, false, true},
		{"cmp rsp, rcx", []byte{0x48, 0x39, 0xcc}, false, true},
		{"mov [rdi], rcx", []byte{0x48, 0x89, 0x0f}, false, true},
		{"mov [r9], rcx, with r9 unknown", []byte{0x49, 0x89, 0x09}, true, false},
		{"syscall", []byte{0x0f, 0x05}, true, false},
	} {
		var m made
		m.run(nop, jump, nop)
		m.run([]byte{0x48, 0x8b, 0x07})       // mov rax, [rdi]; sampled
		m.run([]byte{0xe8, 0, 0, 0, 0})       // call the next instruction
		m.run([]byte{0x4c, 0x8b, 0x0f})       // mov r9, [rdi]
		m.run([]byte{0x48, 0x83, 0xec, 0x10}) // sub rsp, 16
		m.run([]byte{0x48, 0x89, 0x74, 0x24, 0x08})
		m.run(c.op)
		if c.op[0] == 0x54 {
			m.run([]byte{0x59}) // pop rcx
		}
		m.run([]byte{0x48, 0x8b, 0x54, 0x24, 0x08}) // mov rdx, [rsp+8]
		m.run([]byte{0x48, 0x8b, 0x02})             // mov rax, [rdx]
		load := len(m.ips) - 1
		for range 8 { // packets behind it: jz, not taken
			m.run([]byte{0x74, 0x00}, nop)
		}
		m.run(nop)
		regs := sample.Registers{4: 0x7ffe00001000, 5: 0x7f0000001000, 6: 0x555500001000, 7: 0x555500002000}
		s := m.shard(t, 3, regs)
		if c.alone {
			s.Alone = []Range{{0, forever}}
		}
		r := NewRecoverer([]Image{{Image: bytesAt{madeAt, m.code}}}, Options{}).Recover(s)
		if r.Counts.Placed != 1 || r.Counts.Misfits+r.Counts.Contradicted > 0 {
			t.Fatalf("%s: %+v", c.name, r.Counts)
		}
		known := false
		for _, a := range r.Accesses {
			if a.IP == m.ips[load] {
				known = true
				if a.Addr != regs[6] {
					t.Errorf("%s: the load is from %#x, is %#x", c.name, a.Addr, regs[6])
				}
			}
		}
		if known != c.known {
			t.Errorf("%s, alone %v: the load's address is known: %v", c.name, c.alone, known)
		}
	}
}

// Frames end where rsp says, whatever way it went.
func TestFramesEnd(t *testing.T) {
	var f frames
	sparse := x86.NewSparseMemory()
	f.moved(0x1000)
	f.entered(0x1000)
	f.moved(0xf00)
	if !f.private(0xf10, 8) || !f.private(0xf00-redZone, 8) || f.private(0xf00-redZone-1, 1) || f.private(0x1008, 1) || f.private(0x1004, 8) {
		t.Error("one frame, wrong bounds")
	}
	f.moved(0xe00)
	f.entered(0xe00)
	f.moved(0xd00)
	f.point(f.find(0xf10), sparse)
	if f.private(0xf10, 8) || !f.private(0xd10, 8) {
		t.Error("a pointer to the outer frame")
	}
	f.moved(0xe08)
	if f.private(0xd90, 8) || len(f.list) != 1 {
		t.Error("the inner frame was left")
	}
}
