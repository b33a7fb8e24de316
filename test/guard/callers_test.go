package guard

import (
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// functions gives those of the stack's frames that are of the source, innermost first.
func functions(stack []frame, source string) (names []string) {
	for _, f := range stack {
		if filepath.Base(f.File) == filepath.Base(source) {
			names = append(names, plain(f.Function))
		}
	}
	return names
}

// After 32 allocations of one call in a wrapper (4 frees) most were given the stack of an earlier one of that depth: a block of one caller was reported as allocated, and freed, by another. All frames are the block's own now, however often the
// wrapper was called.
func TestCallers(t *testing.T) {
	for source, compiler := range map[string]string{"testdata/callers.c": "gcc", "testdata/callers.cc": "g++"} {
		wrapper := func(name string) []string {
			if strings.HasSuffix(source, ".c") {
				return []string{name}
			}
			return nil
		}
		allocated := append(wrapper("xmalloc"), "second_makes", "main")
		freed := append(wrapper("xfree"), "second_drops", "main")
		for _, level := range []string{"-O0", "-O2"} {
			exe := filepath.Join(bin, filepath.Base(source)+level)
			if out, err := exec.Command(compiler, "-g", level, "-w", "-o", exe, source).CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			for _, order := range []string{"apart", "mixed"} {
				for _, c := range []struct{ name, rule string }{{"overflow", "heap-overflow"}, {"freed", "use-after-free-write"}} {
					t.Run(filepath.Base(source)+level+"/"+c.name+"/"+order, func(t *testing.T) {
						t.Parallel()
						k := kinds{source: source, exe: exe}
						list, why := k.guarded(t, "exit 0", c.name, order)
						if why != "" || len(list) != 1 || list[0].Rule != c.rule {
							t.Fatalf("%s: %+v", why, list)
						}
						if got := functions(list[0].Objects[0].Allocated, source); !slices.Equal(got, allocated) {
							t.Errorf("allocated by %v, not %v", got, allocated)
						}
						for _, p := range list[0].Parts {
							if got := functions(p.Stack, source); strings.Contains(p.Text, "freed here") && !slices.Equal(got, freed) {
								t.Errorf("%s: %v, not %v", p.Text, got, freed)
							}
						}
					})
				}
			}
		}
	}
}
