package guard

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var stateOfHandled = regexp.MustCompile(`(?m)^// case (\w+):(?: (\w+))?( by epochs| epochs alone)?( perhaps)?$`)

// A program's own handler for a crash, which says something and then has the process die of the signal, hid the crash: what a program sets takes the agent's handler away, and SIG_DFL did, too. So nothing was told of most servers, nor
// of any program of Rust's, whose library has such a handler. Told, their epoch was lost, so who wrote the pointer was not named: now it is executed again up to the fault, and nothing of what the handler does.
func TestHandled(t *testing.T) {
	const source = "testdata/handled.c"
	text, err := os.ReadFile(source)
	if err != nil {
		t.Fatal(err)
	}
	list := stateOfHandled.FindAllStringSubmatch(string(text), -1)
	if len(list) != strings.Count(string(text), "\n// case ") || len(list) == 0 {
		t.Fatalf("%d of its cases can be read", len(list))
	}
	for _, level := range []string{"-O0", "-O2"} {
		exe := filepath.Join(bin, "handled"+level)
		if out, err := exec.Command("gcc", "-g", level, "-Wall", "-pthread", "-o", exe, source).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		for _, c := range list {
			for _, epochs := range []string{"0", "1s"} {
				flags := []string{"--epochs", epochs}
				if c[3] == " epochs alone" && epochs == "0" {
					continue
				}
				t.Run(c[1]+level+strings.Join(flags, ""), func(t *testing.T) {
					t.Parallel()
					report := filepath.Join(t.TempDir(), "report")
					native := run(t, exec.Command(exe, c[1]))
					got := run(t, exec.Command(ripstop, slices.Concat([]string{"guard", "--exit-code", "0", "--format", "json=" + report}, flags, []string{"--", exe, c[1]})...))
					if got.how != native.how || string(got.out) != string(native.out) || !strings.HasPrefix(string(got.errs), string(native.errs)) {
						t.Errorf("it ended with %s, %q, %q, natively with %s, %q, %q", got.how, got.out, got.errs, native.how, native.out, native.errs)
					}
					found := findings(t, report)
					if c[2] == "" || c[3] != "" && epochs == "0" {
						if len(found) > 0 {
							t.Fatalf("%+v", found)
						}
						return
					}
					if len(found) != 1 || found[0].Rule != "crash" {
						t.Fatalf("%+v\n%s", found, got.errs)
					}
					if names := functions(found[0].Parts[0].Stack, source); len(names) == 0 || names[0] != c[2] {
						t.Errorf("in %v", names)
					}
					if epochs != "0" {
						checkWriter(t, &found[0], source, "spoil", c[4] != "", string(got.errs))
					}
				})
			}
		}
	}
}

// checkWriter: the function wrote the pointer, and nobody else is said to have; perhaps: that need not be known.
func checkWriter(t *testing.T, f *found, source, writer string, perhaps bool, errs string) {
	t.Helper()
	writers := 0
	for _, p := range f.Parts {
		if !strings.Contains(p.Text, "was written here") {
			continue
		}
		writers++
		if names := functions(p.Stack, source); len(names) == 0 || names[0] != writer {
			t.Errorf("%s: in %v", p.Text, names)
		}
	}
	if writers != 1 && !(perhaps && writers == 0) {
		t.Errorf("%d writers\n%s", writers, errs)
	}
}

// The handler of Rust's library sets SIG_DFL and returns. Threads of Rust's ask for their alternate stack when they begin; one that was made in the epoch was told of another thread's, or ours, when it was executed again, which went another way then.
func TestHandledRust(t *testing.T) {
	rustc, err := exec.LookPath("rustc")
	if err != nil {
		t.Skip("rustc is not installed")
	}
	const source = "testdata/handled.rs"
	exe := filepath.Join(bin, "handled.rs.out")
	if out, err := exec.Command(rustc, "--edition=2021", "-g", "-O", "--crate-name", "handled", "-o", exe, source).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, threads := range []string{"0", "3"} {
		t.Run(threads, func(t *testing.T) {
			report := filepath.Join(t.TempDir(), "report")
			native := run(t, exec.Command(exe, threads))
			got := run(t, exec.Command(ripstop, "guard", "--exit-code", "0", "--epochs", "10s", "--format", "json="+report, "--", exe, threads))
			if got.how != native.how || string(got.out) != string(native.out) || !strings.HasPrefix(string(got.errs), string(native.errs)) {
				t.Errorf("it ended with %s, %q, %q, natively with %s, %q, %q", got.how, got.out, got.errs, native.how, native.out, native.errs)
			}
			found := findings(t, report)
			if len(found) != 1 || found[0].Rule != "crash" {
				t.Fatalf("%+v\n%s", found, got.errs)
			}
			if names := functions(found[0].Parts[0].Stack, source); len(names) == 0 || names[0] != "fault" {
				t.Errorf("in %v", names)
			}
			checkWriter(t, &found[0], source, "spoil", false, string(got.errs))
		})
	}
}
