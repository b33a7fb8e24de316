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

var stateOfAbort = regexp.MustCompile(`(?m)^// case (\w+):(?: (untold)| said=(.*)| exception=(\S+)(?: what=(.*))?)?$`)

// A report of an abort says what libraries know of it, and no more: glibc's message, the exception and its what(), of which nothing is called. What the program writes is as natively.
// With --epochs an abort is a call that the hook has taken over: its stack was the hook alone, and of an exception nothing was said.
func TestAborts(t *testing.T) {
	for source, compiler := range map[string]string{"testdata/aborts.c": "gcc", "testdata/aborts.cc": "g++"} {
		text, err := os.ReadFile(source)
		if err != nil {
			t.Fatal(err)
		}
		list := stateOfAbort.FindAllStringSubmatch(string(text), -1)
		if len(list) != strings.Count(string(text), "\n// case ") || len(list) == 0 {
			t.Fatalf("%s: %d of its cases can be read", source, len(list))
		}
		for _, level := range []string{"-O0", "-O2"} {
			exe := filepath.Join(bin, filepath.Base(source)+level)
			if out, err := exec.Command(compiler, "-g", level, "-w", "-pthread", "-U_FORTIFY_SOURCE", "-fstack-protector-strong", "-o", exe, source).CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			guarded := func(t *testing.T, name string, flags ...string) (ended, []found) {
				report := filepath.Join(t.TempDir(), "report")
				native := run(t, exec.Command(exe, name))
				got := run(t, exec.Command(ripstop, slices.Concat([]string{"guard", "--exit-code", "0", "--format", "json=" + report}, flags, []string{"--", exe, name})...))
				if got.how != native.how || string(got.out) != string(native.out) || !strings.HasPrefix(string(got.errs), string(native.errs)) {
					t.Errorf("it ended with %s, %q, %q, natively with %s, %q, %q", got.how, got.out, got.errs, native.how, native.out, native.errs)
				}
				return got, findings(t, report)
			}
			t.Run(filepath.Base(source)+level+"/clean", func(t *testing.T) {
				t.Parallel()
				if got, list := guarded(t, "clean"); got.how != "exit 0" || len(list) > 0 {
					t.Errorf("%s, %+v", got.how, list)
				}
			})
			for _, c := range list {
				t.Run(filepath.Base(source)+level+"/"+c[1], func(t *testing.T) {
					t.Parallel()
					var plain []string
					for _, epochs := range []string{"0", "1s"} {
						got, list := guarded(t, c[1], "--epochs", epochs)
						if got.how != "SIGABRT" || (c[2] != "") != (len(list) == 0) || len(list) > 1 {
							t.Fatalf("--epochs %s: %s, %+v", epochs, got.how, list)
						}
						if len(list) == 0 {
							continue
						}
						f := list[0]
						want := crash{"SIGABRT", strings.Replace(c[3], "%", filepath.Base(exe), 1), c[4], c[5]}
						if f.Rule != "crash" || f.Crash == nil || *f.Crash != want || !strings.HasSuffix(f.Message, want.Said) || !strings.Contains(f.Message, want.Exception) || !strings.HasSuffix(f.Message, want.What) {
							t.Errorf("--epochs %s: %s: %s\n got %+v\nwant %+v", epochs, f.Rule, f.Message, f.Crash, want)
						}
						names := functions(f.Parts[0].Stack, source)
						if plain == nil {
							plain = names
						}
						if len(names) == 0 || !slices.Equal(names, plain) {
							t.Errorf("--epochs %s: in %v, not %v", epochs, names, plain)
						}
					}
				})
			}
		}
	}
}
