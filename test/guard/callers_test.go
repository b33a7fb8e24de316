package guard

import (
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
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

// Of a remembered stack the words of the innermost frames are looked at first, and those of all others behind them: callers that differ in nothing but a return address eight frames out are told apart.
func TestFarCallers(t *testing.T) {
	const source = "testdata/far.c"
	want := []string{"a", "b", "c", "d", "e", "f", "g", "second", "main"}
	for _, flags := range [][]string{{"-O0"}, {"-O2"}, {"-O2", "-fno-omit-frame-pointer"}} {
		exe := filepath.Join(bin, "far"+strings.Join(flags, ""))
		if out, err := exec.Command("gcc", append(flags, "-g", "-w", "-o", exe, source)...).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		for _, c := range []struct{ name, rule string }{{"overflow", "heap-overflow"}, {"freed", "use-after-free-write"}} {
			t.Run(strings.Join(flags, "")+"/"+c.name, func(t *testing.T) {
				t.Parallel()
				k := kinds{source: source, exe: exe}
				list, why := k.guarded(t, "exit 0", c.name)
				if why != "" || len(list) != 1 || list[0].Rule != c.rule {
					t.Fatalf("%s: %+v", why, list)
				}
				if got := functions(list[0].Objects[0].Allocated, source); !slices.Equal(got, want) {
					t.Errorf("allocated by %v, not %v", got, want)
				}
				for _, p := range list[0].Parts {
					if got := functions(p.Stack, source); strings.Contains(p.Text, "freed here") && !slices.Equal(got, want) {
						t.Errorf("%s: %v, not %v", p.Text, got, want)
					}
				}
			})
		}
	}
}

// A recursion that allocated (262,144 nodes of a tree, in as many ways) filled the tables of stacks: those of all later blocks were missing, and it took 57 times its native time, most of it walks of frames that said nothing
// new. Such a place's stacks lose their outer frames now, which is said; those of the blocks before, and of other places, do not.
func TestManyWays(t *testing.T) {
	const source = "testdata/ways.c"
	for _, level := range []string{"-O0", "-O2"} {
		exe := filepath.Join(bin, "ways"+level)
		if out, err := exec.Command("gcc", "-g", level, "-w", "-o", exe, source).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		for _, c := range []struct {
			name        string
			least, most int // frames of the program
			inner       string
		}{{"first", 7, 9, "leaf"}, {"last", 2, 6, "leaf"}, {"another", 1, 2, "other"}} {
			t.Run(level+"/"+c.name, func(t *testing.T) {
				t.Parallel()
				report := filepath.Join(t.TempDir(), "report")
				ran := run(t, exec.Command(ripstop, "guard", "--format", "text,json="+report, "--", exe, c.name))
				list := findings(t, report)
				if ran.how != "exit 66" || string(ran.out) != "ok\n" || len(list) != 1 || list[0].Rule != "heap-overflow" || len(list[0].Objects) == 0 {
					t.Fatalf("%s, findings %+v\n%s", ran.how, list, ran.errs)
				}
				names := functions(list[0].Objects[0].Allocated, source)
				if len(names) < c.least || len(names) > c.most || names[0] != c.inner {
					t.Errorf("allocated by %v: not %d to %d frames from %s on", names, c.least, c.most, c.inner)
				}
				whole := names[len(names)-1] == "main"
				if whole != (c.name != "last") {
					t.Errorf("allocated by %v", names)
				}
				if !strings.Contains(string(ran.errs), "have fewer frames from then on") || strings.Contains(string(ran.errs), "more different stacks than the agent keeps") {
					t.Errorf("not said, or too many:\n%s", ran.errs)
				}
			})
		}
	}
}

// Of 131,000 stacks one was lost once in a hundred runs, with seven eighths of the table free: eight places in a row were taken. With 524,000, of locks here, it is a thousand.
func TestManyStacks(t *testing.T) {
	exe := filepath.Join(bin, "ways-locks")
	if out, err := exec.Command("gcc", "-g", "-O1", "-w", "-o", exe, "testdata/ways.c").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	ran := run(t, exec.Command(ripstop, "run", "--stats", "--", exe, "locks"))
	kept, dropped := -1, -1
	for _, line := range strings.Split(string(ran.errs), "\n") {
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		n, _ := strconv.Atoi(f[len(f)-1])
		switch {
		case strings.Contains(line, "stacks kept"):
			kept = n
		case strings.Contains(line, "stacks dropped"):
			dropped = n
		}
	}
	if ran.how != "exit 0" || kept < 1<<19 || dropped != 0 {
		t.Errorf("%s, %d stacks kept and %d dropped\n%s", ran.how, kept, dropped, ran.errs)
	}
}
