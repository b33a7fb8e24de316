package ctest

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/ripstop/ripstop/internal/x86"
)

// What is said of the pointer of a crash, and of what() of an exception, rests on the code before it: the lengths of all instructions of libc and libstdc++ are x86's or not known, and of random bytes likewise; and no
// instruction writes a general register that is not said to be written, but rsp, where a call does; memory operands are the same, of EVEX but for short displacements.
func TestDecode(t *testing.T) {
	exe := filepath.Join(t.TempDir(), "decode_driver")
	if out, err := exec.Command("gcc", "-O1", "-g", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-Wno-unused-function", "-I..", "-fsanitize=address,undefined", "-fno-sanitize-recover", "-o", exe,
		"testdata/decode_driver.c").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var list [][]byte
	for _, path := range []string{"/lib/x86_64-linux-gnu/libc.so.6", "/usr/lib/x86_64-linux-gnu/libstdc++.so.6"} {
		f, err := elf.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		code, err := f.Section(".text").Data()
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i < len(code); {
			in, err := x86.Decode(code[i:])
			if err != nil {
				i++
				continue
			}
			list = append(list, code[i:min(i+15, len(code))])
			i += in.Len
		}
	}
	compiled := len(list)
	r := rand.New(rand.NewPCG(1, 2))
	heads := [][]byte{nil, {0x66}, {0xf2}, {0x48}, {0x67}, {0x0f}, {0x66, 0x0f}, {0x0f, 0x38}, {0x0f, 0x3a}, {0xc4}, {0xc5}, {0x62}, {0xf0}, {0x64}}
	for range 200_000 {
		b := make([]byte, 15)
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		copy(b, heads[r.IntN(len(heads))])
		list = append(list, b[:1+r.IntN(15)])
	}
	var in []byte
	for _, code := range list {
		var record [16]byte
		copy(record[:], code)
		record[15] = byte(len(code))
		in = append(in, record[:]...)
	}
	cmd := exec.Command(exe)
	cmd.Stdin = bytes.NewReader(in)
	var problems bytes.Buffer
	cmd.Stderr = &problems
	out, err := cmd.Output()
	if err != nil || len(out) != 12*len(list) {
		t.Fatalf("%v, %d bytes for %d instructions\n%s", err, len(out), len(list), problems.Bytes())
	}
	wrong, known := 0, 0
	for i, code := range list {
		length, writes := int(binary.LittleEndian.Uint16(out[12*i:])), x86.RegSet(binary.LittleEndian.Uint16(out[12*i+2:]))
		d, err := x86.Decode(code)
		switch {
		case length == 0:
			continue
		case errors.Is(err, x86.ErrTruncated):
			t.Errorf("%s is not whole, and has %d bytes", hex.EncodeToString(code), length)
			wrong++
		case err != nil: // the processor does not run it
		case length != d.Len:
			if i < compiled {
				t.Errorf("%s (%s) has %d bytes, not %d", hex.EncodeToString(code[:d.Len]), d.Op, d.Len, length)
				wrong++
			}
		default:
			if known++; d.Writes&x86.SetGPR&^writes&^x86.RSP.Set() != 0 && d.Flow == x86.FlowNone {
				t.Errorf("%s (%s) writes %#x, not only %#x", hex.EncodeToString(code[:d.Len]), d.Op, d.Writes&x86.SetGPR, writes)
				wrong++
			}
			if m, ok := operand(&d, code); ok && !sameOperand(&d, m, out[12*i+4:12*i+12]) {
				t.Errorf("%s (%s) accesses %+v, not % x", hex.EncodeToString(code[:d.Len]), d.Op, m, out[12*i+4:12*i+12])
				wrong++
			}
		}
		if wrong > 20 {
			t.FailNow()
		}
	}
	if known < compiled*99/100 {
		t.Errorf("%d of %d are known", known, compiled)
	}
}

// operand is what ModRM names, if that is memory.
func operand(d *x86.Inst, code []byte) (x86.Mem, bool) {
	const registers = 3
	if d.ModRMOff <= 0 || code[d.ModRMOff]>>6 == registers {
		return x86.Mem{}, false
	}
	for _, m := range d.Mems() {
		if m.Kind&(x86.MemStack|x86.MemString|x86.MemES|x86.MemGather|x86.MemScatter) == 0 && m.Base.Size() != 4 && m.Index.Size() != 4 {
			return m, true
		}
	}
	return x86.Mem{}, false
}

func sameOperand(d *x86.Inst, m x86.Mem, c []byte) bool {
	base, index := byte(16), byte(16)
	if m.RIPRelative() {
		base = 17
	} else if m.Base != x86.NoReg {
		base = byte(m.Base.Num())
	}
	if m.Index != x86.NoReg {
		index = byte(m.Index.Num())
	}
	const vex = 4
	return c[0] == base && c[1] == index && (index == 16 || 1<<c[2] == m.Scale) && (c[3] == vex && d.DispLen == 1 || m.Disp == int64(int32(binary.LittleEndian.Uint32(c[4:]))))
}
