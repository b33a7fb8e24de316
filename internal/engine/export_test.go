package engine

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/ripstop/ripstop/internal/patch"
	"github.com/ripstop/ripstop/internal/wire"
)

// Taken says whether the text was changed before the asker was told of the trampolines: it is when it is answered, or we are gone.
func (p *Process) Taken() bool { return p.page.Turn == turnTaken && len(p.last) > 0 }

// Reclaim looks for old trampolines' memory now.
func (p *Process) Reclaim() error { return p.reclaim() }

// Hook has a function called before each write to the process and each operation that it is told to do, which fails if the function gives an errno: of a write half is done.
func (p *Process) Hook(f func(wire.PatchOp) unix.Errno) { p.hook = f }

// Patch gives the patch of an instruction, also of one that was displaced.
func (m *Module) Patch(at uint64) *patch.Patch { return m.text(at).planner.At(at) }

// Buried gives how many bytes of trampolines nothing leads to that are not to be used again yet.
func (p *Process) Buried() uint64 { return p.buried }

// VacateFor bounds how long a thread is waited for from now on, and gives back what it was.
func VacateFor(d time.Duration) (was time.Duration) {
	was, vacateFor = vacateFor, d
	return was
}

// Blind has nobody known to share another's memory, as where the kernel does not tell, until the function is called that it gives.
func Blind() (undo func()) {
	was := sharesMemory
	sharesMemory = func(int, int) bool { return false }
	return func() { sharesMemory = was }
}

// FileBytes is what the file of trampolines has of memory.
func (p *Process) FileBytes() (uint64, error) {
	var st unix.Stat_t
	err := unix.Fstat(p.fds[0], &st)
	return uint64(st.Blocks) * 512, err
}

// Texts gives where the module's code lies.
func (m *Module) Texts() (list [][2]uint64) {
	for _, t := range m.texts {
		list = append(list, [2]uint64{t.at, t.end()})
	}
	return list
}
