package hook

import (
	"debug/elf"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ripstop/ripstop/internal/image"
)

// Words for which threads wait by futexes were changed in no order, as nothing but the program's own instructions says that they are any. Where they are changed is found; what only counts, or is shared, is left alone, since to order it would cost and say nothing.
func TestWords(t *testing.T) {
	for _, cc := range []string{"g++ -O2", "g++ -O1", "g++ -O3 -fPIE -pie"} {
		exe := filepath.Join(t.TempDir(), "words")
		flags := strings.Fields(cc)
		if out, err := exec.Command(flags[0], append(flags[1:], "-std=c++20", "-pthread", "-o", exe, "testdata/words.cc")...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %s", cc, out)
		}
		img, err := image.Open(exe)
		if err != nil {
			t.Fatal(err)
		}
		found := map[string]int{}
		for _, at := range finderOf(img).find() {
			s, _ := img.Symbol(at)
			found[s.Name]++
		}
		for _, f := range img.Functions() {
			s, _ := img.Symbol(f[0])
			if kind, _, _ := strings.Cut(s.Name, "_"); kind == "words" && found[s.Name] == 0 || kind == "none" && found[s.Name] > 0 {
				t.Errorf("%s: %s: %d", cc, s.Name, found[s.Name])
			}
		}
		if len(found) < 3 {
			t.Errorf("%s: %v", cc, found)
		}
		img.Close()
	}
}

// finderOf looks at code as it lies in a file.
func finderOf(img *image.Image) *wordFinder {
	f := &wordFinder{reader: fileReader(img)}
	for _, g := range img.Segments() {
		if g.Flags&elf.PF_X != 0 {
			f.segments = append(f.segments, segment{g.Addr, img.Bytes(g.Addr, g.FileSize)})
		}
	}
	addr, size, _ := img.Program(elf.PT_GNU_EH_FRAME)
	s := parseStarts(addr, img.Bytes(addr, size))
	f.function = func(at uint64) (lo, hi uint64, ok bool) {
		lo, ok = s.function(at)
		return lo, s.end(lo), ok
	}
	return f
}
