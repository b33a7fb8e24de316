package engine

import "encoding/binary"

// Word reads eight bytes of the process's memory; false: they are not to be had.
func (p *Process) Word(at uint64) (uint64, bool) {
	var b [8]byte
	err := p.read(at, b[:])
	return binary.LittleEndian.Uint64(b[:]), err == nil
}
