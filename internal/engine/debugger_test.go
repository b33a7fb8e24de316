package engine_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/ripstop/ripstop/internal/agent"
	"github.com/ripstop/ripstop/internal/engine"
	"github.com/ripstop/ripstop/internal/patch"
	"github.com/ripstop/ripstop/internal/recipe"
	"github.com/ripstop/ripstop/internal/wire"
	"github.com/ripstop/ripstop/internal/x86"
)

// counting counts each memory instruction of the program, calls through memory too, by an addition that has the flags and a register saved.
type counting struct{ everywhere }

func (c *counting) Sites(p *engine.Process, m *engine.Module) (list []patch.Site) {
	if m.Kind != engine.Program {
		return nil
	}
	cell, _, err := p.Share(8)
	if err != nil {
		c.t.Error(err)
		return nil
	}
	m.Instructions(func(in *engine.Insn) bool {
		if mems := in.Inst.Mems(); !wanted(&in.Inst) && (in.Inst.Flow != x86.FlowCall || len(mems) < 2) || !m.Patchable(in.At) {
			return true
		}
		code, err := recipe.Compile([]recipe.Op{recipe.Count{Cell: cell}}, recipe.Site{At: in.At, Inst: in.Inst, Code: in.Code}, x86.AllLive, p.Env())
		if err != nil {
			c.t.Logf("%v", err)
			return true
		}
		list = append(list, patch.Site{At: in.At, Recipe: code})
		return true
	})
	return list
}

// startPatched starts a program with an engine. The function that it gives waits for the program's end, and for the engine's.
func startPatched(t *testing.T, o engine.Options, cmd *exec.Cmd) (finish func() (engine.Stats, error)) {
	t.Helper()
	lib, err := library()
	if err != nil {
		t.Fatalf("make: %v\n%s", err, lib)
	}
	o.Warn = func(text string) { t.Errorf("engine: %s", text) }
	eng := engine.New(o)
	s, err := agent.New(agent.Options{Config: wire.Config{Follow: 1}, Handler: deaf{}, Library: lib, Patcher: eng, Warn: func(text string) { t.Logf("warning: %s", text) }})
	if err != nil {
		t.Fatal(err)
	}
	cmd.Env = s.Environ(os.Environ())
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return func() (engine.Stats, error) {
		err := cmd.Wait()
		if _, cerr := s.Close(); cerr != nil {
			t.Error(cerr)
		}
		st := eng.Stats()
		eng.Close()
		return st, err
	}
}

const stepper = `
set pagination off
set confirm off
set width 0
handle SIGUSR2 stop print nopass
set var go = 1
continue
break walked
break frame
break pushes
break leaf
delete
printf "walked %%lx frame %%lx pushes %%lx leaf %%lx\n", (long)walked, (long)frame, (long)pushes, (long)leaf
set $n = 0
while $n < %d
  echo step\n
  bt
  frame apply all -q -s printf "pc %%lx\n", (long)$pc
  stepi
  set $n = $n + 1
end
kill
`

var (
	frameLine = regexp.MustCompile(`^#\d+ +(?:0x[0-9a-f]+ in )?(.*?)(?: at .*| from .*)?$`)
	address   = regexp.MustCompile(`0x[0-9a-f]+`)
	body      = regexp.MustCompile(`(?m)^Breakpoint \d+ at 0x([0-9a-f]+)`)
)

// stepped attaches gdb to a program that waits for it, and steps it through its function walked: what gdb shows of the stack at each place, places that are the same as the
// last left out. inside counts the steps at which gdb found the thread in a trampoline.
func stepped(t *testing.T, prog string, steps int, o *engine.Options) (places []string, inside int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, prog)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	finish := func() (engine.Stats, error) { return engine.Stats{}, cmd.Wait() }
	if o != nil {
		finish = startPatched(t, *o, cmd)
	} else if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(out)
	pid, err := in.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	script := filepath.Join(t.TempDir(), "gdb")
	if err := os.WriteFile(script, fmt.Appendf(nil, stepper, steps), 0o600); err != nil {
		t.Fatal(err)
	}
	said, err := exec.CommandContext(ctx, "gdb", "-nx", "-batch", "-p", strings.TrimSpace(pid), "-x", script).CombinedOutput()
	if err != nil {
		t.Fatalf("gdb: %v\n%s", err, said)
	}
	io.Copy(io.Discard, in)
	if st, _ := finish(); o != nil {
		if st.Patched[patch.TierTrap] != 0 || st.Patched[patch.TierPun] == 0 {
			t.Errorf("patched: %v", st.Patched)
		}
		t.Logf("patched: %v", st.Patched)
	}
	text := string(said)
	head, text, _ := strings.Cut(text, "step\n")
	// Before the end of a function's prologue what gdb shows of its arguments is what happens to lie where they will be stored: ours or the program's.
	var starts, ends [4]uint64
	if _, err := fmt.Sscanf(head[strings.LastIndex(head, "walked "):], "walked %x frame %x pushes %x leaf %x", &starts[0], &starts[1], &starts[2], &starts[3]); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	bodies := body.FindAllStringSubmatch(head, -1)
	if len(bodies) != len(ends) {
		t.Fatalf("%d breakpoints\n%s", len(bodies), said)
	}
	for i, m := range bodies {
		ends[i], _ = strconv.ParseUint(m[1], 16, 64)
	}
	walked := starts[0]
	for step := range strings.SplitSeq(text, "step\n") {
		var frames, pcs []string
		trampoline := false
		for line := range strings.Lines(step) {
			line = strings.TrimSpace(line)
			var pc uint64
			if _, err := fmt.Sscanf(line, "pc %x", &pc); err == nil {
				for i := range starts {
					if last := len(pcs); last < len(frames) && pc >= starts[i] && pc < ends[i] {
						frames[last], _, _ = strings.Cut(frames[last], " (")
					}
				}
				pcs = append(pcs, fmt.Sprintf("%+#x", int64(pc-walked)))
			} else if m := frameLine.FindStringSubmatch(line); m != nil {
				frames = append(frames, address.ReplaceAllString(m[1], "…"))
			}
		}
		if len(frames) > 0 && frames[0] == "<signal handler called>" {
			trampoline = true
			frames, pcs = frames[1:], pcs[1:]
		}
		n := 0
		for n < len(frames) && !strings.HasPrefix(frames[n], "main ") {
			n++
		}
		// Before and behind walked are libc's functions, and main.
		if n == 0 || n == len(frames) || !strings.HasPrefix(frames[n-1], "walked ") {
			continue
		}
		if trampoline {
			inside++
		}
		if place := fmt.Sprint(pcs[:n], " ", strings.Join(frames, " < ")); len(places) == 0 || places[len(places)-1] != place {
			places = append(places, place)
		}
	}
	return places, inside
}

// gdb shows the stack of a thread that stands in a trampoline as it would without us: at each instruction the functions with their arguments, and the places in them. Above them
// is a frame that it takes for a signal's, so that its commands step through the trampoline.
func TestDebugger(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: TestDebuggerTraps runs the same code, and the rest is gdb's")
	}
	for _, opt := range []string{"-O0", "-O2"} {
		t.Run(opt, func(t *testing.T) {
			prog := compile(t, "debugged.c", opt)
			want, _ := stepped(t, prog, 350, nil)
			got, inside := stepped(t, prog, 1800, &engine.Options{Client: &counting{everywhere{t: t}}, Calls: x86.PushReturn})
			t.Logf("%d places natively, %d patched; %d steps in trampolines", len(want), len(got), inside)
			if len(want) < 60 || inside < 100 {
				t.Error("too few")
			}
			for i, w := range want {
				if i == len(got) || got[i] != w {
					t.Errorf("place %d: natively %s", i, w)
					if i < len(got) {
						t.Errorf("patched %s", got[i])
					}
					break
				}
			}
			if len(got) != len(want) {
				t.Errorf("%d places, natively %d", len(got), len(want))
			}
		})
	}
}

// A program that gdb is attached to runs on over int3 of ours, once gdb is told whose SIGTRAP is.
func TestDebuggerTraps(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	prog := compile(t, "debugged.c", "-O2")
	want, err := exec.CommandContext(ctx, "gdb", "-nx", "-batch", "-ex", "handle SIGUSR2 nostop nopass", "-ex", "break main", "-ex", "run", "-ex", "set var go = 1", "-ex", "continue", prog).CombinedOutput()
	if err != nil {
		t.Fatalf("gdb: %v\n%s", err, want)
	}
	cmd := exec.CommandContext(ctx, prog)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	finish := startPatched(t, engine.Options{Client: &everything{everywhere{t: t}}}, cmd)
	in := bufio.NewReader(out)
	pid, err := in.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	said, err := exec.CommandContext(ctx, "gdb", "-nx", "-batch", "-p", strings.TrimSpace(pid), "-ex", "set confirm off", "-ex", "handle SIGTRAP nostop noprint pass",
		"-ex", "handle SIGUSR2 nostop nopass", "-ex", "set var go = 1", "-ex", "continue").CombinedOutput()
	if err != nil {
		t.Fatalf("gdb: %v\n%s", err, said)
	}
	rest, err := io.ReadAll(in)
	if err != nil {
		t.Fatal(err)
	}
	st, err := finish()
	if st.Patched[patch.TierTrap] == 0 {
		t.Error("no int3")
	}
	if result := strings.TrimSpace(string(rest)); err != nil || result == "" || !strings.Contains(string(want), "\n"+result+"\n") || !strings.Contains(string(said), "exited normally") {
		t.Errorf("%v, it says %q\n%s\nnatively\n%s", err, rest, said, want)
	}
}
