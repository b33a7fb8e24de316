package tracee

import (
	"bytes"

	"golang.org/x/sys/unix"
)

// A Padding is an instruction of one byte that stands, until the thread's next stop, for the byte behind its next instruction. No other thread of the process may be in user mode meanwhile, and all calls must come from the tracing
// thread. The zero value is none.
type Padding struct {
	at    uint64 // 0: none
	saved [1]byte
}

// IsCPUID says whether these bytes begin with the instruction that is to be stepped with a nop behind it.
func IsCPUID(code []byte) bool { return bytes.HasPrefix(code, []byte{0x0f, 0xa2}) }

// PutNop is for a step over CPUID. Where a host executes that for its guest and loses the trap flag (AMD SEV, Linux 6.18), the step ends only behind the next instruction: it shall be one that does nothing. false: it cannot be
// written (nothing is mapped there).
func (p *Padding) PutNop(tid int, at uint64) bool { return p.put(tid, at, 0x90) }

// PutInt3 makes the thread stop there (SIGTRAP, SI_KERNEL) when it is let run: also where a hypervisor keeps hardware breakpoints from being hit.
func (p *Padding) PutInt3(tid int, at uint64) bool { return p.put(tid, at, 0xcc) }

func (p *Padding) put(tid int, at uint64, code byte) bool {
	if n, err := unix.PtracePeekText(tid, uintptr(at), p.saved[:]); err != nil || n != len(p.saved) {
		return false
	}
	if n, err := unix.PtracePokeText(tid, uintptr(at), []byte{code}); err != nil || n != 1 {
		return false
	}
	p.at = at
	return true
}

// Take puts the byte back, and the stopped thread before it if it ran what stood for it. An error: the thread is gone.
func (p *Padding) Take(tid int) error {
	at := p.at
	if p.at = 0; at == 0 {
		return nil
	}
	if _, err := unix.PtracePokeText(tid, uintptr(at), p.saved[:]); err != nil {
		return err
	}
	var r unix.PtraceRegs
	if err := unix.PtraceGetRegs(tid, &r); err != nil || r.Rip != at+1 {
		return err
	}
	r.Rip = at
	return unix.PtraceSetRegs(tid, &r)
}
