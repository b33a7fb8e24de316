package race

import (
	"math/rand/v2"
	"testing"
)

// accesses are those of two threads that mostly use memory of their own, sometimes common memory under a lock.
func benchItems(n int) []item {
	r := rand.New(rand.NewPCG(7, 8))
	items := parseBench()
	for range n {
		t := uint32(2 + r.IntN(2))
		a := Access{Process: 1, Thread: t, Addr: 0x100000*uint64(t) + 8*r.Uint64N(8192), Size: 8, Kind: Kind(1 + r.IntN(2)), PC: 0x1000 + r.Uint64N(64)}
		if r.IntN(100) == 0 {
			a.Addr, a.Kind = 0x900000+8*r.Uint64N(64), Read|Write|Locked
		}
		items = append(items, item{process: 1, access: a})
	}
	return items
}

func parseBench() []item { return parse(&testing.B{}, twoThreads) }

// One operation is one access, all passes of Run included.
func BenchmarkRun(b *testing.B) {
	items := benchItems(1_000_000)
	in := inputOf(items)
	b.ResetTimer()
	for done := 0; done < b.N; done += len(items) {
		if _, err := Run(in, newPlainWorld, Config{}); err != nil {
			b.Fatal(err)
		}
	}
}

// One operation is one access of the pass that looks for races.
func BenchmarkDetect(b *testing.B) {
	items := benchItems(1_000_000)
	in := inputOf(items)
	atomics, err := Learn(in, newPlainWorld(), nil)
	if err != nil {
		b.Fatal(err)
	}
	b.ResetTimer()
	for done := 0; done < b.N; done += len(items) {
		if err := NewWith(Config{}, newPlainWorld(), atomics).Detect(in); err != nil {
			b.Fatal(err)
		}
	}
}
