package step

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/ripstop/ripstop/internal/pt"
	"github.com/ripstop/ripstop/internal/sample"
)

// text is what the programs of the tests work on.
func text(t testing.TB, lines int) string {
	t.Helper()
	var b []byte
	for i := range lines {
		b = fmt.Appendf(b, "%d\n", i*i%977)
	}
	name := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(name, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// perfInstructions gives what perf decodes of the control flow, by thread.
func perfInstructions(t testing.TB, dir string) map[owner][]uint64 {
	t.Helper()
	cmd := exec.Command("perf", "script", "-f", "-i", filepath.Join(dir, sample.PerfFile), "--itrace=i1ie", "-F", "event,pid,tid,ip")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("perf: %v\n%s", err, &stderr)
	}
	all := map[owner][]uint64{}
	for _, line := range strings.Split(string(out), "\n") {
		f := strings.Fields(line)
		if len(f) == 0 || strings.HasPrefix(f[1], "mem_inst_retired") {
			continue
		}
		if len(f) != 3 || f[1] != "instructions:u:" {
			t.Fatalf("perf says %q", line)
		}
		pid, tid, _ := strings.Cut(f[0], "/")
		p, err1 := strconv.ParseUint(pid, 10, 32)
		n, err2 := strconv.ParseUint(tid, 10, 32)
		ip, err3 := strconv.ParseUint(f[2], 16, 64)
		if err := errors.Join(err1, err2, err3); err != nil {
			t.Fatal(err)
		}
		o := owner{uint32(p), uint32(n)}
		all[o] = append(all[o], ip)
	}
	return all
}

// ours gives what our own decoder makes of it, with the code as package sample finds it.
func ours(t testing.TB, dir string) map[owner][]uint64 {
	t.Helper()
	r, err := sample.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if len(r.Damage) > 0 {
		t.Fatal(r.Damage)
	}
	all := map[owner][]uint64{}
	for _, th := range r.Threads {
		trace, err := r.Trace(th)
		if err != nil {
			t.Fatal(err)
		}
		epochs := r.Epochs(th.PID)
		caches := make([]*pt.Cache, len(epochs))
		images := make([]*sample.Image, len(epochs))
		for i := range epochs {
			var why []error
			if images[i], why = r.Image(&epochs[i]); len(why) > 0 {
				t.Fatal(why)
			}
			caches[i] = pt.NewCache(images[i])
		}
		o := owner{uint32(th.PID), uint32(th.TID)}
		for _, seg := range pt.Segments(trace, 1) {
			// The epoch of the segment's first time; the tests' programs exec, and map nothing over code.
			q := pt.NewQuery(trace[seg.Start:seg.End], seg.Start, r.Timing)
			var e pt.Event
			now := uint64(0)
			for q.Next(&e) == nil {
				if e.HasTime {
					now = e.Time
					break
				}
			}
			n := 0
			for n+1 < len(epochs) && epochs[n+1].From <= now {
				n++
			}
			f := pt.NewFlow(trace, seg, pt.Config{Timing: r.Timing}, caches[n])
			for err = nil; err == nil; {
				var buf [64]pt.Step
				var k int
				k, err = f.Read(buf[:])
				for _, s := range buf[:k] {
					if s.Kind != pt.StepRun {
						continue
					}
					p := process{changes: false, insts: map[uint64]*instruction{}, pages: map[uint64][]byte{}, mem: imageReader{images[n]}}
					for ip := s.From; ip < s.To; {
						all[o] = append(all[o], ip)
						in := p.at(ip)
						if in == nil {
							t.Fatalf("no code at %#x", ip)
						}
						ip += uint64(in.Len)
					}
				}
			}
			if err != io.EOF {
				t.Fatalf("thread %d: %v", th.TID, err)
			}
		}
	}
	return all
}

type imageReader struct{ *sample.Image }

func (r imageReader) ReadAt(p []byte, off int64) (n int, err error) {
	if n = copy(p, r.Code(uint64(off))); n < len(p) {
		clear(p[n:])
	}
	return len(p), nil
}

// same compares lists of instructions.
func same(t testing.TB, what string, got, want map[owner][]uint64) {
	t.Helper()
	total := 0
	for o, w := range want {
		g := got[o]
		for i := range w {
			if i >= len(g) || g[i] != w[i] {
				t.Errorf("%s: thread %d/%d: instruction %d of %d is %#x, want %#x (%d are there)", what, o.pid, o.tid, i, len(w), append(g, 0)[min(i, len(g))], w[i], len(g))
				break
			}
		}
		if len(g) > len(w) {
			t.Errorf("%s: thread %d/%d: %d instructions too many, from %#x on", what, o.pid, o.tid, len(g)-len(w), g[len(w)])
		}
		total += len(w)
		delete(got, o)
	}
	for o := range got {
		t.Errorf("%s: thread %d/%d did not run", what, o.pid, o.tid)
	}
	t.Logf("%s: %d instructions of %d threads agree", what, total, len(want))
}

// What perf decodes, and what we do, is what ran: all of it, in the program's own file or everywhere, with signals, children, threads and exec.
func TestControlFlowAgainstPerf(t *testing.T) {
	file := text(t, 100)
	for _, c := range []struct {
		name   string
		filter []string
		limit  uint64
		argv   []string
	}{
		{"gzip", nil, 0, []string{"gzip", "-c", file}},
		{"sort", nil, 0, []string{"sort", file}},
		{"python3", nil, 60_000, []string{"/usr/bin/python3", "-c", "print(1)"}},
		{"manners", nil, 0, []string{build(t, "manners")}},
		{"sort's own code", []string{FilterMain}, 0, []string{"sort", file}},
		{"libc alone", []string{"libc.so.6"}, 0, []string{"sort", file}},
	} {
		if testing.Short() && c.name != "manners" { // which has threads: under the race detector it is the one that counts
			continue
		}
		if os.Getenv("RIPSTOP_SOAK") == "" && (c.name == "sort" || c.name == "gzip" || c.name == "libc alone") { // sort's own code is below, by itself, and python3 has libc's
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			r := record(t, Options{Entry: true, Filter: c.filter, Limit: c.limit, Seed: 7}, c.argv...)
			argv := slices.Clone(c.argv)
			if !strings.Contains(argv[0], "/") {
				argv[0] = "/usr/bin/" + argv[0]
			}
			if out, ws := natively(t, argv...); out != r.output || ws.ExitStatus() != r.ws.ExitStatus() || !r.ws.Exited() {
				t.Fatalf("stepped: %#x, %q; natively: %#x, %q", r.ws, r.output, ws, out)
			}
			if (c.limit != 0) != r.info.LetGo {
				t.Errorf("let go: %t", r.info.LetGo)
			}
			want := r.ran()
			if c.filter != nil {
				want = r.filtered(t, c.filter[0])
			}
			same(t, "ours", ours(t, r.dir), want)
			same(t, "perf", perfInstructions(t, r.dir), want)
		})
	}
}

// filtered gives what ran in the file of a name, or in the program's own.
func (r *recording) filtered(t testing.TB, name string) map[owner][]uint64 {
	t.Helper()
	s, err := sample.Open(r.dir)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	all, execs := r.ran(), 0
	for o, list := range all {
		epochs := s.Epochs(int32(o.pid))
		execs = max(execs, len(epochs))
		inside := func(ip uint64) bool {
			for _, e := range epochs {
				for _, m := range e.Mappings {
					base := filepath.Base(m.Path)
					if m.Start <= ip && ip < m.End && (base == name || name == FilterMain && (base == "sort" || base == "dash")) {
						return true
					}
				}
			}
			return false
		}
		all[o] = slices.DeleteFunc(list, func(ip uint64) bool { return !inside(ip) })
	}
	return all
}
