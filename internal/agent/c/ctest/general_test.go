package ctest

import (
	"debug/elf"
	"path/filepath"
	"slices"
	"strings"
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
	sections := map[elf.SectionIndex][]byte{} // functions that no checkpoint is to find have one of their own
	code := func(s *elf.Symbol) []byte {
		of := f.Sections[s.Section]
		if sections[s.Section] == nil {
			if sections[s.Section], err = of.Data(); err != nil {
				t.Fatal(err)
			}
		}
		return sections[s.Section][s.Value-of.Addr:][:s.Size]
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
			in, err := x86.Decode(code(s)[at-s.Value:])
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

// A checkpoint that found a thread between rs_reserve's look at the mode and its note that it writes let the re-execution write the event once more ("thread-exit … is older than the event before it", and the process was no longer watched): with a pause of some 50 µs there in 4 of 12 runs of
// testdata/rolls.c, and without in one of a hundred. Now that is in the section of what no checkpoint is to find (guardsignal.h), as long as it is one function.
func TestReserveInSection(t *testing.T) {
	f, err := elf.Open(filepath.Join("..", "..", "lib", "libripstop.so"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	list, err := f.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for _, s := range list {
		if elf.ST_TYPE(s.Info) != elf.STT_FUNC {
			continue
		}
		name, _, part := strings.Cut(s.Name, ".")
		switch {
		case name == "rs_reserve" && part:
			t.Errorf("%s is a function of its own", s.Name)
		case name == "rs_reserve":
			found = f.Sections[s.Section].Name == "rs_arrives"
		}
	}
	if !found {
		t.Error("rs_reserve is not in rs_arrives")
	}
}
