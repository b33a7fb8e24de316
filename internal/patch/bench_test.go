package patch

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A nops is a recipe without meaning that costs nothing to make, as the planner is measured and not the recipes.
type nops int

var nopStates = []State{{Resume: Restart}}

func (n nops) Size() int      { return int(n) }
func (n nops) Replaces() bool { return false }

func (n nops) Append(dst []byte, _ uint64) ([]byte, []State, error) {
	for range n {
		dst = append(dst, 0x90)
	}
	return dst, nopStates, nil
}

// cpu is the CPU time of this process so far, garbage collection included.
func cpu() time.Duration {
	var r unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &r); err != nil {
		panic(err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

func liveHeap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// What planning costs: all memory instructions of a module at once, each with a recipe of eight bytes. Time is CPU time; memory is what the planner has when the
// transaction is committed, the text's copies included.
func BenchmarkPlan(b *testing.B) {
	const lib = "/usr/lib/x86_64-linux-gnu/"
	one := func(pattern string) string {
		if list, _ := filepath.Glob(pattern); len(list) > 0 {
			return list[0]
		}
		return pattern
	}
	for _, c := range []struct {
		name, file string
		base, gap  uint64 // not PIE: all space is above, behind a gap for brk and cells
	}{
		{"libc", libcFile, 0x7f1234500000, 0},
		{"libx264", one(lib + "libx264.so.*"), 0x7f1234500000, 0},
		{"libcrypto", lib + "libcrypto.so.3", 0x7f1234500000, 0},
		{"mariadbd", "/usr/sbin/mariadbd", 0x555555554000, 0},
		{"python3", pythonFile, 0, 16 << 20},
		{"python3-cells", pythonFile, 0, 64 << 20},
		{"python3-brk", pythonFile, 0, 272 << 20}, // brk begins at once, as before Linux 6.9
		{"cc1-cells", one("/usr/lib/gcc/x86_64-linux-gnu/*/cc1"), 0, 64 << 20},
		{"cc1-brk", one("/usr/lib/gcc/x86_64-linux-gnu/*/cc1"), 0, 272 << 20},
	} {
		b.Run(c.name, func(b *testing.B) {
			if _, err := os.Stat(c.file); err != nil {
				b.Fatal(err)
			}
			text := load(b, c.file, c.base)
			free := around(text)
			if c.base == 0 {
				free = []Range{{text.end() + c.gap, 1 << 31}}
			}
			var at []uint64
			p := NewPlanner(text, NewSpace(nil))
			for a := text.Next(text.at, text.end()); a < text.end(); a = text.Next(a+1, text.end()) {
				if in, _, _ := text.inst(a); touches(in) && p.Check(a) == nil {
					at = append(at, a)
				}
			}
			start, code, lens, targets, loops := text.at, text.orig, text.lens, text.targets, text.loops
			text, p = nil, nil
			var spent time.Duration
			var kept uint64
			var tiers [Tiers]int
			displaced, pages, frames, bytes, areas := 0, 0, 0, 0, 0
			for range b.N {
				before := liveHeap()
				began := cpu()
				t := NewText(start, code)
				copy(t.lens, lens)
				copy(t.targets, targets)
				copy(t.loops, loops)
				t.Complete()
				p := NewPlanner(t, NewSpace(free))
				p.space.Expect(Expected{start, uint64(len(at)) * 28})
				add := make([]Site, len(at))
				for i, a := range at {
					add[i] = Site{a, nops(8)}
				}
				for len(add) > 0 { // in pieces from behind, as the engine does
					from := max(0, len(add)-1<<15)
					tx, err := p.Plan(add[from:], nil)
					if err != nil {
						b.Fatal(err)
					}
					p.space.Frames()
					p.space.Shown()
					tx.Steps()
					for _, x := range tx.Old {
						bytes -= x.Trampoline.Len()
					}
					for _, x := range tx.New {
						bytes += len(x.Trampoline.Code)
					}
					p.Commit(tx)
					add = add[:from]
				}
				p.Patches(func(x *Patch) {
					if x.For == 0 {
						tiers[x.Tier]++
					} else {
						displaced++
					}
				})
				areas = p.space.Areas()
				spent += cpu() - began
				kept = liveHeap() - before
				pages, frames = p.space.InUse(), p.space.FrameCount()
				runtime.KeepAlive(p)
			}
			n := float64(len(at))
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(float64(spent.Nanoseconds())/float64(b.N)/n/1e3, "µs/site")
			b.ReportMetric(float64(kept)/n, "bytes/site")
			var list []string
			for tier, k := range tiers {
				list = append(list, fmt.Sprintf("%v %.3f%%", Tier(tier), 100*float64(k)/float64(b.N)/n))
			}
			b.Logf("%d sites of %d bytes: %s; %d displaced; %d bytes of trampolines a site in %d pages, %d frames (%.0f bytes a site), %d areas", len(at), len(code), strings.Join(list, ", "),
				displaced/b.N, bytes/b.N/len(at), pages, frames, float64(frames*PageSize)/n, areas)
		})
	}
}

// What a transaction of one site costs, of libc's in no order.
func BenchmarkChange(b *testing.B) {
	text := load(b, libcFile, 0x7f1234500000)
	var at []uint64
	p := NewPlanner(text, NewSpace(around(text)))
	for a := text.Next(text.at, text.end()); a < text.end(); a = text.Next(a+1, text.end()) {
		if in, _, _ := text.inst(a); touches(in) && p.Check(a) == nil {
			at = append(at, a)
		}
	}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		tx, err := p.Plan([]Site{{at[i*7919%len(at)], nops(8)}}, nil)
		if err != nil {
			b.Fatal(err)
		}
		p.Commit(tx)
		if i++; i == len(at) {
			b.Fatal("no sites are left")
		}
	}
}
