package engine_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"weak"

	"golang.org/x/sys/unix"

	"github.com/ripstop/ripstop/internal/agent"
	"github.com/ripstop/ripstop/internal/engine"
	"github.com/ripstop/ripstop/internal/patch"
	"github.com/ripstop/ripstop/internal/wire"
)

// killing ends the process while it waits for its sites.
type killing struct {
	everywhere
	sig    unix.Signal
	begun  bool
	inside atomic.Bool
	full   int // instructions of the program, before
	rest   int // and when it is gone
}

func (c *killing) Sites(p *engine.Process, m *engine.Module) []patch.Site {
	if filepath.Base(m.Path) != "sleep" || c.begun {
		return nil
	}
	c.begun = true
	c.inside.Store(true)
	defer c.inside.Store(false)
	all := func() (n int) {
		m.Instructions(func(*engine.Insn) bool { n++; return true })
		return n
	}
	c.full = all()
	unix.Kill(p.PID, c.sig)
	for end := time.Now().Add(time.Minute); !errors.Is(unix.Kill(p.PID, 0), unix.ESRCH); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			c.t.Errorf("signal %v does not end the process", c.sig)
			return nil
		}
	}
	for end := time.Now().Add(time.Minute); time.Now().Before(end); {
		if c.rest = all(); c.rest < c.full {
			break
		}
	}
	return nil
}

// To plan for mariadbd takes half a minute, in which SIGTERM and Ctrl-C did nothing: all signals were blocked. And when the process was gone `ripstop count` ended before the engine did,
// whose next question found nothing where it asked: a panic.
func TestEnded(t *testing.T) {
	for _, sig := range []unix.Signal{unix.SIGTERM, unix.SIGINT, unix.SIGKILL} {
		t.Run(sig.String(), func(t *testing.T) {
			lib, err := library()
			if err != nil {
				t.Fatalf("make: %v\n%s", err, lib)
			}
			c := &killing{everywhere: everywhere{t: t}, sig: sig}
			eng := engine.New(engine.Options{Client: c})
			s, err := agent.New(agent.Options{Config: wire.Config{Follow: 1}, Handler: deaf{}, Library: lib, Patcher: eng})
			if err != nil {
				t.Fatal(err)
			}
			// Who runs the test may have SIGINT ignored, as shells do in the background.
			cmd := exec.Command("env", "--default-signal", "sleep", "600")
			cmd.Env = s.Environ(os.Environ())
			r := run(t, cmd)
			s.Close()
			eng.Stop()
			if c.inside.Load() {
				t.Error("Stop has returned, and the client is still asked")
			}
			eng.Close()
			if want := "signal: " + sig.String(); r.state != want {
				t.Errorf("%s, want %s", r.state, want)
			}
			if c.full == 0 || c.rest >= c.full {
				t.Errorf("%d instructions of a process that is gone, it had %d", c.rest, c.full)
			}
		})
	}
}

// remembering has what it met, for as long as somebody else has it.
type remembering struct {
	everywhere
	met     []weak.Pointer[engine.Process]
	modules []weak.Pointer[engine.Module]
}

func (c *remembering) Start(p *engine.Process) error {
	err := c.everywhere.Start(p)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.met = append(c.met, weak.Make(p))
	return err
}

func (c *remembering) Sites(p *engine.Process, m *engine.Module) []patch.Site {
	c.mu.Lock()
	c.modules = append(c.modules, weak.Make(m))
	c.mu.Unlock()
	return c.everywhere.Sites(p, m)
}

// A run may have thousands of processes: what is known of those that have ended is given up, before the engine is closed. It was not but for the memory of trampolines: `ripstop guard` of a script that started 400 programs had
// 1.4 GB, half of it the index of space for trampolines, half their files, which stayed mapped.
func TestReleased(t *testing.T) {
	held := func() (n int) {
		links, err := filepath.Glob("/proc/self/fd/*")
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range links {
			if to, err := os.Readlink(l); err == nil && strings.HasPrefix(to, "/memfd:ripstop-patch") {
				n++
			}
		}
		b, err := os.ReadFile("/proc/self/maps")
		if err != nil {
			t.Fatal(err)
		}
		return n + strings.Count(string(b), "/memfd:ripstop-") + strings.Count(string(b), "/libc.so.6") + strings.Count(string(b), "/true\n")
	}
	lib, err := library()
	if err != nil {
		t.Fatalf("make: %v\n%s", err, lib)
	}
	c := &remembering{everywhere: everywhere{t: t}}
	eng := engine.New(engine.Options{Client: c})
	before := held()
	s, err := agent.New(agent.Options{Config: wire.Config{Follow: 1}, Handler: deaf{}, Library: lib, Patcher: eng})
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/bin/sh", "-c", "/bin/true; /bin/true; /bin/true")
	cmd.Env = s.Environ(os.Environ())
	r := run(t, cmd)
	s.Close()
	eng.Stop()
	if n := held(); n != before || r.state != "exit status 0" {
		t.Errorf("%s; %d descriptors and mappings are held, %d before", r.state, n, before)
	}
	runtime.GC()
	for i, p := range c.met {
		if p.Value() != nil {
			t.Errorf("process %d of %d is still known", i, len(c.met))
		}
	}
	for _, w := range c.modules {
		if m := w.Value(); m != nil {
			t.Errorf("%s is still known", m.Path)
		}
	}
	if len(c.met) < 4 || len(c.modules) < 4 {
		t.Errorf("%d processes, %d modules", len(c.met), len(c.modules))
	}
	if st := eng.Stats(); st.Sites == 0 || st.Modules < 4 || st.Held == 0 {
		t.Errorf("of the processes that have ended the figures are gone: %+v", st)
	}
	eng.Close()
}

// A program with a limit on its address space (ulimit -v) could not have memory that it has natively: trampolines had taken the space. Now it is left as it is, and says so.
func TestCramped(t *testing.T) {
	argv := []string{"/bin/sh", "-c", "ulimit -v 900000; exec /usr/bin/python3 -c 'x = [bytearray(1 << 20) for _ in range(600)]; print(len(x))'"}
	want := native(t, "", argv...)
	if want.stdout != "600\n" {
		t.Fatalf("natively: %+v", want)
	}
	got, st := patched(t, engine.Options{Client: &everywhere{t: t}}, "", argv...)
	const line = "its limit on address space (ulimit -v) leaves no room to patch its code: it runs as it is\n"
	if n := strings.Count(got.stderr, line); n != 1 {
		t.Errorf("it says %q", got.stderr)
	}
	if got.stderr = want.stderr; got != want {
		t.Errorf("%+v, natively %+v", got, want)
	}
	if st.Sites == 0 {
		t.Error("the shell before was not patched")
	}
}
