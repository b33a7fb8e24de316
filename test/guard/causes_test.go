package guard

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// cause is what testdata/causes.c and causes.cc say of one case.
type cause struct {
	statement
	alloc, free string // functions of the program at the top of these stacks
	alone       bool   // in a process of its own
	maybe       bool   // the writer may not be known
	line        int    // that writes; 0: there is none
}

// causes reads the statements of a source, and where the lines are that end in `// wrong`: of the case above, or of the one that the line names.
func causes(t *testing.T, source string) (list []*cause) {
	t.Helper()
	text, err := os.ReadFile(source)
	if err != nil {
		t.Fatal(err)
	}
	named := map[string]int{}
	var now *cause
	for i, line := range strings.Split(string(text), "\n") {
		if code, name, ok := strings.Cut(line, "// wrong"); ok && strings.TrimSpace(code) != "" && !strings.HasPrefix(line, "//") {
			if name = strings.TrimSpace(name); name != "" {
				named[name] = i + 1
			} else if now.line == 0 {
				now.line = i + 1
			}
		}
		m := stated.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		now = &cause{statement: statement{name: m[1], rule: m[2], size: -1, first: -1, ends: "exit 0"}, alloc: m[1], free: m[1]}
		list = append(list, now)
		if now.rule == "missed" {
			now.alone = strings.Contains(m[3], "alone=")
			continue
		}
		for _, word := range strings.Fields(m[3]) {
			key, value, _ := strings.Cut(word, "=")
			var err error
			switch key {
			case "size":
				now.size, err = strconv.Atoi(value)
			case "first":
				now.first, err = strconv.Atoi(value)
			case "alloc":
				now.alloc = value
			case "free":
				now.free = value
			case "writer":
				now.maybe = value == "maybe"
			case "alone":
				now.alone = true
			case "and":
				now.and = value
			case "ends":
				now.ends = value
			default:
				err = fmt.Errorf("no such word: %s", word)
			}
			if err != nil {
				t.Fatalf("%s: %v", line, err)
			}
		}
	}
	for _, c := range list {
		if n := named[c.name]; n != 0 {
			c.line = n
		}
	}
	return list
}

// plain is a function's name without scopes and parameters.
func plain(function string) string {
	name, _, _ := strings.Cut(function, "(")
	return name[strings.LastIndex(name, ":")+1:]
}

// own is the first frame that is of the source; library functions and templates stand above it.
func own(stack []frame, source string) (function string, line int) {
	for _, f := range stack {
		if filepath.Base(f.File) == filepath.Base(source) && !strings.HasPrefix(f.Function, "hide") {
			return plain(f.Function), f.Line
		}
	}
	return "", 0
}

// wrongly says in what a finding differs from what is stated of the case; by: its writer is to be known.
func (c *cause) wrongly(f *found, source string, by bool) string {
	if why := c.wrong(f); why != "" {
		return why
	}
	if c.ends != "exit 0" {
		return ""
	}
	if name, _ := own(f.Objects[0].Allocated, source); name != c.alloc && c.alloc != "deep" {
		return "allocated by " + name
	}
	freed, written := "", 0
	for _, p := range f.Parts {
		name, line := own(p.Stack, source)
		if strings.Contains(p.Text, "was freed here") && freed == "" {
			if freed = name; len(p.Stack) > 0 && strings.HasPrefix(p.Stack[0].Function, "operator delete") {
				return "freed by our own function"
			}
		}
		if strings.HasPrefix(p.Text, "Written") && written == 0 {
			written = max(line, 1)
		}
	}
	if c.rule == "use-after-free-write" && freed != c.free && c.free != "deep" {
		return "freed by " + freed
	}
	want := 0
	if by {
		want = c.line
	}
	if written != want && (written != 0 || !c.maybe) {
		return fmt.Sprintf("written by line %d, not %d", written, want)
	}
	return ""
}

// of gives the finding's case: the function that stands in one of its stacks.
func of(list []*cause, f *found) *cause {
	stacks := [][]frame{}
	for _, o := range f.Objects {
		stacks = append(stacks, o.Allocated)
	}
	for _, p := range f.Parts {
		stacks = append(stacks, p.Stack)
	}
	for _, f := range slices.Concat(stacks...) {
		if i := slices.IndexFunc(list, func(c *cause) bool { return c.name == plain(f.Function) }); i >= 0 {
			return list[i]
		}
	}
	return nil
}

// kinds is one source, compiled, under guard in one way.
type kinds struct {
	source, exe string
	flags       []string
	under       []string // what starts ripstop
}

// guarded runs the program with these arguments and gives what was found, and why it was not as natively, if so.
func (k *kinds) guarded(t *testing.T, ends string, args ...string) ([]found, string) {
	t.Helper()
	report := filepath.Join(t.TempDir(), "report")
	argv := slices.Concat(k.under, []string{ripstop, "guard", "--exit-code", "0", "--format", "json=" + report}, k.flags, []string{"--", k.exe}, args)
	got := run(t, exec.Command(argv[0], argv[1:]...))
	out := "ok\n"
	if ends != "exit 0" {
		out = ""
	}
	if got.how != ends || string(got.out) != out {
		return nil, fmt.Sprintf("it ended with %s, %q, %s", got.how, got.out, got.errs)
	}
	return findings(t, report), ""
}

// recorded: its last epoch can be executed again.
func (k *kinds) recorded() bool { return !slices.Equal(k.flags, []string{"--epochs", "0"}) }

// clean runs twins; no names: all.
func (k *kinds) clean(t *testing.T, names ...string) {
	t.Helper()
	if list, why := k.guarded(t, "exit 0", append(names, "clean")...); why != "" || len(list) > 0 {
		t.Errorf("%s clean: %s %+v", strings.Join(names, " "), why, list)
	}
}

// one runs a case in a process of its own.
func (k *kinds) one(t *testing.T, c *cause) {
	t.Helper()
	list, why := k.guarded(t, c.ends, c.name)
	if c.and != "" && len(list) == 2 && list[1].Rule == c.and {
		list = list[:1]
	}
	switch {
	case why != "":
	case c.rule == "missed" && len(list) == 0:
	case c.rule == "missed" || len(list) != 1:
		why = fmt.Sprintf("%d findings: %+v", len(list), list)
	default:
		if why = c.wrongly(&list[0], k.source, k.recorded()); why != "" {
			why += fmt.Sprintf(": %+v", list[0])
		}
	}
	if why != "" {
		t.Errorf("%s: %s", c.name, why)
	}
}

// together runs cases one after the other in one process.
func (k *kinds) together(t *testing.T, list []*cause) {
	t.Helper()
	var names []string
	left := map[*cause]bool{}
	for _, c := range list {
		names = append(names, c.name)
		left[c] = c.rule != "missed"
	}
	fs, why := k.guarded(t, "exit 0", names...)
	if why != "" {
		t.Fatal(why)
	}
	for i := range fs {
		c := of(list, &fs[i])
		if c == nil || !left[c] {
			t.Errorf("found besides: %+v", fs[i])
			continue
		}
		left[c] = false
		if why := c.wrongly(&fs[i], k.source, k.recorded()); why != "" {
			t.Errorf("%s: %s: %+v", c.name, why, fs[i])
		}
	}
	for c, missing := range left {
		if missing {
			t.Errorf("%s: not found", c.name)
		}
	}
}

// Each kind of error is found with its block and stacks, and with --epochs with the line that wrote; its clean twin is as natively and nothing is said of it.
func TestCauses(t *testing.T) {
	for source, compiler := range map[string]string{"testdata/causes.c": "gcc", "testdata/causes.cc": "g++"} {
		var list, alone []*cause
		for _, c := range causes(t, source) {
			if c.alone || c.ends != "exit 0" {
				alone = append(alone, c)
			} else {
				list = append(list, c)
			}
		}
		for _, level := range []string{"-O0", "-O2"} {
			exe := filepath.Join(bin, filepath.Base(source)+level)
			if out, err := exec.Command(compiler, "-g", level, "-w", "-pthread", "-U_FORTIFY_SOURCE", "-o", exe, source).CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			for mode, flags := range map[string][]string{"guard": {"--epochs", "0"}, "epochs": {"--epochs", "1h"}} {
				k := kinds{source, exe, flags, nil}
				t.Run(filepath.Base(source)+level+"/"+mode, func(t *testing.T) {
					t.Parallel()
					k.clean(t)
					k.together(t, list)
					if !soak() {
						if level == "-O2" {
							for _, c := range alone {
								k.one(t, c)
							}
						}
						return
					}
					for range 20 {
						for _, c := range slices.Concat(list, alone) {
							k.one(t, c)
							k.clean(t, c.name)
						}
					}
				})
			}
		}
	}
}

// As perf_event_paranoid 3 or a container's filter does, the kernel refuses breakpoints, by any of these errors: nobody was named who wrote. ripstop sets the threads' debug registers: all is found as with breakpoints, and the clean twins are as natively. A kernel that has no breakpoints (ENOENT) has no debug registers either, and some virtual machines have some that are never hit: there the
// pages are watched.
func TestCausesWithoutPerf(t *testing.T) {
	refusing := filepath.Join(bin, "refusing")
	if out, err := exec.Command("gcc", "-Wall", "-Wextra", "-Werror", "-o", refusing, "../../internal/run/testdata/refusing.c").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	const source = "testdata/causes.c"
	list := slices.DeleteFunc(causes(t, source), func(c *cause) bool { return c.alone || c.ends != "exit 0" })
	exe := filepath.Join(bin, "causes-without-perf")
	if out, err := exec.Command("gcc", "-g", "-O2", "-w", "-pthread", "-U_FORTIFY_SOURCE", "-o", exe, source).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, e := range []syscall.Errno{syscall.EACCES, syscall.EPERM, syscall.ENOSYS, syscall.EMFILE, syscall.ENOENT} {
		t.Run(unix.ErrnoName(e), func(t *testing.T) {
			k := kinds{source, exe, []string{"--epochs", "1h"}, []string{refusing, fmt.Sprintf("%d=%d", unix.SYS_PERF_EVENT_OPEN, int(e))}}
			k.clean(t)
			k.together(t, list)
		})
	}
}
