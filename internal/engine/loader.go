package engine

import (
	"encoding/binary"
	"slices"

	"github.com/ripstop/ripstop/internal/patch"
	"github.com/ripstop/ripstop/internal/wire"
	"github.com/ripstop/ripstop/internal/x86"

	"golang.org/x/sys/unix"
)

// Initialisers of a library run before dlopen returns. ld.so tells debuggers of libraries before that (r_brk, link.h), by a call of a function that does nothing. That becomes a jump to the agent, which asks there (PatchAskLoading).
// It is a jump or nothing: libc may have ld.so load something where it has all signals blocked, and an int3 would end the program.

const jumpBytes = 5

// hookLoader has that function jump to the agent, if the agent wants it, while there is one thread. Function says whether it does.
func (p *Process) hookLoader() error {
	at, to := p.Func(wire.PatchFuncLoaderState), p.Func(wire.PatchFuncLoaderHook)
	p.page.Function[wire.PatchFuncLoaderState] = 0
	m := p.at(at)
	distance := int64(to) - int64(at) - jumpBytes
	if at == 0 || m == nil || m.Kind != Loader || !p.alone() || distance != int64(int32(distance)) || at/patch.PageSize != (at+jumpBytes-1)/patch.PageSize {
		return nil
	}
	var code [16]byte
	if err := p.read(at, code[:]); err != nil || emptyFunction(code[:]) < jumpBytes {
		return nil // a debugger's breakpoint, too
	}
	b := binary.LittleEndian.AppendUint32([]byte{0xe9}, uint32(distance))
	if err := p.write(at, b); err != nil {
		return err
	}
	p.page.Function[wire.PatchFuncLoaderState] = at
	return nil
}

// emptyFunction gives how many bytes of code are a function that only returns, and what pads it; 0: it is none.
func emptyFunction(code []byte) (n int) {
	returned := false
	for n < len(code) {
		in, err := x86.Decode(code[n:])
		switch {
		case err != nil || n+in.Len > len(code):
			return n
		case returned && (in.Op == "nop" || in.Op == "int3"), !returned && n == 0 && in.Op == "endbr64":
		case !returned && in.Op == "ret" && in.Len <= 2: // it pops nothing
			returned = true
		case returned:
			return n
		default:
			return 0
		}
		n += in.Len
	}
	return n
}

// errLater says that not all libraries could be looked at while they are being loaded.
var errLater = unix.EAGAIN

// unready removes modules whose text ld.so has yet to change, those that are being loaded.
func unready(come []*Module) []*Module {
	return slices.DeleteFunc(come, func(m *Module) bool {
		if m.Image == nil || !m.Image.Relocates() {
			return false
		}
		m.close()
		return true
	})
}
