package hook

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ripstop/ripstop/internal/image"
)

// Who got which part of the work was in no order where threads take it by a count, so their re-executions ended with other memory. Such counts are found, and what else a function does to them; counts of references, and of what nothing is used, are left alone.
func TestShares(t *testing.T) {
	for _, cc := range []string{"g++ -O1", "g++ -O2", "g++ -O3", "clang++ -O2"} {
		exe := filepath.Join(t.TempDir(), "shares")
		flags := strings.Fields(cc)
		if out, err := exec.Command(flags[0], append(flags[1:], "-std=c++20", "-no-pie", "-pthread", "-o", exe, "testdata/shares.cc")...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %s", cc, out)
		}
		img, err := image.Open(exe)
		if err != nil {
			t.Fatal(err)
		}
		defer img.Close()
		f := newShareFinder(finderOf(img))
		found := map[string][]string{}
		for _, at := range f.find() {
			s, _ := img.Symbol(at)
			in, _ := f.insn(at)
			found[s.Name] = append(found[s.Name], in.Op)
		}
		seen := 0
		for _, fn := range img.Functions() {
			s, _ := img.Symbol(fn[0])
			ops, share := strings.Join(found[s.Name], " "), strings.HasPrefix(s.Name, "share_")
			if !share && !strings.HasPrefix(s.Name, "none_") {
				continue
			}
			seen++
			if strings.Contains(ops, "xadd") != share || (s.Name == "share_looks" || s.Name == "share_steal" && flags[1] != "-O1") && !strings.Contains(ops, "mov") && !strings.Contains(ops, "cmp") {
				t.Errorf("%s: %s: %q", cc, s.Name, ops)
			}
		}
		if seen != 12 {
			t.Errorf("%s: %d functions", cc, seen)
		}
	}
}
