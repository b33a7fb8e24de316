package count

import (
	"encoding/binary"
	"errors"

	"github.com/ripstop/ripstop/internal/x86"
)

// found are the memory instructions of a module that are to be counted, by address, and what forms they need: all that costs much to find out and that depends on
// the module's code alone.
type found struct {
	insts  []Inst   // with neither tier nor count
	formOf []uint32 // of each, its place in forms
	forms  []example
}

// An example is an instruction that needs a form, and what is live before it.
type example struct {
	at   uint64 // link-time
	live x86.Live
}

// What is found in bytes; all numbers but one are unsigned LEB128: how many names of instructions, for each the length and the name; how many forms, for each the address, live registers and
// flags; how many instructions, for each how far behind the one before it lies (the first: its address), the name's place, its kind (1 byte), its size, the form's place.

// append appends what is found in bytes.
func (f *found) append(b []byte) []byte {
	names := map[string]uint64{}
	var list []string
	for i := range f.insts {
		if op := f.insts[i].Op; names[op] == 0 {
			list = append(list, op)
			names[op] = uint64(len(list))
		}
	}
	b = binary.AppendUvarint(b, uint64(len(list)))
	for _, op := range list {
		b = append(binary.AppendUvarint(b, uint64(len(op))), op...)
	}
	b = binary.AppendUvarint(b, uint64(len(f.forms)))
	for _, x := range f.forms {
		b = binary.AppendUvarint(b, x.at)
		b = binary.AppendUvarint(b, uint64(x.live.Regs))
		b = binary.AppendUvarint(b, uint64(x.live.Flags))
	}
	b = binary.AppendUvarint(b, uint64(len(f.insts)))
	last := uint64(0)
	for i := range f.insts {
		in := &f.insts[i]
		b = binary.AppendUvarint(b, in.Addr-last)
		b = binary.AppendUvarint(b, names[in.Op]-1)
		b = append(b, byte(in.Access.Kind))
		b = binary.AppendUvarint(b, uint64(in.Access.Size))
		b = binary.AppendUvarint(b, uint64(f.formOf[i]))
		last = in.Addr
	}
	return b
}

var errFound = errors.New("not the memory instructions of a module")

// parseFound reads what append appended.
func parseFound(b []byte) (*found, error) {
	bad := false
	number := func(most uint64) uint64 {
		v, n := binary.Uvarint(b)
		if n <= 0 || v > most {
			bad, b = true, nil
			return 0
		}
		b = b[n:]
		return v
	}
	f := &found{}
	names := make([]string, number(uint64(len(b))))
	for i := range names {
		n := number(uint64(len(b)))
		if bad || n > uint64(len(b)) {
			return nil, errFound
		}
		names[i], b = string(b[:n]), b[n:]
	}
	f.forms = make([]example, number(uint64(len(b))))
	for i := range f.forms {
		f.forms[i] = example{number(1 << 62), x86.Live{Regs: x86.RegSet(number(^uint64(0))), Flags: x86.Flags(number(1<<32 - 1))}}
	}
	const least = 5 // bytes of an instruction
	n := number(uint64(len(b)))
	if bad || n > uint64(len(b))/least {
		return nil, errFound
	}
	f.insts, f.formOf = make([]Inst, n), make([]uint32, n)
	at := uint64(0)
	for i := range f.insts {
		step := number(1 << 62)
		if at += step; bad || i > 0 && step == 0 || at > 1<<62 || len(b) == 0 {
			return nil, errFound
		}
		name := number(uint64(len(names)))
		if len(b) == 0 || name >= uint64(len(names)) || Kind(b[0]) >= Kinds {
			return nil, errFound
		}
		kind := Kind(b[0])
		b = b[1:]
		size := number(1<<16 - 1)
		form := number(uint64(len(f.forms)))
		if bad || form >= uint64(len(f.forms)) {
			return nil, errFound
		}
		f.insts[i], f.formOf[i] = Inst{Addr: at, Op: names[name], Access: Access{kind, uint16(size)}}, uint32(form)
	}
	if len(b) > 0 {
		return nil, errFound
	}
	return f, nil
}
