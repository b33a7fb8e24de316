package run

import (
	"maps"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// After four frees of a call in a wrapper most are given the stack of an earlier one of that depth: a double free was reported as freed first by another caller of the wrapper,
// and the report said nothing of it. It says now from which frame on that may be so; of a stack that is the free's own it says nothing.
func TestFreedFirst(t *testing.T) {
	const doubt = "may have had another caller"
	for _, c := range []struct {
		args  []string
		doubt bool
	}{{nil, true}, {[]string{"alone"}, false}} {
		r := finish(t, command(t, nil, append([]string{path("freed")}, c.args...)...))
		_, first, ok := strings.Cut(r.stderr, "Freed first here")
		if !ok || !strings.Contains(first, "drop ") || strings.Contains(first, doubt) != c.doubt || !c.doubt && !strings.Contains(first, "second_drops ") {
			t.Errorf("%v: %s", c.args, r.stderr)
		}
	}
}

// What the C library says of a broken heap before it aborts was written to standard error by ripstop's own heap, past the log of calls: it came once more with each execution of the epoch, up to eleven times.
// Of a double free the report said that its block lies where nothing is known of, and nobody's name beside the first free; of a part of a block that was freed it did so too, if that part was not aligned as blocks are.
// And of the abort it told the condition of the program's that came before the free, which has nothing to do with it. Of a block that was overwritten before any abort who wrote was never known:
// the log had nothing of the call that sent the signal, and the re-execution came to that.
func TestHeapFoundBroken(t *testing.T) {
	prog := filepath.Join(t.TempDir(), "broken")
	if out, err := exec.Command("gcc", "-g", "-O1", "-w", "-pthread", "-o", prog, "testdata/broken.c").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	options := maps.Clone(pointerOptions)
	options["Guard"] = map[string]any{"Bytes": 16, "Quarantine": 1024}
	for _, c := range []struct{ name, said, told string }{
		{"twice", "double free detected in tcache 2", `  Free of heap block H1 \(allocated in make\), which was freed already\n(?s:.*)` +
			`Freed first here in thread T2 [^\n]*\n    #0 drops (?s:.*)Heap block H1 \(0x[0-9a-f]+\) of size 40 was allocated by:\n    #0 make `},
		{"inside overflow", "invalid pointer", `Written here in main thread:\n    #0 .*\n(    #1 main [^\n]*broken.c)?`},
		{"inside", "invalid pointer", `  Address H1 \(0x[0-9a-f]+\) is located 8 bytes inside of heap block of size 24 at 0x[0-9a-f]+ allocated by:\n    #0 make `},
	} {
		t.Run(c.name, func(t *testing.T) {
			native := finish(t, exec.Command(prog, strings.Fields(c.name)...))
			said := "free(): " + c.said
			if native.signal != syscall.SIGABRT || native.stderr != said+"\n" {
				t.Fatalf("natively %+v", native)
			}
			r := finish(t, command(t, options, append([]string{prog}, strings.Fields(c.name)...)...))
			if r.code != 66 || r.stdout != native.stdout || !strings.HasPrefix(r.stderr, native.stderr) || strings.Count(r.stderr, "\n"+said) != 0 {
				t.Errorf("%+v", r)
			}
			if !regexp.MustCompile(c.told).MatchString(r.stderr) || !strings.Contains(r.stderr, "SIGABRT: the program aborted: "+said+"\n") || strings.Contains(r.stderr, " written here") {
				t.Errorf("%s", r.stderr)
			}
		})
	}
}

// A stack of a free by operator delete began under `run` with the agent's operator, which libstdc++'s calls free for; under `guard` it did not.
func TestDeletes(t *testing.T) {
	ofAgent(t)
	for how, o := range map[string]map[string]any{"run": nil, "guard": {"Guard": map[string]any{"Bytes": 16, "Quarantine": 1 << 10}}} {
		for kind, want := range map[string][]string{"none": {`Freed here[^\n]*\n    #0 drops\(`}, "twice": {`(?s)Freed (again )?here[^\n]*\n    #0 drops_again\(`, `Freed first here[^\n]*\n    #0 drops\(`}} {
			r := finish(t, command(t, o, path("deletes"), kind))
			if strings.Contains(r.stderr, "libripstop") {
				t.Errorf("%s, %s: the agent is in it:\n%s", how, kind, r.stderr)
			}
			for _, w := range want {
				if !regexp.MustCompile(w).MatchString(r.stderr) {
					t.Errorf("%s, %s: no %q in\n%s", how, kind, w, r.stderr)
				}
			}
		}
	}
}
