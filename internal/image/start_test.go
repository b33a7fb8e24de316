package image

import (
	"debug/elf"
	"os/exec"
	"testing"
)

// Each function of a program is found from all of its bytes, in a copy without symbols.
func TestFunctionStart(t *testing.T) {
	for _, cc := range [][]string{{"g++", "-O2"}, {"clang++", "-O1"}, {"g++", "-O0", "-no-pie"}} {
		exe := build(t, "names", append(cc, "-pthread", "testdata/names.cc")...)
		f, err := elf.Open(exe)
		if err != nil {
			t.Fatal(err)
		}
		symbols, err := f.Symbols()
		if err != nil {
			t.Fatal(err)
		}
		text := f.Section(".text")
		f.Close()
		bare := exe + ".bare"
		if out, err := exec.Command("strip", "-o", bare, exe).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		sym := NewSymbolizer()
		defer sym.Close()
		checked := 0
		for _, s := range symbols {
			if elf.ST_TYPE(s.Info) != elf.STT_FUNC || s.Size == 0 || s.Value < text.Addr || s.Value >= text.Addr+text.Size {
				continue
			}
			checked++
			for _, at := range []uint64{s.Value, s.Value + s.Size/2, s.Value + s.Size - 1} {
				if frames := sym.Frames(bare, "", at); len(frames) != 1 || frames[0].Func != "" || frames[0].Start != s.Value {
					t.Errorf("%v: %s is at %#x, and at %#x is %+v", cc, s.Name, s.Value, at, frames)
				}
			}
		}
		if checked < 3 {
			t.Errorf("%v: %d functions", cc, checked)
		}
		if frames := sym.Frames(bare, "", text.Addr-4096); frames[0].Start != 0 {
			t.Errorf("%v: before all: %+v", cc, frames)
		}
	}
}
