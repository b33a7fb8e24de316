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

// A displaced is a case of displace_driver.c.
type displaced struct {
	from, to uint64
	code     []byte
}

// displace has the agent's function move instructions.
func displace(t *testing.T, exe string, list []displaced) (results []int, moved [][]byte) {
	t.Helper()
	var in []byte
	for _, d := range list {
		in = binary.LittleEndian.AppendUint64(in, d.from)
		in = binary.LittleEndian.AppendUint64(in, d.to)
		var code [16]byte
		copy(code[:15], d.code)
		code[15] = byte(min(len(d.code), 15))
		in = append(in, code[:]...)
	}
	cmd := exec.Command(exe)
	cmd.Stdin = bytes.NewReader(in)
	var problems bytes.Buffer
	cmd.Stderr = &problems
	out, err := cmd.Output()
	if err != nil || len(out) != 16*len(list) {
		t.Fatalf("%v, %d bytes for %d instructions\n%s", err, len(out), len(list), problems.Bytes())
	}
	for ; len(out) > 0; out = out[16:] {
		results = append(results, int(int8(out[0])))
		moved = append(moved, out[1:16])
	}
	return results, moved
}

// What the agent makes of an instruction that it executes elsewhere is what x86.Relocate makes of it, over all of libc, libstdc++ and random bytes: an instruction whose control flow is plain is moved, and none other.
func TestDisplace(t *testing.T) {
	exe := filepath.Join(t.TempDir(), "displace_driver")
	if out, err := exec.Command("gcc", "-O1", "-g", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-fsanitize=address,undefined", "-fno-sanitize-recover", "-o", exe, "testdata/displace_driver.c", "../displace.c").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	r := rand.New(rand.NewPCG(1, 2))
	var list []displaced
	add := func(at uint64, code []byte) {
		from := 0x7f0000000000 + at
		to := from + uint64(r.Int64N(1<<32)) - 1<<31
		list = append(list, displaced{from, to, code})
	}
	for _, path := range []string{"/lib/x86_64-linux-gnu/libc.so.6", "/usr/lib/x86_64-linux-gnu/libstdc++.so.6"} {
		f, err := elf.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		text := f.Section(".text")
		code, err := text.Data()
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
			add(text.Addr+uint64(i), code[i:min(i+15, len(code))])
			i += int(in.Len)
		}
	}
	real := len(list)
	heads := [][]byte{nil, {0x66}, {0xf2}, {0xf3}, {0x48}, {0x67}, {0x0f}, {0x66, 0x0f}, {0xf3, 0x0f}, {0xf2, 0x0f}, {0x0f, 0x38}, {0x0f, 0x3a}, {0xc4}, {0xc5}, {0x62}, {0x8f}, {0xf0}, {0x64}}
	for range 200000 {
		b := make([]byte, 15)
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		copy(b, heads[r.IntN(len(heads))])
		add(uint64(r.Uint32()), b[:1+r.IntN(15)])
	}
	results, moved := displace(t, exe, list)
	wrong, plain, cut := 0, 0, 0
	for i, d := range list {
		in, err := x86.Decode(d.code)
		switch {
		case errors.Is(err, x86.ErrTruncated):
			cut++
			if results[i] > 0 {
				t.Errorf("%s is not whole, and is moved with %d bytes", hex.EncodeToString(d.code), results[i])
				wrong++
			}
		case err != nil: // the processor says what it thinks of it
			continue
		case in.Flow != x86.FlowNone:
			if results[i] != 0 {
				t.Errorf("%s (%s) says where control goes on, and is moved", hex.EncodeToString(d.code), in.Op)
				wrong++
			}
		default:
			plain++
			want, err := x86.Relocate(nil, &in, d.code, d.from, d.to, x86.RefuseCalls)
			if err != nil || in.Op == "lea" && len(want) != int(in.Len) { // out of reach
				want = nil
			}
			if results[i] != len(want) || !bytes.Equal(moved[i][:len(want)], want) {
				if results[i] == 0 && i >= real {
					continue // what no compiler makes may be left to the caller
				}
				t.Errorf("%s (%s) from %#x to %#x: %d, % x; by x86.Relocate % x", hex.EncodeToString(d.code), in.Op, d.from, d.to, results[i], moved[i], want)
				wrong++
			}
		}
		if wrong > 20 {
			t.FailNow()
		}
	}
	t.Logf("%d instructions, of them %d plain, %d cut", len(list), plain, cut)
}
