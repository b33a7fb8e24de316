package ctest

import (
	"debug/elf"
	"path/filepath"
	"slices"
	"testing"

	"github.com/ripstop/ripstop/internal/x86"
)

// What recipes call runs with the program's vector registers. Its files are compiled without such registers; what they call in other files must not use them either, but by way of
// rs_vectors_kept, which saves them.
func TestGeneralRegisters(t *testing.T) {
	f, err := elf.Open(filepath.Join("..", "..", "lib", "libripstop.so"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	text := f.Section(".text")
	code, err := text.Data()
	if err != nil {
		t.Fatal(err)
	}
	list, err := f.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	list = slices.DeleteFunc(list, func(s elf.Symbol) bool { return elf.ST_TYPE(s.Info) != elf.STT_FUNC || s.Size == 0 })
	of := func(addr uint64) *elf.Symbol {
		for i := range list {
			if s := &list[i]; addr >= s.Value && addr < s.Value+s.Size {
				return s
			}
		}
		return nil
	}
	seen := map[string]bool{"rs_vectors_kept": true}
	var visit func(s *elf.Symbol, from string)
	visit = func(s *elf.Symbol, from string) {
		if seen[s.Name] {
			return
		}
		seen[s.Name] = true
		for at := s.Value; at < s.Value+s.Size; {
			in, err := x86.Decode(code[at-text.Addr:])
			if err != nil {
				t.Fatalf("%s+%#x: %v", s.Name, at-s.Value, err)
			}
			if (in.Reads|in.Writes)&(x86.SetVec|x86.SetMask|x86.SetX87) != 0 {
				t.Errorf("%s, called by %s: %v", s.Name, from, in)
				break
			}
			if to, ok := in.Target(at); ok && (to < s.Value || to >= s.Value+s.Size) {
				if next := of(to); next != nil {
					visit(next, s.Name)
				} else {
					t.Errorf("%s, called by %s, leaves for %#x", s.Name, from, to)
				}
			}
			at += uint64(in.Len)
		}
	}
	roots := 0
	for i := range list {
		if slices.Contains([]string{"rs_access", "rs_tell_code"}, list[i].Name) {
			visit(&list[i], "recipes")
			roots++
		}
	}
	if roots != 2 || !seen["rs_reserve"] || !seen["rs_walk"] || !seen["rs_access_told"] {
		t.Errorf("seen: %v", seen)
	}
}
