package engine_test

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ripstop/ripstop/internal/engine"
	"github.com/ripstop/ripstop/internal/patch"
	"github.com/ripstop/ripstop/internal/wire"
)

// asked patches what is asked for, and dies when it was asked so often; 0: never.
type asked struct {
	everywhere
	dies int
}

func (c *asked) Sites(*engine.Process, *engine.Module) []patch.Site                 { return nil }
func (c *asked) Patched(*engine.Process, *engine.Module, func(uint64) *patch.Patch) {}

func (c *asked) Site(_ *engine.Process, m *engine.Module, at uint64) (patch.Recipe, bool) {
	if c.dies > 0 {
		if c.dies--; c.dies == 0 {
			unix.Kill(os.Getpid(), unix.SIGKILL)
		}
	}
	return empty{}, m.Kind != engine.Libc
}

// soonSaid takes apart what soon.c says on stderr.
func soonSaid(t *testing.T, text string) (in, underWay, refused, passed, again, left int) {
	t.Helper()
	if _, err := fmt.Sscanf(text, "in %d, under way %d, refused %d; passed %d, again %d, left %d", &in, &underWay, &refused, &passed, &again, &left); err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return
}

// Threads race at the same instructions, do not wait for their patches, and get past them: all instructions but a call are patched in the end, nobody asks for ever, results are right, and handlers that interrupt
// them see the program's own code. A call through memory can be neither patched nor executed elsewhere.
func TestSoon(t *testing.T) {
	prog := compile(t, "soon.c", "-O1")
	for _, threads := range []string{"1", "4"} {
		t.Run(threads, func(t *testing.T) {
			want := native(t, "", prog, threads, "300")
			got, st := patched(t, engine.Options{Client: &asked{everywhere: everywhere{t: t}}}, "", prog, threads, "300")
			in, _, refused, passed, _, left := soonSaid(t, got.stderr)
			if got.stderr = ""; got != want {
				t.Errorf("natively %+v, patched %+v", want, got)
			}
			if in == 0 || refused == 0 || passed == 0 || left == 0 {
				t.Errorf("%d in, %d refused, %d passed, %d left", in, refused, passed, left)
			}
			n := uint64(0)
			for _, k := range st.Patched {
				n += k
			}
			if n != 15 {
				t.Errorf("%d instructions patched: %v", n, st.Patched)
			}
			if st.Unpatched[engine.WhyMoved] != 1 {
				t.Errorf("not patched: %v", st.Unpatched)
			}
			t.Logf("%d requests, median %v", st.Requests[wire.PatchAskSoon], st.Median[wire.PatchAskSoon])
		})
	}
}

// Between a request and the patch the library is gone, with another one in its place, or there is a child: it goes on without patches.
func TestSoonBetween(t *testing.T) {
	prog := compile(t, "soon.c", "-O1")
	plugin := compile(t, "plugin.c", "-O1", "-shared", "-fPIC")
	want := native(t, "", prog, "2", "50", plugin)
	got, _ := patched(t, engine.Options{Client: &asked{everywhere: everywhere{t: t}}}, "", prog, "2", "50", plugin)
	if got.stderr = ""; got != want {
		t.Errorf("natively %+v, patched %+v", want, got)
	}
}

// When ripstop is killed while it looks at a request, with others accepted and not patched yet, all threads get past their instructions without it.
func TestSoonGone(t *testing.T) {
	prog := compile(t, "soon.c", "-O1")
	if _, err := library(); err != nil {
		t.Fatal(err)
	}
	want := native(t, "", prog, "2", "3")
	for _, after := range []string{"1", "12"} {
		ours, theirs, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		ripstop := exec.Command(os.Args[0])
		ripstop.Env = append(os.Environ(), "RIPSTOP_TEST_TARGET="+prog, "RIPSTOP_TEST_ASKED="+after)
		ripstop.Stdout, ripstop.Stderr = theirs, theirs
		if err := ripstop.Start(); err != nil {
			t.Fatal(err)
		}
		theirs.Close()
		io.Copy(&out, ours) // the program has the other end until it ends
		ours.Close()
		ripstop.Wait()
		if status := ripstop.ProcessState.Sys().(syscall.WaitStatus); !status.Signaled() {
			t.Errorf("ripstop ended by itself: %v", ripstop.ProcessState)
		}
		if !strings.HasPrefix(out.String(), want.stdout) && !strings.HasSuffix(out.String(), want.stdout) {
			t.Errorf("killed after %s requests: the program says %q", after, out.String())
		}
	}
}

// Each instruction of some of libc's functions and of the program is executed elsewhere, or stepped where that cannot be: results and the number of steps are as natively, and no step shows the copy.
// Both have the same addresses: libc's string functions take some steps more where a page ends, which failed one time in fifteen.
func TestSteps(t *testing.T) {
	prog := compile(t, "steps.c", "-O1", "-Wl,-z,now")
	want, _ := patched(t, engine.Options{Client: &asked{everywhere: everywhere{t: t}}}, "", "setarch", "-R", prog, "plainly") // functions of the agent's are not natively there
	got, _ := patched(t, engine.Options{Client: &asked{everywhere: everywhere{t: t}}}, "", "setarch", "-R", prog, "by copy")
	var passed, again, left int
	if _, err := fmt.Sscanf(got.stderr, "passed %d, again %d, left %d", &passed, &again, &left); err != nil || passed < 4*left || again != 0 {
		t.Errorf("%q: %v", got.stderr, err)
	}
	if got.stderr = ""; got != want {
		t.Errorf("in place %+v, by copies %+v", want, got)
	}
	t.Logf("%d passed, %d left", passed, left)
}
