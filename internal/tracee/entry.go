package tracee

import (
	"encoding/binary"
	"fmt"
	"os"
)

// Entry is where the program of a process begins (AT_ENTRY, getauxval(3)): behind the loader and the initialisers of libraries. It is known from exec on.
func Entry(pid int) (uint64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/auxv", pid))
	if err != nil {
		return 0, gone(pid, err)
	}
	if at := entryOf(b); at != 0 {
		return at, nil
	}
	return 0, fmt.Errorf("process %d: the kernel does not say where its program begins", pid)
}

func entryOf(auxv []byte) uint64 {
	const atEntry = 9
	for ; len(auxv) >= 16; auxv = auxv[16:] {
		if binary.LittleEndian.Uint64(auxv) == atEntry {
			return binary.LittleEndian.Uint64(auxv[8:])
		}
	}
	return 0
}
