package sample

import (
	"bytes"
	"os"
	"reflect"
	"runtime"
	"slices"
	"testing"

	"github.com/ripstop/ripstop/internal/perf"
)

// Samples that wait in files are those that wait in memory, with their stacks, each thread's in the order of time.
func TestSpool(t *testing.T) {
	dir := t.TempDir()
	recorded(t, dir)
	held, stacks := maxHeld, maxStacks
	defer func() { maxHeld, maxStacks = held, stacks }()
	var want [][]Sample
	var wantStack []byte
	for _, n := range []int{held, 1, 2, 3} {
		maxHeld, maxStacks = n, n
		r, err := Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		var got [][]Sample
		var stack []byte
		for _, th := range r.Threads {
			got = append(got, slices.Clone(th.Samples))
			for i := range th.Samples {
				b, err := r.Stack(&th.Samples[i])
				if err != nil {
					t.Fatal(err)
				}
				stack = append(stack, b...)
			}
		}
		if (len(r.maps) > 0) != (n < held) {
			t.Errorf("%d samples in memory: %d mappings", n, len(r.maps))
		}
		if want == nil {
			want, wantStack = got, stack
		}
		if !reflect.DeepEqual(got, want) || !bytes.Equal(stack, wantStack) || len(stack) != 12 {
			t.Errorf("%d samples in memory: %v and %x, want %v and %x", n, got, stack, want, wantStack)
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// Memory does not grow with the number of samples: half a million (with RIPSTOP_SOAK=1 twenty million) take no more of the heap than what is stated.
func TestSamplesBound(t *testing.T) {
	n := uint64(500_000)
	if os.Getenv("RIPSTOP_SOAK") == "1" {
		n = 20_000_000
	}
	dir := t.TempDir()
	w, err := Create(dir, WriterOptions{Events: testEvents(), PMUs: []perf.PMU{{Type: 8, Name: "intel_pt"}}, Clock: ClockOf(hz), PT: 0, Timing: testTiming, Command: []string{"prog"}})
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		s := Sample{TSC: 1_000_000_000 + i*3000, IP: 0x1000 + i, Addr: i}
		if err := w.Sample(1+int(i%2), 10, int32(10+i%3), &s); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := WriteInfo(dir, Info{Mode: Step, Hz: hz, Complete: true}); err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	r, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	runtime.ReadMemStats(&after)
	const bound = 100 << 20                                     // half a million samples alone would take that
	if grown := after.HeapSys - before.HeapSys; grown > bound { // the peak: what was had is kept
		t.Errorf("reading took %d bytes of heap", grown)
	} else {
		t.Logf("%d samples, %d bytes of heap", n, grown)
	}
	seen := uint64(0)
	for k, th := range r.Threads {
		for i, s := range th.Samples {
			if want := uint64(3*i + k); s.IP != 0x1000+want || s.Addr != want || s.Kind != []EventKind{LoadEvent, StoreEvent}[want%2] {
				t.Fatalf("thread %d, sample %d: %+v", k, i, s)
			}
			seen++
		}
	}
	if seen != n {
		t.Errorf("%d samples of %d", seen, n)
	}
}
