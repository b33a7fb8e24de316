package step

import (
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/cpu"
	"golang.org/x/sys/unix"

	"github.com/ripstop/ripstop/internal/agent"
	"github.com/ripstop/ripstop/internal/sample"
	"github.com/ripstop/ripstop/internal/truth"
)

// build compiles a program of testdata.
func build(t testing.TB, name string, args ...string) string {
	t.Helper()
	exe := filepath.Join(t.TempDir(), name)
	args = append([]string{"-O1", "-g", "-pthread", "-Wall", "-Wextra", "-Werror", "-o", exe, "testdata/" + name + ".c"}, args...)
	if out, err := exec.Command("gcc", args...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return exe
}

// A recording is a stepped program.
type recording struct {
	dir    string
	ws     unix.WaitStatus
	output string
	info   sample.Info
	steps  []truth.Step
}

// record steps a program to its end; what it writes to standard output is kept. A shell executes it, which Entry is for: the program itself is stepped from its first instruction on.
func record(t testing.TB, o Options, argv ...string) *recording {
	t.Helper()
	r := &recording{dir: t.TempDir()}
	o.Dir, o.Follow, o.Command = r.dir, true, argv
	if o.Period == 0 {
		o.Period = 100
	}
	o.Warn = func(s string) { t.Errorf("warned: %s", s) }
	st, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(r.dir, "output")
	argv = append([]string{"/bin/sh", "-c", `exec "$@" >"$0"`, out}, argv...)
	prog, err := agent.Resolve(argv, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err = agent.StartHeld(prog, []string{"PATH=/usr/bin:/bin", "LC_ALL=C"}, st.Attach); err != nil {
		t.Fatal(err)
	}
	for {
		if r.ws, err = st.Wait(); err != nil {
			t.Fatal(err)
		}
		if !r.ws.Stopped() {
			break
		}
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	r.output = string(b)
	if r.info, err = sample.ReadInfo(r.dir); err != nil || !r.info.Complete || r.info.Truncated != 0 {
		t.Fatalf("%+v, %v", r.info, err)
	}
	r.steps = readTruth(t, r.dir)
	return r
}

func readTruth(t testing.TB, dir string) (steps []truth.Step) {
	t.Helper()
	f, err := os.Open(filepath.Join(dir, sample.TruthFile))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	in, err := truth.NewReader(f)
	for err == nil {
		var s truth.Step
		if err = in.Next(&s); err == nil {
			s.Accesses = slices.Clone(s.Accesses)
			steps = append(steps, s)
		}
	}
	if err != io.EOF {
		t.Fatal(err)
	}
	return steps
}

// natively gives the output and status of a program that is not stepped.
func natively(t testing.TB, argv ...string) (string, unix.WaitStatus) {
	t.Helper()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = []string{"PATH=/usr/bin:/bin", "LC_ALL=C"}
	out, err := cmd.Output()
	var failed *exec.ExitError
	if err != nil && !errors.As(err, &failed) {
		t.Fatal(err)
	}
	return string(out), unix.WaitStatus(cmd.ProcessState.Sys().(interface{ ExitStatus() int }).ExitStatus() << 8)
}

// With Entry the first program runs up to where it begins unstepped: three quarters of the instructions of a short program are the loader's, which looks for what the agent calls. What it executes itself is stepped whole.
func TestEntry(t *testing.T) {
	argv := []string{"/bin/echo", "said"}
	want, _ := natively(t, argv...)
	r := record(t, Options{Entry: true}, argv...)
	if r.output != want || !r.ws.Exited() || r.ws.ExitStatus() != 0 {
		t.Errorf("%q, status %#x", r.output, uint32(r.ws))
	}
	entry := func(path string) uint64 {
		f, err := elf.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		return f.Entry
	}
	var first []uint64 // of each program
	begins := true
	for _, s := range r.steps {
		switch {
		case s.Kind == truth.Exec:
			begins = true
		case s.Kind == truth.Ran && begins:
			first = append(first, s.IP)
			begins = false
		}
	}
	const page = 1<<12 - 1
	if len(first) != 2 || first[0]&page != entry("/bin/sh")&page || first[1]&page != entry("/lib64/ld-linux-x86-64.so.2")&page {
		t.Errorf("programs begin at %#x, want the shell's entry %#x and the loader's %#x", first, entry("/bin/sh"), entry("/lib64/ld-linux-x86-64.so.2"))
	}
}

// thread is an instruction list's owner.
type owner struct{ pid, tid uint32 }

// ran gives the instructions that threads ran, as a processor tells them: of one with a rep prefix that a signal interrupts, only the end, and no int3.
func (r *recording) ran() map[owner][]uint64 {
	all := map[owner][]uint64{}
	for _, s := range r.steps {
		o := owner{s.PID, s.TID}
		list := all[o]
		switch {
		case s.Kind == truth.Ran:
			all[o] = append(list, s.IP)
		case s.Kind == truth.Handler && len(list) > 0 && (list[len(list)-1] == s.IP || s.Value == uint64(unix.SIGTRAP) && list[len(list)-1] == s.IP-1):
			all[o] = list[:len(list)-1]
		}
	}
	return all
}

var label = regexp.MustCompile(`(?m)^([0-9a-f]+) \S (\w+)$`)

// symbols gives the addresses of a program's symbols.
func symbols(t testing.TB, exe string) map[string]uint64 {
	t.Helper()
	out, err := exec.Command("nm", exe).Output()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]uint64{}
	for _, m := range label.FindAllStringSubmatch(string(out), -1) {
		all[m[2]], _ = strconv.ParseUint(m[1], 16, 64)
	}
	return all
}

// Every kind of access is told with its address, size and direction: what the instructions do is known from their text.
func TestAccesses(t *testing.T) {
	exe := build(t, "accesses", "-no-pie")
	r := record(t, Options{Entry: true}, exe)
	if out, _ := natively(t, exe); r.output != out || r.ws.ExitStatus() != 0 {
		t.Fatalf("status %#x, %q; natively %q", r.ws, r.output, out)
	}
	sym := symbols(t, exe)
	top := sym["stack_top"] + 128
	evex := map[string]bool{"at_mask_load": true, "at_compress": true, "at_mask_none": true}
	for _, c := range []struct {
		at   string
		want string // size@symbol+offset with flags, as in the text twin
	}{
		{"at_load", "r8@word"}, {"at_store", "w1@a+3"}, {"at_modify", "rw4@a"}, {"at_locked", "rwl2@a+2"}, {"at_xchg", "rwl8@a+8"},
		{"at_scaled", "r4@b+28"}, {"at_lea", ""}, {"at_prefetch", ""}, {"at_bit", "rw8@a+16"}, {"at_bit_below", "r4@a+56"},
		{"at_movs", "w100@a r100@b"}, {"at_movs_down", "w80@a+128 r80@b+128"}, {"at_stos_long", "w67108864@big"}, {"at_stos_none", ""}, {"at_scas", "r51@a"}, {"at_stos_one", "w2@a"},
		{"at_push", "ws8@top-8"}, {"at_pop_mem", "w8@top-64 rs8@top-8"}, {"at_call", "r8@target ws8@top-8"}, {"at_ret", "rs8@top-8"},
		{"at_gather", "r4@b r4@b+4 r4@b+36 r4@b+28"}, {"at_masked", "w4@a w8@a+8 w4@a+28"}, {"at_mask_load", "r1@b r8@b+4"}, {"at_compress", "w36@a"},
		{"at_mask_none", ""}, {"at_pushf", "ws8@?"},
	} {
		if evex[c.at] && !(cpu.X86.HasAVX512BW && cpu.X86.HasAVX512VL) {
			t.Logf("%s not tried: this processor has no AVX-512", c.at)
			continue
		}
		found := false
		for _, s := range r.steps {
			if s.Kind != truth.Ran || s.IP != sym[c.at] {
				continue
			}
			if found {
				t.Errorf("%s ran twice", c.at)
			}
			found = true
			var got []string
			for _, a := range s.Accesses {
				line := string(truth.AppendText(nil, &truth.Step{Accesses: []truth.Access{a}}))
				flags, _, _ := strings.Cut(line[strings.LastIndexByte(line, ' ')+1:], "@")
				got = append(got, flags+"@"+place(sym, top, a.Addr))
			}
			slices.Sort(got)
			want := strings.Fields(c.want)
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Errorf("%s: %q, want %q", c.at, got, want)
			}
		}
		if !found {
			t.Errorf("%s did not run", c.at)
		}
	}
}

// place names an address by the test's symbols.
func place(sym map[string]uint64, top, addr uint64) string {
	for name, at := range map[string]uint64{"a": sym["a"], "b": sym["b"], "word": sym["word"], "big": sym["big"], "target": sym["target"], "top": top} {
		switch d := int64(addr - at); {
		case d == 0:
			return name
		case name == "top" && d < 0 && d >= -128:
			return fmt.Sprintf("top%d", d)
		case len(name) == 1 && d > 0 && d < 256:
			return fmt.Sprintf("%s+%d", name, d)
		}
	}
	return "?"
}

// Samples come at their period, from a first one within it, each with an access of the truth; at period 1 they are all loads and all stores.
func TestSamplesAgainstTruth(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: TestControlFlowAgainstPerf runs the same code, with threads")
	}
	for period, exe := range map[uint64]string{1: build(t, "accesses"), 97: build(t, "manners")} {
		r := record(t, Options{Entry: period != 1, Period: period, Seed: 11}, exe)
		s, err := sample.Open(r.dir)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		type event struct{ ip, addr uint64 }
		truths := map[owner]map[sample.EventKind][]event{}
		for _, st := range r.steps {
			o := owner{st.PID, st.TID}
			if truths[o] == nil {
				truths[o] = map[sample.EventKind][]event{}
			}
			for kind, f := range map[sample.EventKind]truth.Flags{sample.LoadEvent: truth.Read, sample.StoreEvent: truth.Write} {
				if i := slices.IndexFunc(st.Accesses, func(a truth.Access) bool { return a.Flags&f != 0 }); i >= 0 {
					truths[o][kind] = append(truths[o][kind], event{st.IP, st.Accesses[i].Addr})
				}
			}
		}
		total := uint64(0)
		for _, th := range s.Threads {
			got := map[sample.EventKind][]event{}
			last := uint64(0)
			for _, sm := range th.Samples {
				got[sm.Kind] = append(got[sm.Kind], event{sm.IP, sm.Addr})
				if sm.TSC < last || sm.Has != 1<<18-1 || sm.Regs[sample.RIP] != sm.IP {
					t.Fatalf("%+v", sm)
				}
				last = sm.TSC
			}
			total += uint64(len(th.Samples))
			for _, kind := range []sample.EventKind{sample.LoadEvent, sample.StoreEvent} {
				w, g := truths[owner{uint32(th.PID), uint32(th.TID)}][kind], got[kind]
				if n := uint64(len(w)) / period; uint64(len(g)) < n || uint64(len(g)) > n+1 {
					t.Errorf("thread %d: %d samples of %d events at period %d", th.TID, len(g), len(w), period)
				}
				if len(g) == 0 {
					continue
				}
				first := slices.Index(w[:min(period, uint64(len(w)))], g[0])
				for first >= 0 { // the same access may come several times within the first period
					i := 0
					for i < len(g) && w[first+i*int(period)] == g[i] {
						i++
					}
					if i == len(g) {
						break
					}
					more := slices.Index(w[first+1:min(period, uint64(len(w)))], g[0])
					if more < 0 {
						first = -1
						break
					}
					first += 1 + more
				}
				if first < 0 {
					t.Errorf("thread %d: its samples at period %d are not the truth's", th.TID, period)
				}
			}
		}
		if total != r.info.Samples || total == 0 {
			t.Errorf("%d samples were read, %d written", total, r.info.Samples)
		}
	}
}

// The registers of a sample are those behind the access: of a load, what was loaded.
func TestRegistersAreAfter(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: TestSamplesAgainstTruth runs the same code")
	}
	exe := build(t, "accesses", "-no-pie")
	r := record(t, Options{Entry: true, Period: 1}, exe)
	s, err := sample.Open(r.dir)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	sym := symbols(t, exe)
	found := 0
	for _, th := range s.Threads {
		for _, sm := range th.Samples {
			switch sm.IP {
			case sym["at_load"]:
				found++
				if !slices.Contains(sm.Regs[:16], 0x1122334455667788) {
					t.Errorf("no register has what was loaded: %x", sm.Regs)
				}
			case sym["at_movs"]:
				found++
				if sm.Regs[1] != 0 || sm.Regs[7] != sym["a"]+100 {
					t.Errorf("rcx %#x rdi %#x behind rep movsb", sm.Regs[1], sm.Regs[7])
				}
			}
		}
	}
	if found != 3 {
		t.Errorf("%d samples, want 3", found)
	}
}

// perf's own report reads the file, and finds both events.
func TestPerfReport(t *testing.T) {
	r := record(t, Options{Entry: true}, "sort", text(t, 50))
	out, err := exec.Command("perf", "report", "-f", "-i", filepath.Join(r.dir, sample.PerfFile), "--stdio", "--no-itrace", "--sort", "dso,sym").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{"mem_inst_retired.all_loads", "mem_inst_retired.all_stores", "libc.so.6"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
}

// A program that leaves a child behind is over when it ends; Close lets the child go, which runs on to its end. Once it was let go before it had met the SIGSTOP by which
// Close wakes the tracer, and stayed stopped for good.
func TestCloseLetsGo(t *testing.T) {
	dir := t.TempDir()
	st, err := New(Options{Dir: dir, Period: 10, Follow: true})
	if err != nil {
		t.Fatal(err)
	}
	fifo := filepath.Join(dir, "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	done := filepath.Join(dir, "done")
	prog, err := agent.Resolve([]string{"/bin/sh", "-c", "(read x <" + fifo + "; echo $x >" + done + ") & exit 4"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := agent.StartHeld(prog, []string{"PATH=/usr/bin:/bin"}, st.Attach); err != nil {
		t.Fatal(err)
	}
	ws, err := st.Wait()
	if err != nil || ws.ExitStatus() != 4 {
		t.Fatalf("%#x, %v", ws, err)
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	w, err := os.OpenFile(fifo, os.O_WRONLY, 0) // it waits for the reader
	if err != nil {
		t.Fatal(err)
	}
	r, err := os.OpenFile(fifo, os.O_RDONLY|unix.O_NONBLOCK, 0) // to see when the reader is through
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	fmt.Fprintln(w, "on")
	w.Close()
	for {
		if b, _ := os.ReadFile(done); string(b) == "on\n" {
			break
		}
		unix.Poll(nil, 1)
	}
	info, err := sample.ReadInfo(dir)
	if err != nil || !info.LetGo || !info.Complete {
		t.Errorf("%+v, %v", info, err)
	}
}

// What cannot be started is not, and nothing hangs.
func TestNothingAttached(t *testing.T) {
	st, err := New(Options{Dir: t.TempDir(), Period: 10})
	if err != nil {
		t.Fatal(err)
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := New(Options{Dir: filepath.Join(t.TempDir(), "none"), Period: 10}); err == nil || !strings.Contains(err.Error(), "none") {
		t.Errorf("no directory: %v", err)
	}
	if _, err := New(Options{Dir: t.TempDir()}); err == nil {
		t.Error("a period of 0 is taken")
	}
	st, err = New(Options{Dir: t.TempDir(), Period: 10})
	if err != nil {
		t.Fatal(err)
	}
	bad := filepath.Join(t.TempDir(), "bad")
	if err := os.WriteFile(bad, []byte("\x7fELF nonsense"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := agent.StartHeld(&agent.Program{Path: bad, Args: []string{bad}}, nil, st.Attach); err == nil {
		t.Error("nonsense was executed")
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
}
