package engine

import (
	"bytes"
	"cmp"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"unsafe"

	"github.com/ripstop/ripstop/internal/patch"
	"github.com/ripstop/ripstop/internal/wire"
)

func someEntries() (list []indexed) {
	states := []patch.State{
		{For: 0x401000, Resume: patch.Restart},
		{Off: 3, For: 0x401000, Resume: 3, Moves: []patch.Move{{Reg: 4, From: patch.FromSum, N: -8}, {Reg: patch.FlagsAH, From: patch.FromReg}}},
		{Off: 9, For: 0x401004, Resume: patch.Restart},
	}
	return entries([]*patch.Patch{
		{At: 0x401000, Trampoline: patch.Trampoline{At: 0x500100, Code: make([]byte, 20), States: states}},
		{At: 0x401200, Via: 0x401250, Trampoline: patch.Trampoline{At: 0x300100, Code: make([]byte, 11), States: states[:1]}},
		{At: 0x401300, Trampoline: patch.Trampoline{At: 0x700000, Code: make([]byte, 5), States: states[2:]}},
	})
}

// What a run was made of comes back out of it, in order.
func TestRun(t *testing.T) {
	list := someEntries()
	b := encodeRun(slices.Clone(list))
	got, err := decodeRun(nil, b)
	if err != nil || len(got) != 4 {
		t.Fatal(got, err)
	}
	slices.SortFunc(list, func(a, b indexed) int { return int(int64(a.lo - b.lo)) })
	for i := range got {
		if g, w := got[i], list[i]; g.lo != w.lo || g.hi != w.hi || g.n != w.n || !bytes.Equal(g.states, w.states) {
			t.Errorf("entry %d: %+v, want %+v", i, g, w)
		}
	}
	if again := encodeRun(got); !bytes.Equal(again, b) {
		t.Error("made again it is another one")
	}
}

// The jumps inside neighbours lie in the module's text. When it is gone another module may have instructions at their places: a thread interrupted there was sent to what had
// been the jump's site.
func TestUnindex(t *testing.T) {
	mem, err := os.OpenFile("/proc/self/mem", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer mem.Close()
	list := someEntries()
	slices.SortFunc(list, func(a, b indexed) int { return cmp.Compare(a.lo, b.lo) })
	b := encodeRun(list)
	p := &Process{mem: mem, runs: []*run{{at: uint64(uintptr(unsafe.Pointer(&b[0]))), bytes: uint64(len(b)), entries: len(list)}}}
	if err := p.unindex(&text{at: 0x401000, size: 0x1000}); err != nil {
		t.Fatal(err)
	}
	got, err := decodeRun(nil, b)
	if err != nil || len(got) != len(list) {
		t.Fatal(got, err)
	}
	for i, e := range got {
		if inside := e.lo == 0x401250; (e.hi == e.lo) != inside || !inside && e.hi != list[i].hi {
			t.Errorf("%#x-%#x, was %#x-%#x", e.lo, e.hi, list[i].lo, list[i].hi)
		}
	}
}

// Void are the entries that are dead in their run, and those of which a byte lies in a range that goes; all others stay as they are. A run that is long beside what is dead is looked through for ranges only, and then
// the dead are not forgotten.
func TestVoid(t *testing.T) {
	mem, err := os.OpenFile("/proc/self/mem", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer mem.Close()
	for _, far := range []bool{false, true} { // all ranges are
		r := rand.New(rand.NewPCG(1, 2))
		p := &Process{mem: mem, dead: map[uint64]int{}}
		var runs [][]byte
		var lists [][]indexed
		for i, n := range []int{2*voidPiece/wire.SizeTrampoline + 7, 300, 5000} {
			var list []indexed
			for at := uint64(0x10000); len(list) < n; at += 100 {
				list = append(list, indexed{lo: at + r.Uint64N(50), n: 0})
				e := &list[len(list)-1]
				e.hi = e.lo + 1 + r.Uint64N(50)
				if i > 0 && r.IntN(3) == 0 && p.dead[e.lo] == 0 {
					p.dead[e.lo] = 1 + r.IntN(3)
				}
			}
			b := encodeRun(list)
			runs, lists = append(runs, b), append(lists, list)
			p.runs = append(p.runs, &run{at: uint64(uintptr(unsafe.Pointer(&b[0]))), bytes: uint64(len(b)), lo: list[0].lo, hi: list[n-1].hi, entries: n, in: &arena{}})
		}
		var ranges []patch.Range
		for at := uint64(0x12000); at < 0x10000+100*200000; at += 0x3000 + r.Uint64N(0x3000) {
			ranges = append(ranges, patch.Range{Lo: at, Hi: at + 1 + r.Uint64N(0x1000)})
		}
		if far {
			ranges = []patch.Range{{Lo: 1 << 40, Hi: 1<<40 + 1}}
		}
		dead := maps.Clone(p.dead)
		if err := p.void(ranges); err != nil {
			t.Fatal(err)
		}
		for i, b := range runs {
			got, err := decodeRun(nil, b)
			if err != nil || len(got) != len(lists[i]) {
				t.Fatal(len(got), err)
			}
			void, seen := 0, len(lists[i]) <= voidFor*len(dead)
			if !far && !seen && i > 0 || far && i == 0 && seen {
				t.Fatalf("run %d of %d, %d dead", i, len(lists[i]), len(dead))
			}
			for k, e := range got {
				want := lists[i][k]
				if len(intersect([]patch.Range{{Lo: want.lo, Hi: want.hi}}, ranges)) > 0 || (seen || !far) && dead[want.lo] > i {
					want.hi = want.lo
					void++
				}
				if e.lo != want.lo || e.hi != want.hi {
					t.Fatalf("run %d: %#x-%#x in place of %#x-%#x", i, e.lo, e.hi, want.lo, want.hi)
				}
			}
			if p.runs[i].void != void || void == 0 && !far {
				t.Errorf("run %d: %d void, not %d", i, p.runs[i].void, void)
			}
		}
		if far && len(p.dead) != len(dead) || !far && len(p.dead) != 0 {
			t.Errorf("%d of %d dead are remembered", len(p.dead), len(dead))
		}
	}
}

// Entries come out in order, however many runs they are of: a third of the time of ripstop at the start of node went into sorting them whole.
func TestInOrder(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 2000 {
		var all []indexed
		for range r.IntN(9) {
			at := r.Uint64N(50)
			for range r.IntN(12) {
				at += r.Uint64N(8)
				all = append(all, indexed{lo: at})
			}
		}
		got := inOrder(all)
		want := make([]place, len(all))
		for i, e := range all {
			want[i] = place{e.lo, i}
		}
		slices.SortStableFunc(want, func(a, b place) int { return cmp.Compare(a.lo, b.lo) })
		if !slices.Equal(got, want) {
			t.Fatalf("%v, want %v", got, want)
		}
	}
}

// A process may have written anything to its index.
func FuzzRun(f *testing.F) {
	b := encodeRun(someEntries())
	f.Add(b)
	f.Add(b[:40])
	f.Fuzz(func(t *testing.T, b []byte) {
		list, err := decodeRun(nil, b)
		if err != nil || len(list) == 0 {
			return
		}
		if again, err := decodeRun(nil, encodeRun(list)); err != nil || len(again) != len(list) {
			t.Errorf("%d entries, then %d: %v", len(list), len(again), err)
		}
	})
}

// Runs of one entry come one by one: each entry is copied a few times, not each time that the table is full; and what a merge reads is bounded where runs are long.
func TestMergeFrom(t *testing.T) {
	for bytes, n := range map[uint64]int{100: 20000, 3 << 20: 400} {
		var runs []*run
		var copied, all uint64
		for range n {
			all += bytes
			if len(runs) < wire.PatchRuns {
				runs = append(runs, &run{bytes: bytes})
				continue
			}
			from := mergeFrom(runs)
			if from > len(runs)-2 {
				t.Fatalf("nothing is merged from %d on", from)
			}
			sum := bytes
			for _, r := range runs[from:] {
				sum += r.bytes
			}
			if bytes == 3<<20 && len(runs) == wire.PatchRuns && from == 0 {
				t.Fatal("all are merged at once")
			}
			copied += sum
			runs = append(runs[:from], &run{bytes: sum})
		}
		if copied > 12*all {
			t.Errorf("runs of %d bytes: each was copied %.1f times", bytes, float64(copied)/float64(all))
		}
		t.Logf("runs of %d bytes: each was copied %.1f times, %d are left", bytes, float64(copied)/float64(all), len(runs))
	}
}

// All runs are merged when most of what they have is void, and not otherwise: the index of a program whose sites change all the time grew by each change.
func TestCompact(t *testing.T) {
	for _, c := range []struct {
		dead, entries int
		bytes         uint64
		want          bool
	}{{1600, 3000, 1 << 20, true}, {1400, 3000, 1 << 20, false}, {900, 1000, 1 << 20, false}, {1600, 3000, mergeMost, false}, {1600, 0, 0, false}} {
		p := &Process{dead: map[uint64]int{}}
		for i := range c.dead {
			p.dead[uint64(i)] = 1
		}
		if c.entries > 0 {
			p.runs = []*run{{entries: c.entries / 3, bytes: c.bytes / 2}, {entries: c.entries - c.entries/3, bytes: c.bytes/2 + 1}}
		}
		if got := p.compact(); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}
