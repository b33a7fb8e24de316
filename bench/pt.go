package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ripstop/ripstop/internal/pt"
	"github.com/ripstop/ripstop/internal/recover"
	"github.com/ripstop/ripstop/internal/sample"
)

// The goals of issue 6: rates of one core, to libipt's or in instructions a second, and how much faster two are.
const (
	goalLibipt   = 1.0
	goalRecovery = 2e6
	goalTwoCores = 1.8
)

// pt measures what is made of traces of control flow: packets and instructions against libipt, both on the same trace and in turn, and recovery of accesses
// with all that it is. The trace is that of a stepped sqlite3. Rates are of CPU time, the best of each round, so that a busy machine changes little.
func (b *bench) pt(ctx context.Context) error {
	if !b.only.MatchString("pt") {
		return nil
	}
	dir := b.stepped
	if dir == "" {
		dir = filepath.Join(b.shared, "stepped")
		cmd := exec.CommandContext(ctx, b.ripstop, "record", "--sample=step", "--period=1000", "--filter=all", "-o", dir, "--", "sqlite3", ":memory:",
			"create table t(a,b); insert into t values(1,2),(3,4); select sum(a*b) from t group by b;")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%v: %w\n%s", cmd, err, out)
		}
	}
	rec, err := sample.Open(dir)
	if err != nil {
		return err
	}
	defer rec.Close()
	oracle := filepath.Join(b.shared, "oracle")
	if out, err := exec.Command("gcc", "-O2", "-o", oracle, "internal/pt/testdata/oracle.c", "-lipt").CombinedOutput(); err != nil {
		return fmt.Errorf("compiling what asks libipt (bench is run where go.mod is; script/deps has libipt-dev): %w\n%s", err, out)
	}
	fmt.Printf("\n%-24s %12s  %s\n", "control flow", "a core", "goal")
	if err := b.decoding(rec, oracle); err != nil {
		return err
	}
	return b.recovery(ctx, rec)
}

// decoding compares packets and instructions with libipt.
func (b *bench) decoding(rec *sample.Recording, oracle string) error {
	t := slices.MaxFunc(rec.Threads, func(a, b *sample.Thread) int { return cmp.Compare(a.TraceBytes, b.TraceBytes) })
	epochs := rec.Epochs(t.PID)
	trace, err := rec.Trace(t)
	if err != nil {
		return err
	}
	image, _ := rec.Image(&epochs[len(epochs)-1])
	lib, err := newLibipt(oracle)
	if err != nil {
		return err
	}
	defer lib.close()
	var pages []byte
	for _, m := range epochs[len(epochs)-1].Mappings {
		for at := m.Start &^ 4095; at < m.End; at += 4096 {
			var page [4096]byte
			copy(page[:], image.Code(at))
			pages = append(binary.LittleEndian.AppendUint64(pages, at), page[:]...)
		}
	}
	if _, _, err := lib.ask('m', pages); err != nil {
		return err
	}
	cache := pt.NewCache(image)
	var steps [256]pt.Step
	for _, c := range []struct {
		name string
		what byte
		ours func() (n int)
	}{
		{"packets", 't', func() (n int) {
			d := pt.NewDecoder(trace, 0)
			var p pt.Packet
			for ; d.Next(&p) == nil; n++ {
			}
			return n
		}},
		{"instructions", 'n', func() (n int) {
			f := pt.NewFlow(trace, pt.Segment{Start: 0, End: uint64(len(trace))}, pt.Config{Timing: rec.Timing}, cache)
			for {
				k, err := f.Read(steps[:])
				for i := range steps[:k] {
					n += int(steps[i].Count)
				}
				if errors.Is(err, io.EOF) {
					return n
				}
			}
		}},
	} {
		ours, theirs := 0.0, 0.0
		for range max(b.rounds, 3) {
			ns, count, err := lib.ask(c.what, trace)
			if err != nil {
				return err
			}
			theirs = max(theirs, float64(count)/float64(ns)*1e9)
			var n int
			spent := cpuTime(unix.RUSAGE_THREAD, func() { n = c.ours() })
			ours = max(ours, float64(n)/spent)
		}
		verdict := "ok"
		if ours < goalLibipt*theirs {
			verdict = "MISSED"
			b.missed++
		}
		fmt.Printf("pt %-21s %9.1f M/s  %.2f× libipt's %.1f, at least %.1f: %s\n", c.name, ours/1e6, ours/theirs, theirs/1e6, goalLibipt, verdict)
	}
	return nil
}

// recovery measures accesses recovered from the whole recording, by one goroutine and by two.
func (b *bench) recovery(ctx context.Context, rec *sample.Recording) error {
	in, err := recover.Prepare(rec)
	if err != nil {
		return err
	}
	var shards []*recover.Shard // as of a longer recording: both have enough to do
	for range 2 {
		shards = append(shards, in.Shards...)
	}
	var rate, wall, cpu [2]float64
	for range max(b.rounds, 3) {
		for i := range 2 {
			var n recover.Counts
			begin := time.Now()
			spent := cpuTime(unix.RUSAGE_SELF, func() {
				n, err = recover.Run(ctx, in.Images, shards, recover.Options{}, i+1, func(*recover.Result) error { return nil })
			})
			if err != nil {
				return err
			}
			rate[i] = max(rate[i], float64(n.Instructions)/spent)
			w := float64(n.Instructions) / time.Since(begin).Seconds()
			wall[i], cpu[i] = max(wall[i], w), rate[i]
		}
	}
	verdict := "ok"
	if rate[0] < goalRecovery {
		verdict = "MISSED"
		b.missed++
	}
	fmt.Printf("pt %-21s %9.2f M/s  instructions, at least %.1f: %s\n", "recovery", rate[0]/1e6, goalRecovery/1e6, verdict)
	if verdict = "ok"; wall[1] < goalTwoCores*wall[0] {
		verdict = "MISSED"
		b.missed++
	}
	fmt.Printf("pt %-21s %9.2f×      at least %.1f: %s (%.2f of the CPU time of one is used as well)\n", "recovery on two cores", wall[1]/wall[0], goalTwoCores, verdict, cpu[1]/cpu[0])
	return nil
}

// cpuTime is the CPU time that f takes, in seconds, of the calling thread or the process.
func cpuTime(who int, f func()) float64 {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	now := func() float64 {
		var u unix.Rusage
		_ = unix.Getrusage(who, &u)
		return float64(u.Utime.Nano()+u.Stime.Nano()) * 1e-9
	}
	begin := now()
	f()
	return now() - begin
}

// libipt is a running internal/pt/testdata/oracle.c.
type libipt struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func newLibipt(path string) (*libipt, error) {
	l := &libipt{cmd: exec.Command(path)}
	l.cmd.Stderr = os.Stderr
	in, err := l.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := l.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	l.in, l.out = in, bufio.NewReader(out)
	return l, l.cmd.Start()
}

// ask sends a request and gives the time and the number of things that the first record of the answer tells.
func (l *libipt) ask(what byte, data []byte) (ns uint64, count uint32, err error) {
	head := binary.LittleEndian.AppendUint32([]byte{what}, uint32(len(data)))
	if _, err := io.Copy(l.in, io.MultiReader(bytes.NewReader(head), bytes.NewReader(data))); err != nil {
		return 0, 0, fmt.Errorf("asking libipt: %w", err)
	}
	var n uint32
	if err := binary.Read(l.out, binary.LittleEndian, &n); err != nil {
		return 0, 0, fmt.Errorf("asking libipt: %w", err)
	}
	for i := range n {
		var r struct {
			_     [20]byte
			Count uint32
			Value uint64
		}
		if err := binary.Read(l.out, binary.LittleEndian, &r); err != nil {
			return 0, 0, fmt.Errorf("asking libipt: %w", err)
		}
		if i == 0 {
			ns, count = r.Value, r.Count
		}
	}
	return ns, count, nil
}

func (l *libipt) close() {
	l.in.Close()
	_ = l.cmd.Wait()
}
