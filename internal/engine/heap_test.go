package engine_test

import (
	"strconv"
	"testing"

	"github.com/ripstop/ripstop/internal/engine"
)

// The kernel begins the heap of a program that is not PIE anywhere within a GiB, and what was left to brk there might be the only addresses that the jumps of many sites reach: in some runs of cc1 five times as many sites had
// int3 as in others. Its heap is moved to where it is in nobody's way, unless somebody counts on its place. Behind large arrays, where it stays, memory that is shared with ripstop lay in its way: brk failed
// after some MiB in one run of ten of a program with 1.7 GB of them.
func TestHeap(t *testing.T) {
	const lo, hi = 3 << 29, 3<<29 + 16<<20
	for _, c := range []struct {
		name  string
		flags []string
		by    []string
		moved bool
	}{
		{name: "low", flags: []string{"-no-pie"}, moved: true},
		{name: "behind large arrays", flags: []string{"-no-pie", "-DLARGE=1700000000"}},
		{name: "below what is shared", flags: []string{"-no-pie", "-DLARGE=1820000000"}, by: []string{"setarch", "-R"}},
		{name: "PIE", flags: []string{"-pie"}},
		{name: "addresses as they are", flags: []string{"-no-pie"}, by: []string{"setarch", "-R"}},
		{name: "limit of data", flags: []string{"-no-pie"}, by: []string{"prlimit", "--data=2000000000"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			argv := append(c.by, compile(t, "heap.c", append(c.flags, "-O1")...))
			want := native(t, "", argv...)
			got, st := patched(t, engine.Options{Client: &everything{everywhere{t: t}}}, "", argv...)
			at, err := strconv.ParseUint(got.stderr, 0, 64)
			if err != nil {
				t.Fatalf("%+v", got)
			}
			if c.by != nil && c.by[0] == "setarch" && got.stderr != want.stderr {
				t.Errorf("natively the heap is at %s, patched at %s", want.stderr, got.stderr)
			}
			if in := at >= lo && at < hi; in != c.moved {
				t.Errorf("the heap is at %#x", at)
			}
			if want.stderr, got.stderr = "", ""; got != want {
				t.Errorf("natively %+v, patched %+v", want, got)
			}
			if st.Sites == 0 {
				t.Error("no sites")
			}
		})
	}
}
