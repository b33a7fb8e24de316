package engine_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ripstop/ripstop/internal/agent"
	"github.com/ripstop/ripstop/internal/engine"
	"github.com/ripstop/ripstop/internal/patch"
	"github.com/ripstop/ripstop/internal/wire"
	"github.com/ripstop/ripstop/internal/x86"
)

// padding is a recipe of instructions without effect, of any length, so that trampolines move.
type padding int

func (n padding) Size() int    { return int(n) }
func (padding) Replaces() bool { return false }
func (n padding) Append(dst []byte, at uint64) (b []byte, states []patch.State, err error) {
	for i := range int(n) {
		dst = append(dst, 0x90)
		states = append(states, patch.State{Off: i, Resume: patch.Restart})
	}
	return dst, states, nil
}

// flips patches and unpatches sites of the program at random, some at each request.
type flips struct {
	everywhere
	r        *rand.Rand
	all      []uint64
	in       map[uint64]bool
	changes  int
	full     int // changes refused for want of memory
	atOnce   int
	reclaim  bool // old trampolines' memory is looked for at each request
	patchAll bool // any instruction that can be moved, not only those with memory
}

func (c *flips) Sites(p *engine.Process, m *engine.Module) []patch.Site {
	if m.Kind != engine.Program {
		return nil
	}
	m.Instructions(func(in *engine.Insn) bool {
		if c.patchAll || wanted(&in.Inst) {
			c.all = append(c.all, in.At)
		}
		return true
	})
	return nil
}

type at struct {
	patch.Recipe
	for_ uint64
}

func (a at) Append(dst []byte, pc uint64) ([]byte, []patch.State, error) {
	dst, states, err := a.Recipe.Append(dst, pc)
	for i := range states {
		states[i].For = a.for_
	}
	return dst, states, err
}

func (c *flips) Test(p *engine.Process, _ uint64) error {
	var m *engine.Module
	for _, x := range p.Modules() {
		if x.Kind == engine.Program {
			m = x
		}
	}
	if c.reclaim {
		_ = p.Reclaim() // it may find that it is not the time
	}
	var add []patch.Site
	var remove []uint64
	seen := map[uint64]bool{}
	for range 1 + c.r.IntN(c.atOnce) {
		a := c.all[c.r.IntN(len(c.all))]
		if seen[a] {
			continue
		}
		seen[a] = true
		if c.in[a] {
			remove = append(remove, a)
		} else if m.Patchable(a) {
			add = append(add, patch.Site{At: a, Recipe: at{padding(c.r.IntN(12)), a}})
		}
	}
	if err := p.Change(m, add, remove); errors.Is(err, patch.ErrSpace) {
		c.full++
		return nil
	} else if err != nil {
		if c.t != nil {
			c.t.Logf("process %d: %v", p.PID, err)
		}
		return err
	}
	for _, s := range add {
		c.in[s.At] = true
	}
	for _, a := range remove {
		delete(c.in, a)
	}
	c.changes += len(add) + len(remove)
	return nil
}

// Threads run code, and handlers interrupt them, while sites of it are patched, planned anew and removed at random: no result is wrong, no trap strays.
func TestLive(t *testing.T) {
	seconds := "3"
	if os.Getenv("RIPSTOP_SOAK") != "" {
		seconds = "600"
	}
	for _, opt := range []string{"-O0", "-O2"} {
		t.Run(opt, func(t *testing.T) {
			prog := compile(t, "hot.c", opt)
			c := &flips{everywhere: everywhere{t: t}, r: rand.New(rand.NewPCG(1, 2)), in: map[uint64]bool{}, atOnce: 200, patchAll: true}
			want := native(t, "", prog, "3", "3") // what it prints does not depend on how long it runs
			began := time.Now()
			got, st := patched(t, engine.Options{Client: c}, "", prog, seconds, "3")
			took := time.Since(began).Seconds()
			if got != want {
				t.Errorf("natively %+v, patched %+v", want, got)
			}
			t.Logf("%d changes (%.0f a second, the start and the end counted in) of %d sites, %d times there was no memory: %+v", c.changes, float64(c.changes)/took, len(c.all), c.full, st)
			if c.changes == 0 || st.Requests[4] == 0 {
				t.Error("nothing was changed")
			}
			if c.full > 0 {
				t.Errorf("%d changes found no memory", c.full)
			}
		})
	}
}

// Likewise while the memory of old trampolines is used again all the time. A thread that a signal had interrupted in the agent, at the beginning or the end of another handler, came back to a
// trampoline that was another's by then, when only the places of threads were looked at.
func TestReused(t *testing.T) {
	prog := compile(t, "hot.c", "-O2")
	c := &flips{everywhere: everywhere{t: t}, r: rand.New(rand.NewPCG(9, 10)), in: map[uint64]bool{}, atOnce: 30, patchAll: true, reclaim: true}
	st := same(t, engine.Options{Client: c}, "", prog, "3", "3")
	if st.Reused == 0 || c.full > 0 {
		t.Errorf("%d bytes used again; %d times there was no memory", st.Reused, c.full)
	}
	t.Logf("%d changes", c.changes)
}

// holding patches the instruction of held.c; when a thread is held there it takes the patch away and looks for old memory, which others then get.
type holding struct {
	everywhere
	site   uint64
	others []uint64
	looked int // how often old memory was looked for while the thread was held
}

func (c *holding) Sites(_ *engine.Process, m *engine.Module) (list []patch.Site) {
	m.Instructions(func(in *engine.Insn) bool {
		switch {
		case m.Kind != engine.Program || !m.Patchable(in.At):
		case bytes.HasPrefix(in.Code, []byte{0x2e, 0x2e, 0x2e, 0xf3, 0xaa}):
			c.site = in.At
			list = append(list, patch.Site{At: in.At, Recipe: at{padding(3), in.At}})
		case in.Inst.Len >= 5:
			c.others = append(c.others, in.At)
		}
		return true
	})
	return list
}

func (c *holding) Test(p *engine.Process, held uint64) error {
	m := p.Module(c.site)
	var list []patch.Site
	for _, a := range c.others {
		list = append(list, patch.Site{At: a, Recipe: at{padding(0), a}}) // short: they fit where the other one was
	}
	here := []patch.Site{{At: c.site, Recipe: at{padding(3), c.site}}}
	if held == 0 {
		if err := p.Change(m, nil, c.others); err != nil {
			return err
		}
		_ = p.Reclaim() // so that it lies before those that come next
		return p.Change(m, here, nil)
	}
	if err := p.Change(m, nil, []uint64{c.site}); err != nil {
		return err
	}
	if p.Reclaim() == nil { // on a busy machine it may give up
		c.looked++
	}
	return p.Change(m, list, nil)
}

// A thread that a handler holds goes on in a trampoline that nothing leads to any more: its memory is not used for others until then.
func TestHeld(t *testing.T) {
	c := &holding{everywhere: everywhere{t: t}}
	st := same(t, engine.Options{Client: c}, "", compile(t, "held.c", "-O1"))
	if len(c.others) < 10 || c.looked == 0 || st.Reused == 0 {
		t.Errorf("%d other sites, looked for old memory %d times, %d bytes used again", len(c.others), c.looked, st.Reused)
	}
}

// What handlers see of interrupted threads is the program's code, with its registers there and stacks that lead to main; faults are at the instruction that faults;
// siglongjmp, asynchronous cancellation and the default action work.
func TestShown(t *testing.T) {
	for _, opt := range []string{"-O0", "-O2"} {
		t.Run(opt, func(t *testing.T) {
			prog := compile(t, "show.c", opt)
			same(t, engine.Options{Client: &everything{everywhere{t: t}}}, "", prog)
		})
	}
}

// everything patches each instruction that can be moved, of the program and what it loads, so that most interruptions are in trampolines.
type everything struct{ everywhere }

func (c *everything) Sites(_ *engine.Process, m *engine.Module) []patch.Site {
	if m.Kind != engine.Program && !strings.HasPrefix(filepath.Base(m.Path), "plugin") {
		return nil
	}
	return patchable(m)
}

// patchable gives a site for each instruction of the module that can be moved.
func patchable(m *engine.Module) (list []patch.Site) {
	m.Instructions(func(in *engine.Insn) bool {
		if m.Patchable(in.At) {
			list = append(list, patch.Site{At: in.At, Recipe: at{padding(3), in.At}})
		}
		return true
	})
	return list
}

// evicting patches the one instruction of step.c.
type evicting struct{ everywhere }

func (c *evicting) Sites(_ *engine.Process, m *engine.Module) (list []patch.Site) {
	m.Instructions(func(in *engine.Insn) bool {
		if m.Kind == engine.Program && bytes.HasPrefix(in.Code, []byte{0x89, 0x03, 0xe8}) {
			list = append(list, patch.Site{At: in.At, Recipe: empty{}})
		}
		return true
	})
	return list
}

// A jump inside a displaced neighbour is made of the heads of instructions behind it. A thread that a signal interrupted at one of those was taken for one that stood at the
// jump, and went on at the jump's site: loops ran over their end, and switches jumped to where nothing is. A program that steps itself is interrupted everywhere.
func TestBesideNeighbour(t *testing.T) {
	prog := compile(t, "step.c", "-O1", "-no-pie")
	st := same(t, engine.Options{Client: &evicting{everywhere{t: t}}}, "", prog)
	if st.Patched[patch.TierNeighbour] != 1 {
		t.Errorf("patched: %v", st.Patched)
	}
}

// SIGTRAP is the program's as it is natively, though int3 of ours lies all over its code: handlers, masks, pending signals, death.
func TestTraps(t *testing.T) {
	prog := compile(t, "trap.c", "-O1")
	for _, what := range []string{"handler", "blocked", "int3", "raise", "ignored", "mask"} {
		t.Run(what, func(t *testing.T) {
			st := same(t, engine.Options{Client: &everything{everywhere{t: t}}}, "", prog, what)
			if st.Patched[patch.TierTrap] == 0 {
				t.Error("no int3")
			}
		})
	}
}

// When ripstop is killed at any moment, in the middle of a request too, the program runs on to its end.
func TestKilled(t *testing.T) {
	kills := 5
	if os.Getenv("RIPSTOP_SOAK") != "" {
		kills = 200
	}
	prog := compile(t, "hot.c", "-O2")
	if _, err := library(); err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(3, 4))
	for range kills {
		out, err := os.CreateTemp(t.TempDir(), "out")
		if err != nil {
			t.Fatal(err)
		}
		ours, theirs, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		ripstop := exec.Command(os.Args[0])
		ripstop.Env = append(os.Environ(), "RIPSTOP_TEST_TARGET="+prog)
		ripstop.Stdout, ripstop.Stderr = out, os.Stderr
		ripstop.ExtraFiles = []*os.File{theirs}
		if err := ripstop.Start(); err != nil {
			t.Fatal(err)
		}
		theirs.Close()
		time.Sleep(time.Duration(r.IntN(1500)) * time.Millisecond)
		ripstop.Process.Kill()
		ripstop.Wait()
		// The program has the other end of the pipe until it ends.
		io.Copy(io.Discard, ours)
		ours.Close()
		b, err := os.ReadFile(out.Name())
		if err != nil {
			t.Fatal(err)
		}
		// It may have been killed before it started the program.
		if s := string(b); s != "" && (!strings.HasPrefix(s, "begins\nbad 0, ") || !strings.HasSuffix(s, ", ran\n")) {
			t.Errorf("the program says %q", s)
		}
		out.Close()
	}
}

// dying is killed when it has changed the text a second time, before it answers.
type dying struct {
	everywhere
	asked int
}

func (c *dying) Sites(*engine.Process, *engine.Module) []patch.Site { return nil }

func (c *dying) Test(p *engine.Process, addr uint64) error {
	err := p.Change(p.Module(addr), []patch.Site{{At: addr, Recipe: at{padding(3), addr}}}, nil)
	if c.asked++; c.asked == 2 && p.Taken() {
		unix.Kill(os.Getpid(), unix.SIGKILL)
	}
	return err
}

// Where one thread is there, the text is changed before that thread makes trampolines known. If ripstop is gone in between it does so all the same: a fault is where it is natively.
func TestGone(t *testing.T) {
	prog := compile(t, "gone.c", "-O1")
	if _, err := library(); err != nil {
		t.Fatal(err)
	}
	ours, theirs, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer ours.Close()
	var out bytes.Buffer
	ripstop := exec.Command(os.Args[0])
	ripstop.Env = append(os.Environ(), "RIPSTOP_TEST_TARGET="+prog, "RIPSTOP_TEST_DIES=1")
	ripstop.Stdout, ripstop.Stderr = theirs, os.Stderr
	ripstop.ExtraFiles = []*os.File{theirs}
	if err := ripstop.Start(); err != nil {
		t.Fatal(err)
	}
	theirs.Close()
	io.Copy(&out, ours) // the program has the other end until it ends
	ripstop.Wait()
	if status := ripstop.ProcessState.Sys().(syscall.WaitStatus); !status.Signaled() {
		t.Errorf("ripstop ended by itself: %v", ripstop.ProcessState)
	}
	if want := "first 0, 42\nthen changed, 42\nthe fault is there\n"; out.String() != want {
		t.Errorf("the program says %q", out.String())
	}
}

// opened patches a library that is opened while a thread runs it, and is killed before the given operation by which all processors see what was changed.
type opened struct {
	everywhere
	dies, syncs int
	begun       bool
}

func (c *opened) Start(p *engine.Process) error {
	p.Hook(func(o wire.PatchOp) unix.Errno {
		if c.begun && wire.PatchDo(o.Kind) == wire.PatchDoSync {
			if c.syncs++; c.syncs == c.dies {
				unix.Kill(os.Getpid(), unix.SIGKILL)
			}
		}
		return 0
	})
	return nil
}

func (c *opened) Patched(*engine.Process, *engine.Module, func(uint64) *patch.Patch) {}

func (c *opened) Sites(_ *engine.Process, m *engine.Module) (list []patch.Site) {
	if filepath.Base(m.Path) == "opened_lib" {
		c.begun = true
		m.Instructions(func(in *engine.Insn) bool {
			if len(in.Inst.Mems()) > 0 {
				list = append(list, patch.Site{At: in.At, Recipe: padding(3)})
			}
			return true
		})
	}
	return list
}

// Killed between any two steps of a change that other threads run already, by a library's constructor, ripstop leaves int3 in it. A thread that has all signals blocked goes on from there all the same, as nobody but libc (where there is none: TestNoTrapsMeanwhile) can
// block SIGTRAP.
func TestKilledWhileOpened(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: the Go code is TestKilled's")
	}
	prog := compile(t, "opens.c", "-O1", "-ldl")
	lib := compile(t, "opened_lib.c", "-O1", "-shared", "-fPIC")
	if _, err := library(); err != nil {
		t.Fatal(err)
	}
	left := 0
	for dies := range 6 {
		var out bytes.Buffer
		ours, theirs, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		ripstop := exec.Command(os.Args[0])
		ripstop.Env = append(os.Environ(), "RIPSTOP_TEST_TARGET="+prog, "RIPSTOP_TEST_OPENS="+lib, "RIPSTOP_TEST_OPENED="+strconv.Itoa(dies+1))
		ripstop.Stdout, ripstop.Stderr = theirs, os.Stderr
		ripstop.ExtraFiles = []*os.File{theirs}
		if err := ripstop.Start(); err != nil {
			t.Fatal(err)
		}
		theirs.Close()
		io.Copy(&out, ours) // the program has the other end until it ends
		ours.Close()
		ripstop.Wait()
		status := ripstop.ProcessState.Sys().(syscall.WaitStatus)
		bad, traps := -1, 0
		fmt.Sscanf(out.String(), "1 libraries, %d, int3 %d\n", &bad, &traps)
		t.Logf("killed at step %d (%v): int3 %d", dies+1, status.Signaled(), traps)
		if bad != 0 {
			t.Errorf("killed at step %d, the program says %q", dies+1, out.String())
		}
		if status.Signaled() && traps > 1000 {
			left++
		}
	}
	if left < 2 {
		t.Errorf("only %d kills left int3: nothing is tested", left)
	}
}

// TestMain is ripstop itself for TestKilled, TestGone and TestKilledWhileOpened.
func TestMain(m *testing.M) {
	prog := os.Getenv("RIPSTOP_TEST_TARGET")
	if prog == "" {
		os.Exit(m.Run())
	}
	lib, err := library()
	if err != nil {
		panic(err)
	}
	var c engine.Client = &flips{everywhere: everywhere{}, r: rand.New(rand.NewPCG(5, 6)), in: map[uint64]bool{}, atOnce: 100, patchAll: true}
	if os.Getenv("RIPSTOP_TEST_DIES") != "" {
		c = &dying{}
	}
	argv := []string{"2", "3", "say"}
	if n, _ := strconv.Atoi(os.Getenv("RIPSTOP_TEST_ASKED")); n > 0 {
		c, argv = &asked{dies: n}, []string{"2", "300"}
	}
	if n, _ := strconv.Atoi(os.Getenv("RIPSTOP_TEST_OPENED")); n > 0 {
		c, argv = &opened{dies: n}, []string{os.Getenv("RIPSTOP_TEST_OPENS")}
	}
	s, err := agent.New(agent.Options{Config: wire.Config{Follow: 1}, Handler: deaf{}, Library: lib, Patcher: engine.New(engine.Options{Client: c})})
	if err != nil {
		panic(err)
	}
	cmd := exec.Command(prog, argv...)
	cmd.Env = s.Environ(os.Environ())
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.ExtraFiles = []*os.File{os.NewFile(3, "pipe")}
	if err = cmd.Start(); err == nil {
		ended(cmd.Process.Pid)
		err = cmd.Wait()
	}
	s.Close()
	if err != nil {
		panic(err)
	}
}

// dlopen and dlclose while other threads run, fork, vfork, posix_spawn, exec, contexts: all as natively, and the memory of trampolines goes with the module.
func TestLoad(t *testing.T) {
	prog := compile(t, "load.c", "-O1")
	plugin := compile(t, "plugin.c", "-O1", "-shared", "-fPIC")
	st := same(t, engine.Options{Client: &everything{everywhere{t: t}}}, "", prog, plugin)
	if st.Requests[wire.PatchAskModules] < 60 {
		t.Errorf("only %d requests for modules", st.Requests[wire.PatchAskModules])
	}
}

// Exceptions through patched code, and exceptions out of handlers of its faults, find their way.
func TestThrow(t *testing.T) {
	prog := compile(t, "throw.cc", "-O1", "-fnon-call-exceptions")
	same(t, engine.Options{Client: &everything{everywhere{t: t}}}, "", prog)
	// Calls through memory are displaced too.
	same(t, engine.Options{Client: &counting{everywhere{t: t}}, Calls: x86.PushReturn}, "", prog)
}

// Where /proc/PID/mem is refused the process writes to its memory by itself; and where frames are, each page has its own memory.
func TestRefused(t *testing.T) {
	prog := compile(t, "hot.c", "-O2")
	for name, o := range map[string]engine.Options{"memory": {NoMemory: true}, "frames": {NoFrames: true}, "both": {NoMemory: true, NoFrames: true}} {
		t.Run(name, func(t *testing.T) {
			o.Client = &everywhere{t: t}
			same(t, o, words(1000), "gzip", "-c")
			c := &flips{everywhere: everywhere{t: t}, r: rand.New(rand.NewPCG(7, 8)), in: map[uint64]bool{}, atOnce: 50, patchAll: true}
			o.Client = c
			same(t, o, "", prog, "1", "2")
			if c.changes == 0 {
				t.Error("nothing was changed")
			}
		})
	}
}

// tardy answers the first request for a site when the program has given up waiting for it.
type tardy struct {
	everywhere
	gate *os.File
}

func (c *tardy) Sites(*engine.Process, *engine.Module) []patch.Site { return nil }

func (c *tardy) Site(_ *engine.Process, m *engine.Module, at uint64) (patch.Recipe, bool) {
	if c.gate != nil {
		c.gate.Read(make([]byte, 1))
		c.gate = nil
	}
	return empty{}, m.Patchable(at)
}

// A thread that asks for a patch does not wait for ever; what was planned for it is taken back, and the next request is served.
func TestLate(t *testing.T) {
	ours, theirs, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer ours.Close()
	defer theirs.Close()
	r, st := patched(t, engine.Options{Client: &tardy{everywhere{t: t}, ours}}, "", "/bin/sh", "-c", fmt.Sprintf("exec %s 3>/proc/%d/fd/%d", compile(t, "late.c", "-O1"), os.Getpid(), theirs.Fd()))
	if want := (result{"first 1, 42, as it was\nthen 0, 42, changed\n", "", "exit status 0"}); r != want {
		t.Errorf("%+v", r)
	}
	if st.Patched[patch.TierJump]+st.Patched[patch.TierPun] != 1 {
		t.Errorf("patched: %v", st.Patched)
	}
}

// unguarded leaves the program's own system calls to the engine.
type unguarded struct{ everything }

func (c *unguarded) Sites(p *engine.Process, m *engine.Module) (list []patch.Site) {
	for _, s := range c.everything.Sites(p, m) {
		if in, _ := m.Instruction(s.At); in.Inst.Op != "syscall" {
			list = append(list, s)
		}
	}
	return list
}

// A program that made system calls about signals by itself was killed at the next int3, whose SIGTRAP was blocked or no longer ours, and its handlers saw trampolines. So did threads whose
// attributes block SIGTRAP; they did not inherit that their creators do, handlers with a full mask did not have it blocked, and exec lost it. What a vfork child did
// with its own mask and actions was taken for its parent's.
func TestRawSignals(t *testing.T) {
	prog := compile(t, "sigraw.c", "-O1")
	for _, argv := range [][]string{{"masks"}, {"masks", "own"}, {"actions"}, {"actions", "own"}, {"attributes"}, {"handler"}, {"handler", "own"}, {"inherit"}, {"vfork"}} {
		t.Run(strings.Join(argv, "-"), func(t *testing.T) {
			st := same(t, engine.Options{Client: &unguarded{everything{everywhere{t: t}}}}, "", append([]string{prog}, argv...)...)
			if st.Patched[patch.TierTrap] == 0 {
				t.Error("no int3")
			}
		})
	}
}

// glibc cancels a thread that computes by a signal whose handler unwinds from where it interrupted; from a trampoline it found no way, and destructors did not run. Its signal for changed ids comes anywhere.
// Under make the test failed each time, and never without: its children have the two signals ignored.
func TestCancelled(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: planning all of libstdc++, by one goroutine")
	}
	prog := compile(t, "cancel.cc", "-O1")
	for _, argv := range [][]string{{prog}, {prog, "ignored"}} {
		if st := same(t, engine.Options{Client: &everything{everywhere{t: t}}}, "", argv...); st.Patched[patch.TierTrap] < 4 {
			t.Errorf("%d int3", st.Patched[patch.TierTrap])
		}
	}
}

// Go's runtime took SIGTRAP away by a system call of its own, so that a program with C in it died at the first int3.
func TestCgo(t *testing.T) {
	prog := filepath.Join(t.TempDir(), "cgo")
	cmd := exec.Command("go", "build", "-o", prog, "./testdata/cgo")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	if st := same(t, engine.Options{Client: &everywhere{t: t}}, "", prog); st.Patched[patch.TierTrap] == 0 {
		t.Error("no int3")
	}
}
