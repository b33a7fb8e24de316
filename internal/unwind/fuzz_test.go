package unwind

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/ripstop/ripstop/internal/image"
	"github.com/ripstop/ripstop/internal/wire"
)

// tinyELF is a small real program.
func tinyELF(f *testing.F, flags ...string) []byte {
	dir := f.TempDir()
	src, exe := filepath.Join(dir, "a.c"), filepath.Join(dir, "a")
	text := "__attribute__((noinline)) int g(int n) { char b[n]; b[0] = 1; return *(volatile char *)b; }\n" +
		"void _start(void) { for (;;) g(3); }\n"
	if err := os.WriteFile(src, []byte(text), 0o644); err != nil {
		f.Fatal(err)
	}
	if out, err := exec.Command("gcc", append(flags, "-nostdlib", "-O1", "-o", exe, src)...).CombinedOutput(); err != nil {
		f.Fatalf("gcc is needed: %v\n%s", err, out)
	}
	b, err := os.ReadFile(exe)
	if err != nil {
		f.Fatal(err)
	}
	return b
}

// Proves: no ELF file makes Compile panic or take memory without end, and what it makes can be decoded.
func FuzzCompile(f *testing.F) {
	b := tinyELF(f)
	f.Add(b)
	bare := bytes.Clone(b)
	clear(bare[40:48])
	clear(bare[60:64])
	f.Add(bare)
	f.Fuzz(func(t *testing.T, b []byte) {
		img, err := image.FromMemory("fuzz", b)
		if err != nil {
			return
		}
		defer img.Close()
		if list, _ := Whole(img); !slices.IsSortedFunc(list, func(a, b [2]uint64) int { return cmp.Compare(a[0], b[0]) }) {
			t.Errorf("%x", list)
		}
		tab, _, err := Compile(img)
		if err != nil {
			return
		}
		if _, err := Decode(tab); err != nil {
			t.Errorf("its own table: %v", err)
		}
	})
}

// Proves: no .eh_frame makes the parser panic, loop or take memory without end; rows are in order and inside their function.
func FuzzEhFrame(f *testing.F) {
	for _, b := range [][]byte{tinyELF(f), tinyELF(f, "-fno-omit-frame-pointer")} {
		img, err := image.FromMemory("seed", b)
		if err != nil {
			f.Fatal(err)
		}
		d, addr, ok := img.Section(".eh_frame")
		if !ok {
			f.Fatal("no .eh_frame")
		}
		f.Add(d, addr, false)
		f.Add(d, addr, true)
	}
	f.Fuzz(func(t *testing.T, d []byte, addr uint64, open bool) {
		e := &ehFrame{data: d, addr: addr, openEnd: open}
		b := builder{index: map[wire.UnwindRule]uint32{}}
		b.rule(none)
		var st Stats
		e.each(func(fd *fde) {
			last := fd.begin
			fd.run(func(from, to uint64, s *state) {
				if from != last || to <= from || to > fd.end {
					t.Errorf("row [%#x,%#x) after %#x in [%#x,%#x)", from, to, last, fd.begin, fd.end)
				}
				last = to
			})
			b.add(fd, &st)
		})
		if st.States > len(d)+1 {
			t.Errorf("%d rows from %d bytes", st.States, len(d))
		}
		tab, err := Decode(b.layout(&st))
		if err != nil {
			t.Fatal(err)
		}
		tab.Lookup(addr)
	})
}

// Proves: no bytes make Decode panic, and a lookup in what it accepts and a walk with it are safe.
func FuzzDecode(f *testing.F) {
	b := builder{index: map[wire.UnwindRule]uint32{}}
	b.rule(none)
	b.spans = []span{{0x1000, 0x1010, b.rule(wire.UnwindRule{CFA: uint8(wire.CFARsp), CFAOff: 8}), true},
		{0x1020, 0x1030, b.rule(wire.UnwindRule{CFA: uint8(wire.CFASigframe)}), false},
		{0x1030, 0x1040, b.rule(wire.UnwindRule{CFA: uint8(wire.CFADerefRbp), CFAOff: -8, RBP: uint8(wire.RBPRuleAtRbp)}), true}}
	f.Add(b.layout(&Stats{}), []byte("12345678"))
	f.Fuzz(func(t *testing.T, d, stack []byte) {
		tab, err := Decode(d)
		if err != nil {
			return
		}
		regs := Regs{regRA: tab.Base, regRSP: 0, regRBP: 8}
		if len(stack) >= 8 {
			regs[regRA] += binary.LittleEndian.Uint64(stack) % 0x100
		}
		if n := len(Walk(regs, bytes.NewReader(stack), []Module{{Start: 0, End: ^uint64(0), Bias: 0, Table: tab}}, 50)); n < 1 || n > 50 {
			t.Errorf("%d frames", n)
		}
	})
}
