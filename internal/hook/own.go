package hook

import (
	"bytes"

	"github.com/ripstop/ripstop/internal/engine"
	"github.com/ripstop/ripstop/internal/patch"
	"github.com/ripstop/ripstop/internal/syscalls"
	"github.com/ripstop/ripstop/internal/wire"
	"github.com/ripstop/ripstop/internal/x86"
)

// Own gives the instructions at places by which a program and its libraries make system calls themselves.
func Own(p *engine.Process, m *engine.Module, places []uint64) (sites []patch.Site) {
	hook := p.Func(wire.PatchFuncSyscallHook)
	if hook == 0 || len(places) == 0 {
		return nil
	}
	for _, s := range syscalls.Find(func(yield func(uint64, *x86.Inst) bool) {
		next := uint64(0) // the first address that was not looked at
		for _, link := range places {
			at := link + m.Bias
			var more bool
			if next, more = upTo(m, max(next, at-min(window, at)), at, yield, func() {}); !more {
				return
			}
		}
	}) {
		if s.Left == "" {
			sites = append(sites, patch.Site{At: s.At, Recipe: syscalls.Recipe{Next: s.At + uint64(s.Len), Hook: hook}})
		}
	}
	return sites
}

var opSyscall = []byte{0x0f, 0x05}

// eachCall calls f with each offset, ascending, at which there are the bytes of syscall.
func eachCall(code []byte, f func(int)) {
	for i := 0; ; i++ {
		n := bytes.Index(code[i:], opSyscall)
		if n < 0 {
			return
		}
		i += n
		f(i)
	}
}
