package recover

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ripstop/ripstop/internal/agent"
	"github.com/ripstop/ripstop/internal/pt"
	"github.com/ripstop/ripstop/internal/sample"
	"github.com/ripstop/ripstop/internal/step"
	"github.com/ripstop/ripstop/internal/truth"
)

var soak = os.Getenv("RIPSTOP_SOAK") == "1"

// build compiles a program of testdata.
func build(t testing.TB, name string, args ...string) string {
	t.Helper()
	exe := filepath.Join(t.TempDir(), name)
	args = append([]string{"-O2", "-g", "-pthread", "-Wall", "-Wextra", "-o", exe, "testdata/" + name + ".c"}, args...)
	if out, err := exec.Command("gcc", args...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return exe
}

// record steps a program, from the shell that executes it on (without the shell's loader), and leaves the recording in a directory.
func record(t testing.TB, period uint64, argv ...string) string {
	t.Helper()
	return recordBy(t, step.Options{Entry: true, Period: period}, argv...)
}

// recordBy is record with options of step's.
func recordBy(t testing.TB, o step.Options, argv ...string) string {
	t.Helper()
	dir := t.TempDir()
	o.Dir, o.Seed, o.Follow, o.Command, o.Warn = dir, o.Period, true, argv, func(s string) { t.Logf("warned: %s", s) }
	s, err := step.New(o)
	if err != nil {
		t.Fatal(err)
	}
	prog, err := agent.Resolve(append([]string{"/bin/sh", "-c", `exec "$@" >"$0"`, filepath.Join(dir, "output")}, argv...), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err = agent.StartHeld(prog, []string{"PATH=/usr/bin:/bin", "LC_ALL=C"}, s.Attach); err != nil {
		t.Fatal(err)
	}
	for {
		ws, err := s.Wait()
		if err != nil {
			t.Fatal(err)
		}
		if !ws.Stopped() {
			if ws.ExitStatus() != 0 {
				t.Errorf("%v ended with %#x", argv, int(ws))
			}
			break
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if i, err := sample.ReadInfo(dir); err != nil || !i.Complete {
		t.Fatalf("%+v, %v", i, err)
	}
	return dir
}

// A doing is what a thread really did, an instruction an element.
type doing struct {
	ips       []uint64
	accesses  [][]truth.Access
	low, high uint64 // of the implicit accesses to the stack
}

type owner struct{ pid, tid uint32 }

// did reads the truth. Of a repeated instruction that a signal interrupts the trace tells only the end.
func did(t testing.TB, dir string) map[owner]*doing {
	t.Helper()
	f, err := os.Open(filepath.Join(dir, sample.TruthFile))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	in, err := truth.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	all := map[owner]*doing{}
	var s truth.Step
	for {
		if err := in.Next(&s); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		o := owner{s.PID, s.TID}
		d := all[o]
		if d == nil {
			d = &doing{low: ^uint64(0)}
			all[o] = d
		}
		switch n := len(d.ips); {
		case s.Kind == truth.Ran:
			d.ips = append(d.ips, s.IP)
			d.accesses = append(d.accesses, append([]truth.Access(nil), s.Accesses...))
			for _, a := range s.Accesses {
				if a.Flags&truth.Stack != 0 {
					d.low, d.high = min(d.low, a.Addr), max(d.high, a.Addr+a.Size)
				}
			}
		case s.Kind == truth.Handler && n > 0 && d.ips[n-1] == s.IP:
			d.ips, d.accesses = d.ips[:n-1], d.accesses[:n-1]
		}
	}
}

// A share is how many of the accesses that are not to the stack were recovered.
type share struct {
	all, got int
	by       [hows]int
	wrong    int
	counts   Counts
}

func (s share) percent() float64 { return 100 * float64(s.got) / float64(max(s.all, 1)) }

func (s share) String() string {
	return fmt.Sprintf("%d of %d (%.1f%%; %v) %d wrong; %+v", s.got, s.all, s.percent(), s.by, s.wrong, s.counts)
}

// onStack says whether an access is to its thread's stack: between the lowest and the highest address that the thread pushed to, and a frame around them.
func (d *doing) onStack(a uint64) bool {
	const frame = 16 << 10
	return d.low < d.high && a >= d.low-frame && a < d.high+frame
}

// align gives for each instruction of a path which of those that ran it is; nil if it is not of them. Between gaps the path must be a part of what ran. Where a part may lie at
// several places, the first one is taken, but for the last part, behind which the trace lacks no more than what comes after its last packet.
func (d *doing) align(path []uint64, gaps []int) []int {
	at := make([]int, 0, len(path))
	bounds := []int{0}
	for _, g := range gaps {
		if g > 0 && g < len(path) {
			bounds = append(bounds, g)
		}
	}
	bounds = append(bounds, len(path))
	next := 0
	for i, from := range bounds[:len(bounds)-1] {
		part := path[from:bounds[i+1]]
		step, end := 1, len(d.ips)-len(part)
		if last := i > 0 && i+2 == len(bounds); last {
			step, next, end = -1, end, next
		}
		for ; ; next += step {
			if next < 0 || next+len(part) > len(d.ips) {
				return nil
			}
			if slices.Equal(part, d.ips[next:next+len(part)]) {
				break
			}
			if next == end || i == 0 {
				return nil
			}
		}
		for k := range part {
			at = append(at, next+k)
		}
		next += len(part)
	}
	return at
}

// open opens a recording and keeps of its samples each thin-th of loads and of stores, as if the period had been so much longer.
func open(t testing.TB, dir string, thin int) *sample.Recording {
	t.Helper()
	rec, err := sample.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { rec.Close() })
	if len(rec.Damage) > 0 {
		t.Fatal(rec.Damage)
	}
	for i, th := range rec.Threads {
		n := [8]int{}
		for k := range n {
			n[k] = (i*7 + k*3) * 37 % thin
		}
		th.Samples = slices.DeleteFunc(th.Samples, func(s sample.Sample) bool {
			n[s.Kind]++
			return n[s.Kind]%thin != 0
		})
	}
	return rec
}

// against recovers a recording and holds every access against the truth.
func against(t testing.TB, rec *sample.Recording, in *Input, all map[owner]*doing, o Options) share {
	t.Helper()
	var sh share
	paths := make([][]uint64, len(rec.Threads))
	gaps := make([][]int, len(rec.Threads))
	found := make([][]Access, len(rec.Threads))
	o.Path = true
	var err error
	sh.counts, err = Run(context.Background(), in.Images, in.Shards, o, 2, func(r *Result) error {
		n := r.Shard.Thread
		for _, g := range r.Gaps {
			gaps[n] = append(gaps[n], len(paths[n])+int(g))
		}
		paths[n] = append(paths[n], r.Path...)
		found[n] = append(found[n], r.Accesses...)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	told := 0
	for i, th := range rec.Threads {
		d := all[owner{uint32(th.PID), uint32(th.TID)}]
		if d == nil {
			t.Errorf("thread %d did nothing", th.TID)
			continue
		}
		at := d.align(paths[i], gaps[i])
		if at == nil {
			t.Errorf("thread %d: the path of %d instructions, with gaps before %v, is not that of the %d that ran", th.TID, len(paths[i]), gaps[i], len(d.ips))
			continue
		}
		for k := range found[i] {
			a := &found[i][k]
			right := false
			for _, w := range d.accesses[at[a.Index]] {
				flags := Flags(w.Flags &^ truth.AtMost)
				right = right || w.Addr == a.Addr && w.Size == a.Size && flags == a.Flags
			}
			if !right {
				sh.wrong++
				if told++; told < 20 && o.Memory != Assumed {
					t.Errorf("thread %d, instruction %d at %#x: %+v, is %+v", th.TID, a.Index, a.IP, *a, d.accesses[at[a.Index]])
				}
			}
			if !d.onStack(a.Addr) {
				sh.got++
				sh.by[a.How]++
			}
		}
	}
	for _, d := range all {
		for _, as := range d.accesses {
			for _, a := range as {
				if !d.onStack(a.Addr) {
					sh.all++
				}
			}
		}
	}
	return sh
}

func prepared(t testing.TB, rec *sample.Recording, bytes uint64, segments int) *Input {
	t.Helper()
	in, err := prepare(rec, bytes, segments)
	if err != nil {
		t.Fatal(err)
	}
	return in
}

// Whatever is given is what the program did: with threads that race, with signals and all that the kernel does, at every period, for pieces of every size.
func TestNotOneWrongAddress(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: TestWorkers runs the same goroutines")
	}
	text := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(text, bytes.Repeat([]byte("what is given is right "), 100), 0o600); err != nil {
		t.Fatal(err)
	}
	thins := []int{100, 1}
	if os.Getenv("RIPSTOP_SOAK") != "" {
		thins = []int{1000, 100, 10, 1}
	}
	for _, c := range []struct {
		name string
		argv []string
	}{
		{"gzip", []string{"/usr/bin/gzip", "-c", text}},
		{"races", []string{build(t, "races"), "20"}},
		{"kernel", []string{build(t, "kernel"), "10"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := record(t, 100, c.argv...)
			all := did(t, dir)
			var last share
			for _, thin := range thins {
				rec := open(t, dir, thin)
				in := prepared(t, rec, segmentBytes, shardSegments)
				last = against(t, rec, in, all, Options{})
				t.Logf("period %d: %v", 100*thin, last)
				ran := 0
				for _, d := range all {
					ran += len(d.ips)
				}
				// What is lost is code that no file has, and what comes behind the last packet.
				if last.counts.Misfits+last.counts.Contradicted > 0 || last.counts.Instructions < uint64(ran)*97/100 {
					t.Errorf("period %d: %+v of %d instructions", 100*thin, last.counts, ran)
				}
				if thin > 1 {
					continue
				}
				small := against(t, rec, prepared(t, rec, 2<<10, 2), all, Options{})
				if small.counts.Instructions != last.counts.Instructions || small.got < last.got/2 {
					t.Errorf("in small pieces: %v", small)
				}
				ahead := against(t, rec, in, all, Options{Reach: ForwardOnly})
				block := against(t, rec, in, all, Options{Reach: Block})
				t.Logf("forwards %v\nblock %v", ahead, block)
				if ahead.got >= last.got || block.got >= ahead.got {
					t.Errorf("recovered %d within blocks, %d forwards, %d both ways", block.got, ahead.got, last.got)
				}
			}
		})
	}
}

// The result does not depend on how many goroutines there are, nor on what one recovered before.
func TestWorkers(t *testing.T) {
	rec := open(t, record(t, 100, build(t, "races"), "10"), 1)
	in := prepared(t, rec, 1<<10, 2)
	if len(in.Shards) < 8 { // one more than the most workers
		t.Fatalf("%d shards", len(in.Shards))
	}
	collect := func(workers int) (all []*Result) {
		if _, err := Run(context.Background(), in.Images, in.Shards, Options{Path: true}, workers, func(r *Result) error {
			all = append(all, r)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		return all
	}
	want := collect(1)
	for _, n := range []int{2, 7} {
		if got := collect(n); !reflect.DeepEqual(got, want) {
			t.Errorf("%d workers give another result than one", n)
		}
	}
	one := NewRecoverer(in.Images, Options{Path: true})
	for i := len(in.Shards) - 1; i >= 0; i-- {
		if got := one.Recover(in.Shards[i]); got.Counts != want[i].Counts || !reflect.DeepEqual(got.Path, want[i].Path) {
			t.Errorf("shard %d alone: %+v, together with the others %+v", i, got.Counts, want[i].Counts)
		}
	}
	// Passes leave out what they would find as before, which they can tell at more places or at fewer, and it does not matter where.
	options := []Options{{}, {Memory: Assumed}, {Memory: None}, {Reach: ForwardOnly}}
	if testing.Short() {
		options = options[:1]
	}
	for _, o := range options {
		all, often := NewRecoverer(in.Images, o), NewRecoverer(in.Images, o)
		all.r.every, often.r.every = 1<<40, 1
		for i, s := range in.Shards {
			if a, b := all.Recover(s), often.Recover(s); !reflect.DeepEqual(a, b) {
				t.Errorf("%+v: shard %d, where all passes go over everything %+v, else %+v", o, i, a.Counts, b.Counts)
			}
		}
	}
	stop := errors.New("enough")
	if _, err := Run(context.Background(), in.Images, in.Shards, Options{}, 3, func(*Result) error { return stop }); err != stop {
		t.Errorf("emit's error: %v", err)
	}
}

type bytesAt struct {
	addr uint64
	code []byte
}

func (b bytesAt) Code(addr uint64) []byte {
	if addr-b.addr < uint64(len(b.code)) {
		return b.code[addr-b.addr:]
	}
	return nil
}

// No trace, code or sample makes it panic or run for ever.
func FuzzRecover(f *testing.F) {
	const base = 0x401000
	const library = 11 // where the second program's library begins: a function and its return
	for _, p := range []struct {
		code []byte
		ran  []uint64
	}{
		{[]byte{0x48, 0x8b, 0x04, 0xf7, 0x48, 0xff, 0xc6, 0x50, 0x58, 0xe8, 0, 0, 0, 0, 0xf3, 0xa4, 0x75, 0xee, 0x0f, 0x05, 0xc3}, []uint64{0, 4, 7, 8, 9, 14, 16}},
		{[]byte{0xe8, 0x06, 0, 0, 0, 0x48, 0x8b, 0x04, 0xf7, 0xeb, 0xf5, 0xf3, 0xa4, 0xc3}, []uint64{0, library, 13, 5, 9}},
	} {
		enc, err := pt.NewFlowEncoder(bytesAt{base, p.code}, pt.EncoderOptions{TSC: true})
		if err != nil {
			f.Fatal(err)
		}
		for i := range 20 {
			enc.Tick(uint64(1000 * i))
			for _, off := range p.ran {
				if err := enc.Execute(base + off); err != nil {
					f.Fatal(err)
				}
			}
		}
		enc.Flush()
		f.Add(enc.Bytes(), p.code, uint64(5000), uint64(0), uint64(77))
	}
	f.Add([]byte{}, []byte{}, uint64(0), uint64(0), uint64(0))
	f.Fuzz(func(t *testing.T, trace, code []byte, tsc, off, reg uint64) {
		if len(trace) > 1<<12 {
			return
		}
		s := sample.Sample{TSC: tsc, Kind: sample.LoadEvent, IP: base + off, Addr: reg, Has: 1<<18 - 1}
		for i := range s.Regs {
			s.Regs[i] = reg * uint64(i)
		}
		sh := &Shard{Trace: trace, Segments: pt.Segments(trace, 1), End: forever, OwnEnd: forever, Samples: []sample.Sample{s}, Alone: []Range{{0, forever}}}
		sh.Behind = len(sh.Segments)
		NewRecoverer([]Image{{Image: bytesAt{base, code}}}, Options{}).Recover(sh)
		sh.Filtered = reg&1 != 0
		functions := map[uint64]*Function{}
		for i, f := range []*Function{&copies, &text, &compares} {
			functions[base+library+uint64(i)] = f
		}
		NewRecoverer([]Image{{Image: bytesAt{base, code}, Outside: []Range{{base + library, base + 64}}, Functions: functions}}, Options{}).Recover(sh)
	})
}

// Instructions a second of one processor's time, with all that recovery is: decoding the trace, placing samples, both directions to the fixed point.
func BenchmarkRecover(b *testing.B) {
	rec := open(b, record(b, 1000, "/usr/bin/sqlite3", ":memory:", "create table t(a,b); insert into t values(1,2),(3,4); select sum(a*b) from t group by b;"), 1)
	in, err := Prepare(rec)
	if err != nil {
		b.Fatal(err)
	}
	spent := func() float64 {
		var u unix.Rusage
		if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
			b.Fatal(err)
		}
		return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
	}
	v := NewRecoverer(in.Images, Options{})
	n := uint64(0)
	b.ReportAllocs()
	b.ResetTimer()
	from := spent()
	for range b.N {
		for _, s := range in.Shards {
			n += v.Recover(s).Counts.Instructions
		}
	}
	b.ReportMetric(float64(n)/(spent()-from), "instructions/cpu-s")
}
