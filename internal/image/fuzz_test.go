package image

import (
	"bytes"
	"debug/elf"
	"io"
	"path/filepath"
	"testing"
)

// seeds are small real files of several kinds.
func seeds(f *testing.F) [][]byte {
	src := write(f, filepath.Join(f.TempDir(), "a.c"), []byte(
		"static int v[3]; static inline __attribute__((always_inline)) int g(int x) { return v[x & 1] + x; }\n"+
			"__attribute__((noinline)) int h(int x) { return g(x) * 3; }\nvoid _start(void) { v[0] = h(1); for (;;) ; }\n"))
	var out [][]byte
	for _, flags := range [][]string{{"-gdwarf-4"}, {"-gdwarf-5"}, {"-g", "-gz"}, {"-g", "-gsplit-dwarf"}, {"-s"}, {"-g", "-fdebug-types-section"}} {
		out = append(out, read(f, build(f, "a", append([]string{"gcc", "-O1", "-nostdlib", src}, flags...)...)))
	}
	return append(out, read(f, build(f, "a", "clang", "-O1", "-g", "-nostdlib", src)))
}

// Proves: no bytes make opening, classifying or naming panic or take memory without end.
func FuzzImage(f *testing.F) {
	old := debugDirs
	debugDirs = nil
	f.Cleanup(func() { debugDirs = old })
	for _, b := range seeds(f) {
		f.Add(b, uint64(0x1000))
		f.Add(b, uint64(0x401010))
	}
	f.Fuzz(func(t *testing.T, b []byte, addr uint64) {
		Head(bytes.NewReader(b), int64(len(b)))
		m, err := FromMemory("fuzz", b)
		if err != nil {
			return
		}
		defer m.Close()
		m.Section(".eh_frame")
		m.Tables(io.Discard)
		m.Functions()
		m.Bytes(addr, 100)
		m.AtomicStores()
		m.FoldsAtomics()
		m.Relocates()
		m.NamesAtomics(addr)
		vt := m.Vtables()
		for _, a := range []uint64{addr, m.file.Entry, 0x1005, 0x401005} {
			m.Symbol(a)
			m.ThreadLocal(a)
			m.ThreadLocal(-a)
			m.Variable(a, false)
			m.Variable(a, true)
			vt.Is(Pointer{Addr: a})
			vt.Load(a &^ 7)
			m.Local(a, -32)
			m.Local(a, int64(addr))
			m.Frames(a)
			m.FunctionStart(a)
		}
		if d := m.dwarf(); d != nil {
			for i := range d.units {
				d.parse(i)
				d.atomicsIn(i, map[uint64]bool{}, nil) // whatever names it mentions
			}
		}
	})
}

// Proves: no bytes in the DWARF sections make the reader panic, loop or take memory without end.
func FuzzDWARF(f *testing.F) {
	for _, b := range seeds(f) {
		x, err := elf.NewFile(bytes.NewReader(b))
		if err != nil {
			f.Fatal(err)
		}
		sec := func(name string) []byte {
			if s := x.Section(name); s != nil {
				d, _ := s.Data()
				return d
			}
			return nil
		}
		if sec(".debug_info") == nil {
			continue
		}
		f.Add(sec(".debug_info"), sec(".debug_abbrev"), sec(".debug_line"), sec(".debug_str"), append(sec(".debug_rnglists"), sec(".debug_ranges")...), sec(".debug_aranges"), x.Entry)
	}
	// A table of 2^60 files of no bytes each.
	f.Add([]byte{}, []byte{}, []byte{40, 0, 0, 0, 5, 0, 8, 0, 30, 0, 0, 0, 1, 1, 1, 0xfb, 14, 1, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x0f, 0, 0}, []byte{}, []byte{}, []byte{}, uint64(0))
	f.Fuzz(func(t *testing.T, info, abbrev, line, str, ranges, aranges []byte, addr uint64) {
		d := &dwarfFile{info: info, abbrev: abbrev, line: line, str: str, lineStr: str, strOff: ranges, addr: aranges, ranges: ranges,
			rnglists: ranges, aranges: aranges, abbrevs: map[uint64]*abbrevTable{}}
		d.alt = d
		d.findUnits()
		d.calls(addr)
		for i := range d.units {
			if p := d.parse(i); p != nil {
				for _, fn := range p.funcs {
					d.callsIn(p, fn.lo)
				}
			}
		}
		u := unit{version: 5, addrSize: 8}
		d.lines(&u, 0, "/x").find(addr)
	})
}

// Proves: no bytes make the decompression of mini debug information panic or take memory without end.
func FuzzMiniDebugInfo(f *testing.F) {
	p := write(f, filepath.Join(f.TempDir(), "x"), []byte("some text some text some text"))
	run(f, "xz", "-k", p)
	f.Add(read(f, p+".xz"))
	f.Fuzz(func(t *testing.T, b []byte) { unxz(b) })
}

// Proves: no symbol makes demangling panic, hang or grow without end.
func FuzzDemangle(f *testing.F) {
	for _, s := range []string{"_ZN4bank7Account8transferIiEEvRS0_T_", "_RNvCs1234_7mycrate3foo", "_ZN3foo3bar17h0123456789abcdefE", "_ZZ4mainENKUliE_clEi"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if d := Demangle(s); len(d) > len(s)+1<<14 {
			t.Errorf("%q becomes %d bytes", s, len(d))
		}
	})
}
