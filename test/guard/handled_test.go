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

var stateOfHandled = regexp.MustCompile(`(?m)^// case (\w+):(?: (\w+))?( by epochs)?$`)

// A program's own handler for a crash, which says something and then has the process die of the signal, hid the crash: what a program sets takes the agent's handler away, and SIG_DFL did, too. So nothing was told of most servers, nor
// of any program of Rust's, whose library has such a handler.
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
			for _, flags := range [][]string{nil, {"--epochs", "1s"}} {
				t.Run(c[1]+level+strings.Join(flags, ""), func(t *testing.T) {
					t.Parallel()
					report := filepath.Join(t.TempDir(), "report")
					native := run(t, exec.Command(exe, c[1]))
					got := run(t, exec.Command(ripstop, slices.Concat([]string{"guard", "--exit-code", "0", "--format", "json=" + report}, flags, []string{"--", exe, c[1]})...))
					if got.how != native.how || string(got.out) != string(native.out) || !strings.HasPrefix(string(got.errs), string(native.errs)) {
						t.Errorf("it ended with %s, %q, %q, natively with %s, %q, %q", got.how, got.out, got.errs, native.how, native.out, native.errs)
					}
					found := findings(t, report)
					if c[2] == "" || c[3] != "" && flags == nil {
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
				})
			}
		}
	}
}
