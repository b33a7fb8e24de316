// Package internal holds the packages of ripstop and, here, the policy on what they may import.
package internal

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/ripstop/ripstop/"

// policy is the table of docs/architecture.md: what each package may import, of ours (without the module's path) and of other modules.
// Imports point downward only. A new package, or a new arrow, is a decision: it is made here and there.
var policy = map[string]string{
	"internal/wire":         "",
	"internal/wire/gen":     "internal/wire",
	"internal/tsc":          "",
	"internal/present":      "golang.org/x/sys/unix",
	"internal/block":        "golang.org/x/sys/unix",
	"internal/finding":      "",
	"internal/image":        "internal/finding github.com/ianlancetaylor/demangle github.com/ulikunitz/xz golang.org/x/sys/unix",
	"internal/unwind":       "internal/wire internal/image",
	"internal/tracee":       "golang.org/x/sys/unix",
	"internal/x86":          "golang.org/x/arch/x86/x86asm",
	"internal/pt":           "internal/x86",
	"internal/patch":        "internal/present internal/x86",
	"internal/cache":        "internal/present golang.org/x/sys/unix",
	"internal/recipe":       "internal/patch internal/x86",
	"internal/perf":         "github.com/klauspost/compress/zstd",
	"internal/engine":       "internal/present internal/cache internal/wire internal/image internal/unwind internal/tracee internal/x86 internal/patch internal/recipe internal/syscalls golang.org/x/sys/unix",
	"internal/access":       "internal/wire internal/image internal/x86 internal/patch internal/recipe internal/syscalls internal/engine",
	"internal/truth":        "",
	"internal/sample":       "internal/image internal/pt internal/perf",
	"internal/step":         "internal/tsc internal/image internal/tracee internal/x86 internal/pt internal/perf internal/truth internal/sample golang.org/x/sys/unix",
	"internal/recover":      "internal/x86 internal/pt internal/sample",
	"internal/syscalls":     "internal/wire internal/x86 internal/patch",
	"internal/guard":        "internal/syscalls golang.org/x/sys/unix",
	"internal/guard/gen":    "internal/guard",
	"internal/pmu":          "internal/tsc internal/block internal/tracee internal/x86 internal/pt internal/perf internal/sample golang.org/x/sys/unix",
	"internal/trace":        "internal/wire",
	"internal/target":       "internal/wire internal/finding internal/image internal/trace",
	"internal/detect":       "internal/wire internal/finding",
	"internal/race":         "internal/wire internal/finding",
	"internal/report":       "internal/finding golang.org/x/term",
	"internal/agent":        "internal/agent/origin internal/block internal/wire internal/tsc internal/image internal/unwind internal/tracee internal/trace golang.org/x/sys/unix",
	"internal/agent/origin": "",
	"internal/doctor":       "golang.org/x/sys/unix",
	"internal/ctl":          "golang.org/x/sys/unix",
	"internal/run": "internal/wire internal/tsc internal/finding internal/image internal/unwind internal/tracee internal/trace internal/target " +
		"internal/detect internal/race internal/report internal/agent internal/agent/origin internal/doctor internal/x86 internal/engine internal/hook internal/access internal/ctl golang.org/x/sys/unix golang.org/x/term",
	"internal/record": "internal/wire internal/tsc internal/finding internal/image internal/unwind internal/tracee internal/trace internal/target " +
		"internal/detect internal/report internal/agent internal/agent/origin internal/doctor internal/run internal/sample internal/step internal/pmu internal/x86 internal/engine internal/access golang.org/x/sys/unix golang.org/x/term",
	"internal/count": "internal/wire internal/finding internal/image internal/unwind internal/x86 internal/patch internal/recipe internal/engine internal/agent internal/run " +
		"github.com/google/pprof/profile",
	"internal/tool":    "internal/wire internal/finding internal/image internal/x86 internal/target internal/engine internal/access internal/agent internal/run",
	"internal/sharing": "internal/finding internal/tool",
	"internal/hook":    "internal/wire internal/x86 internal/patch internal/syscalls internal/engine",
	"internal/calls":   "internal/wire internal/tsc internal/x86 internal/patch internal/syscalls internal/engine internal/hook internal/agent internal/run",
	"internal/analyze": "internal/wire internal/finding internal/image internal/unwind internal/x86 internal/sample internal/recover internal/trace internal/target internal/race " +
		"internal/report internal/agent",
	"cmd/ripstop": "internal/run internal/ctl internal/record internal/analyze internal/race internal/recover internal/count internal/tool internal/sharing internal/calls internal/syscalls internal/report internal/doctor " +
		"github.com/spf13/cobra github.com/spf13/cobra/doc github.com/spf13/pflag golang.org/x/term",
}

// pure packages know nothing of the machine: the same events give the same answers everywhere, and tests need nothing but events.
var pure = []string{"internal/wire", "internal/finding", "internal/detect", "internal/race", "internal/target", "internal/x86", "internal/pt", "internal/perf", "internal/syscalls", "internal/truth"}

var machine = []string{"os", "os/exec", "os/signal", "net", "syscall", "golang.org/x/sys/unix"}

// imports gives the imports of every package below root, by its directory, those of test files apart.
func imports(t *testing.T, root string) (code, tests map[string][]string) {
	t.Helper()
	code, tests = map[string][]string{}, map[string][]string{}
	for _, top := range []string{"internal", "cmd"} {
		err := filepath.WalkDir(filepath.Join(root, top), func(file string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if d.IsDir() && d.Name() == "testdata" {
				return filepath.SkipDir
			}
			if d.IsDir() || path.Ext(file) != ".go" {
				return nil
			}
			f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
			if err != nil {
				return err
			}
			rel, err := filepath.Rel(root, filepath.Dir(file))
			if err != nil {
				return err
			}
			into := code
			if strings.HasSuffix(file, "_test.go") {
				into = tests
			}
			into[rel] = append(into[rel], "")
			for _, spec := range f.Imports {
				name, err := strconv.Unquote(spec.Path.Value)
				if err != nil {
					return err
				}
				into[rel] = append(into[rel], strings.TrimPrefix(name, module))
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return code, tests
}

// check compares the imports of a package with the policy and returns what is wrong.
func check(pkg string, imported []string) (wrong []string) {
	allowed, known := policy[pkg]
	if !known {
		return []string{"package " + pkg + " is not in the policy: say in docs/architecture.md and here what it is for and may import"}
	}
	list := strings.Fields(allowed)
	imported = slices.Compact(slices.Sorted(slices.Values(imported)))
	for _, name := range imported {
		first, _, _ := strings.Cut(name, "/")
		ours := first == "internal" || first == "cmd"
		switch {
		case name == "C":
			wrong = append(wrong, pkg+" uses cgo: ripstop is built without")
		case name == "testing" || strings.HasPrefix(name, "testing/"):
			wrong = append(wrong, pkg+" imports "+name+" outside tests")
		case slices.Contains(pure, pkg) && slices.Contains(machine, name):
			wrong = append(wrong, pkg+" is pure and imports "+name)
		case (ours || strings.Contains(first, ".")) && !slices.Contains(list, name):
			wrong = append(wrong, pkg+" may not import "+name)
		}
	}
	return wrong
}

// Every package under internal and cmd is in the policy and imports only what that allows; nothing uses cgo, tests included.
func TestImports(t *testing.T) {
	code, tests := imports(t, "..")
	if len(code) < 10 {
		t.Fatalf("only %d packages found", len(code))
	}
	for pkg, imported := range code {
		for _, w := range check(pkg, imported) {
			t.Error(w)
		}
	}
	for pkg, imported := range tests {
		if slices.Contains(imported, "C") {
			t.Errorf("tests of %s use cgo", pkg)
		}
	}
}

// The check finds each kind of breach, and no breach where there is none.
func TestImportsCheck(t *testing.T) {
	for _, c := range []struct {
		pkg, imports, want string
	}{
		{"internal/trace", "os internal/wire", ""},
		{"internal/trace", "internal/target", "may not import internal/target"},
		{"internal/wire", "golang.org/x/sys/unix", "is pure"},
		{"internal/trace", "golang.org/x/sys/unix", "may not import golang.org"},
		{"internal/detect", "os", "is pure"},
		{"internal/agent", "C", "cgo"},
		{"internal/agent", "testing", "outside tests"},
		{"internal/agent", "testing/iotest", "outside tests"},
		{"internal/common", "fmt", "not in the policy"},
		{"internal/run", "cmd/ripstop", "may not import cmd/ripstop"},
	} {
		got := strings.Join(check(c.pkg, strings.Fields(c.imports)), "\n")
		if (c.want == "") != (got == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s importing %s: %q, want %q", c.pkg, c.imports, got, c.want)
		}
	}
}

// The policy itself points downward: no package can come back to itself.
func TestPolicyHasNoCycle(t *testing.T) {
	var visit func(pkg string, above []string)
	visit = func(pkg string, above []string) {
		if slices.Contains(above, pkg) {
			t.Fatalf("cycle: %v", append(above, pkg))
		}
		for _, next := range strings.Fields(policy[pkg]) {
			if _, ours := policy[next]; ours {
				visit(next, append(slices.Clone(above), pkg))
			}
		}
	}
	for pkg := range policy {
		visit(pkg, nil)
	}
}

// The table in docs/architecture.md names every package of the policy.
func TestPolicyIsDocumented(t *testing.T) {
	page, err := os.ReadFile("../docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	for pkg := range policy {
		name := strings.TrimPrefix(pkg, "internal/")
		if !strings.Contains(name, "/") && !strings.Contains(string(page), "`"+name+"`") {
			t.Errorf("docs/architecture.md does not name %s", name)
		}
	}
}
