package image

import (
	"debug/elf"
	"strings"
	"testing"
)

// What a vptr may be is known of every kind of file by form, and nothing else is taken for it.
func TestVtables(t *testing.T) {
	for _, cmd := range [][]string{
		{"g++", "-O0"}, {"g++", "-O2", "-no-pie", "-fno-pie"}, {"g++", "-O2", "-no-pie", "-fno-pie", "-static"}, {"g++", "-O2", "-static-pie"}, {"g++", "-O2", "-static-libstdc++"}, {"g++", "-O2", "-shared", "-fPIC"},
		{"g++", "-O2", "-Wl,-z,pack-relative-relocs"}, {"g++", "-O2", "-Wl,-z,norelro"}, {"clang++", "-O2"}, {"g++", "-O2", "-fno-rtti"},
	} {
		path := build(t, "tables", append(cmd, "testdata/tables.cc")...)
		f, err := elf.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		syms, err := f.Symbols()
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
		tables, first := mustOpen(t, path).Vtables(), 0
		for _, s := range syms {
			if s.Section == elf.SHN_UNDEF || s.Value == 0 {
				continue
			}
			switch {
			case strings.HasPrefix(s.Name, "_ZTV") && elf.ST_TYPE(s.Info) == elf.STT_OBJECT:
				at := s.Value + 16
				if strings.HasPrefix(s.Name, "_ZTV5below") { // the distance to a virtual base comes first
					at += 8
				}
				own := s.Name == "_ZTV5first" || s.Name == "_ZTV6second" || s.Name == "_ZTV4both" || s.Name == "_ZTV5below"
				if own {
					first++
				}
				if is := tables.Is(Pointer{Addr: at}); own && !is || tables.Is(Pointer{Addr: s.Value}) {
					t.Errorf("%v: %s: %v", cmd, s.Name, is)
				}
				if s.Name == "_ZTV4both" && !tables.Is(Pointer{Addr: s.Value + s.Size - 3*8}) { // of its second base: two, and two destructors
					t.Errorf("%v: the second table of %s is not known", cmd, s.Name)
				}
			case strings.HasPrefix(s.Name, "_ZTI"), strings.HasPrefix(s.Name, "_ZTS"), s.Name == "no_table", s.Name == "text", s.Name == "main":
				for at := s.Value &^ 7; at < s.Value+s.Size; at += 8 {
					if tables.Is(Pointer{Addr: at}) {
						t.Errorf("%v: %s+%#x is taken for a table", cmd, s.Name, at-s.Value)
					}
				}
			}
		}
		if first < 2 { // both's and below's: the others may be left out
			t.Errorf("%v: %d tables", cmd, first)
		}
	}
}
