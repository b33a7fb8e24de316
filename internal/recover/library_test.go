package recover

import (
	"cmp"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ripstop/ripstop/internal/sample"
	"github.com/ripstop/ripstop/internal/step"
	"github.com/ripstop/ripstop/internal/truth"
)

// outside says that the C library and the loader are not the program's own, as analyze does.
func outside(in *Input) {
	for i := range in.Images {
		x := &in.Images[i]
		x.Outside = nil
		for _, m := range x.Mappings {
			if isCLibrary(m.Path) || strings.HasPrefix(filepath.Base(m.Path), "ld-linux") {
				x.Outside = append(x.Outside, Range{m.Start, m.End})
			}
		}
	}
}

// covers says whether accesses of a kind touch every byte of a range.
func covers(all []truth.Access, kind truth.Flags, addr, size uint64) bool {
	all = slices.DeleteFunc(slices.Clone(all), func(a truth.Access) bool { return a.Flags&kind == 0 })
	slices.SortFunc(all, func(a, b truth.Access) int { return cmp.Compare(a.Addr, b.Addr) })
	next, end := addr, addr+size
	for _, a := range all {
		if a.Addr <= next {
			next = max(next, a.Addr+a.Size)
		}
	}
	return next >= end
}

// inside gives what was done by code in ranges, and which number each had among all.
func (d *doing) inside(ranges []Range) (some *doing, was []int) {
	some = &doing{low: d.low, high: d.high}
	for i, ip := range d.ips {
		if within(ranges, ip) {
			some.ips, some.accesses, was = append(some.ips, ip), append(some.accesses, d.accesses[i]), append(was, i)
		}
	}
	return some, was
}

// libraryAgainst holds what is told of calls of the C library against what the instructions between call and return did. It gives how many accesses were told, by function.
func libraryAgainst(t *testing.T, rec *sample.Recording, all map[owner]*doing, o Options) (told int, counts Counts) {
	t.Helper()
	in := prepared(t, rec, segmentBytes, shardSegments)
	outside(in)
	o.Path = true
	paths := make([][]uint64, len(rec.Threads))
	gaps := make([][]int, len(rec.Threads))
	found := make([][]Access, len(rec.Threads))
	libraries := make([][][]Range, len(rec.Threads)) // of found
	counts, err := Run(context.Background(), in.Images, in.Shards, o, 2, func(r *Result) error {
		n := r.Shard.Thread
		for _, g := range r.Gaps {
			gaps[n] = append(gaps[n], len(paths[n])+int(g))
		}
		paths[n] = append(paths[n], r.Path...)
		for _, a := range r.Accesses {
			if a.Flags&Called != 0 {
				found[n], libraries[n] = append(found[n], a), append(libraries[n], in.Images[r.Shard.Image].Outside)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	var own []Range // the programs' files
	for _, x := range in.Images {
		for _, m := range x.Mappings {
			if !strings.Contains(filepath.Base(m.Path), ".so") && m.Path != "[vdso]" {
				own = append(own, Range{m.Start, m.End})
			}
		}
	}
	for i, th := range rec.Threads {
		d := all[owner{uint32(th.PID), uint32(th.TID)}]
		seen, was := d, []int(nil)
		if len(rec.Info.Filter) > 0 {
			seen, was = d.inside(own)
		}
		at := seen.align(paths[i], gaps[i])
		if at == nil {
			t.Fatalf("thread %d: the path is not what ran", th.TID)
		}
		for n, a := range found[i] {
			from, libs := at[a.Index], libraries[i][n]
			if was != nil {
				from = was[from] + 1 // tracing ends where it goes there
			}
			var did []truth.Access
			for k := from; k < len(d.ips) && within(libs, d.ips[k]); k++ {
				did = append(did, d.accesses[k]...)
			}
			// A write is to what was written and to nothing else but the stack; a read may be of some bytes more.
			exact := true
			for _, w := range did {
				if a.Flags&Write != 0 && w.Flags&truth.Write != 0 && w.Flags&(truth.Stack|truth.AtMost) == 0 && (w.Addr < a.Addr || w.Addr+w.Size > a.Addr+a.Size) {
					exact = false
				}
			}
			if within(libs, a.IP) || !covers(did, truth.Flags(a.Flags&(Read|Write)), a.Addr, a.Size) || !exact {
				t.Errorf("thread %d, called at %#x: %+v, did %+v", th.TID, a.IP, a, did)
			}
			told++
		}
	}
	return told, counts
}

// What the C library copies, sets and compares for the program is told, and all of it is so, at every period.
func TestLibrary(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: TestWorkers runs the same goroutines")
	}
	text := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(text, []byte(strings.Repeat("what is given is right\n", 40)), 0o600); err != nil {
		t.Fatal(err)
	}
	thins := []int{1, 100}
	if os.Getenv("RIPSTOP_SOAK") != "" {
		thins = []int{1, 10, 100, 1000}
	}
	exe := build(t, "copies", "-fno-builtin")
	for _, c := range []struct {
		name   string
		argv   []string
		filter []string
		rate   float64 // of calls told with a sample of each tenth access
	}{
		{"copies", []string{exe}, nil, 0.5}, // 0.66 to 0.7
		{"copies, the library not traced", []string{exe}, []string{step.FilterMain}, 0.05},
		{"sort", []string{"/usr/bin/sort", text}, nil, 0.1}, // 0.18 to 0.27: where its blocks lie and the first period decide
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := recordBy(t, step.Options{Entry: true, Period: 10, Filter: c.filter}, c.argv...)
			all := did(t, dir)
			for _, thin := range thins {
				rec := open(t, dir, thin)
				told, counts := libraryAgainst(t, rec, all, Options{})
				t.Logf("period %d: %d accesses by %d of %d calls", 10*thin, told, counts.Told, counts.Calls)
				if thin == 1 && float64(counts.Told) < c.rate*float64(counts.Calls) || counts.Calls == 0 || counts.Contradicted > 0 || c.filter == nil && counts.Misfits > 0 {
					t.Errorf("period %d: %+v", 10*thin, counts)
				}
				for _, o := range []Options{{Reach: ForwardOnly}, {Memory: None}} {
					libraryAgainst(t, rec, all, o)
				}
				if n, _ := libraryAgainst(t, rec, all, Options{Reach: Block}); n > 0 {
					t.Errorf("%d within blocks", n)
				}
			}
		})
	}
}
