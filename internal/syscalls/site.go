package syscalls

import (
	"bytes"

	"github.com/ripstop/ripstop/internal/x86"
)

// A Site is an instruction that makes system calls.
type Site struct {
	At     uint64
	Len    int
	Number int    // the call's, from the instruction before it; -1: not known
	Left   Reason // why it is left as it is; "": it need not be
}

// A Reason says why a site is left alone.
type Reason string

// Reasons.
const (
	// The kernel looks for the signal's frame at rsp, and unwinders and debuggers know the place by its bytes (libgcc's x86_64_fallback_frame_state, gdb's
	// amd64_linux_sigtramp_start).
	LeftSigreturn Reason = "returns from signals: debuggers know it by its bytes"
	LeftExit      Reason = "ends the thread or process: there is nothing behind it"
	Left32        Reason = "int 0x80 or sysenter: the kernel's 32-bit entry"
)

// leftAlone are the calls whose sites are left as they are. Those of clone, fork and vfork are not among them: there the call is made in the trampoline, where the
// child goes on with whatever stack it has.
var leftAlone = map[string]Reason{"rt_sigreturn": LeftSigreturn, "exit": LeftExit, "exit_group": LeftExit}

// MayBegin says whether the bytes of a site may begin here. Two bytes at least.
func MayBegin(code []byte) bool {
	return code[0] == 0x0f && (code[1] == 0x05 || code[1] == 0x34) || code[0] == 0xcd && code[1] == 0x80
}

// ReturnsFromSignal says whether the bytes before a syscall are what debuggers know __restore_rt by: mov $15, %eax or %rax. Its instructions are often not known to be
// such: no symbol names it, and frames of signals begin a byte before their code (unwind.Ranges leaves them out).
func ReturnsFromSignal(before []byte) bool {
	return bytes.HasSuffix(before, []byte{0x48, 0xc7, 0xc0, 15, 0, 0, 0}) || bytes.HasSuffix(before, []byte{0xb8, 15, 0, 0, 0})
}

// Find looks for sites among instructions, which each gives by address: their address and facts. Those that are far from any site may be left out.
func Find(each func(yield func(at uint64, in *x86.Inst) bool)) (sites []Site) {
	number, end := -1, uint64(0) // what eax holds behind the instruction that ends at end
	each(func(at uint64, in *x86.Inst) bool {
		if at != end {
			number = -1
		}
		switch {
		case in.Op == "syscall":
			s := Site{At: at, Len: in.Len, Number: number}
			if c := Numbered(number); c != nil && number >= 0 {
				s.Left = leftAlone[c.Name]
			}
			sites = append(sites, s)
		case in.Op == "sysenter", in.Op == "int" && len(in.Args()) == 1 && in.Args()[0].Imm&0xff == 0x80:
			sites = append(sites, Site{At: at, Len: in.Len, Number: -1, Left: Left32})
		}
		number, end = setsEAX(in, number), at+uint64(in.Len)
		return true
	})
	return sites
}

// setsEAX gives what eax holds behind an instruction, -1 if that is not known.
func setsEAX(in *x86.Inst, before int) int {
	args := in.Args()
	if len(args) == 2 && args[0].Kind == x86.ArgReg && (args[0].Reg == x86.EAX || args[0].Reg == x86.RAX) {
		switch {
		case in.Op == "mov" && args[1].Kind == x86.ArgImm && args[1].Imm >= 0 && args[1].Imm < 1<<31:
			return int(args[1].Imm)
		case in.Op == "xor" && args[1].Kind == x86.ArgReg && args[1].Reg == args[0].Reg:
			return 0
		}
	}
	if in.Flow != x86.FlowNone || in.Writes.Has(x86.RAX) {
		return -1
	}
	return before
}
