package ctest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ripstop/ripstop/internal/wire"
)

// A stack that the agent knows again, rather than walks, is that of this very call: where other callers come to the same place at the same depth, and
// where frames of changing size lie in between.
func TestStacksAgain(t *testing.T) {
	for _, flags := range []string{"-O0", "-O2 -fomit-frame-pointer", "-O2 -fno-omit-frame-pointer -fno-optimize-sibling-calls"} {
		t.Run(flags, func(t *testing.T) {
			prog := compile(t, "core_again.c", append([]string{"-rdynamic"}, strings.Fields(flags)...)...)
			c := all
			c.StackDepth = 32
			r, l, _ := under(t, c, nil, prog)
			if r.state != "exit status 0" {
				t.Fatalf("%+v", r)
			}
			stacks := map[uint32]string{}
			for _, e := range l.of(wire.TypeStack) {
				s := wire.DecodeStack(e.Words)
				stacks[s.ID] = fmt.Sprintf("%x", s.PCs[1:]) // without mark(), which is elsewhere when it calls backtrace
			}
			lines := strings.Split(strings.TrimSpace(r.stdout), "\n")
			last := map[string]int{}
			seen, i := map[uint64]int{}, 0
			for _, e := range l.of(wire.TypeAcquire) {
				seen[wire.DecodeAcquire(e.Words).Obj]++
			}
			var lock uint64
			for obj, n := range seen {
				if n == len(lines) {
					lock = obj
				}
			}
			if lock == 0 {
				t.Fatalf("no lock was taken %d times", len(lines))
			}
			agent := library2(l)
			for _, e := range l.of(wire.TypeAcquire) {
				a := wire.DecodeAcquire(e.Words)
				if a.Obj != lock {
					continue
				}
				var want []string
				for _, pc := range strings.Fields(lines[i]) {
					var v uint64
					if _, err := fmt.Sscanf(pc, "%x", &v); err != nil {
						t.Fatal(err)
					}
					if v < agent[0] || v >= agent[1] {
						want = append(want, pc)
					}
				}
				if have := stacks[a.Stack]; have != "["+strings.Join(want, " ")+"]" {
					t.Fatalf("time %d:\nbacktrace %v\nagent     %s", i, want, have)
				}
				last[stacks[a.Stack]]++
				i++
			}
			if want := 7 + 3 + 2; len(last) != want {
				t.Errorf("%d different stacks, not %d", len(last), want)
			}
		})
	}
}
