package ctest

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/ripstop/ripstop/internal/wire"
)

// The stack of a lock that is held is that from which it was taken, though nobody walked it then: frame by frame what backtrace() said at that time.
// Where frames were left since, it may end early, but never says what was not so.
func TestMoments(t *testing.T) {
	for _, flags := range [][]string{{"-O0"}, {"-O2", "-fomit-frame-pointer"}, {"-O2", "-fno-omit-frame-pointer"}} {
		for _, seed := range []string{"0", "1"} {
			t.Run(strings.Join(flags, " ")+" "+seed, func(t *testing.T) {
				t.Parallel()
				prog := compile(t, "sync_moments.c", flags...)
				c := filtered
				c.StackDepth = 32
				r, l, _ := under(t, c, nil, prog, seed)
				if r.state != "exit status 0" {
					t.Fatalf("%+v", r)
				}
				stacks := map[uint32][]uint64{}
				for _, e := range l.of(wire.TypeStack) {
					s := wire.DecodeStack(e.Words)
					stacks[s.ID] = s.PCs
				}
				agent := library2(l)
				got := map[uint64][][]uint64{} // by the inner lock, which is locked once
				for _, e := range l.of(wire.TypeOrder) {
					o := wire.DecodeOrder(e.Words)
					var held [][]uint64
					for _, h := range o.Held {
						held = append(held, stacks[h.Stack])
					}
					got[o.Obj] = held
				}
				exact := map[string]int{}
				for _, line := range strings.Split(strings.TrimSpace(r.stdout), "\n") {
					f := strings.Fields(line)
					obj, err := strconv.ParseUint(f[0], 0, 64)
					if err != nil {
						t.Fatal(err)
					}
					var want []uint64
					for _, h := range f[2:] {
						v, err := strconv.ParseUint(h, 16, 64)
						if err != nil {
							t.Fatal(err)
						}
						if v < agent[0] || v >= agent[1] {
							want = append(want, v)
						}
					}
					held := got[obj]
					if len(held) == 0 || len(held[len(held)-1]) == 0 {
						t.Fatalf("%s: held %x", line, held)
					}
					have := held[len(held)-1][1:] // the innermost is the call of backtrace there, and of lock here
					switch {
					case slices.Equal(have, want):
						exact[f[1]]++
					case f[1] == "nested" || len(have) >= len(want) || !slices.Equal(have, want[:len(have)]):
						t.Errorf("%s:\nbacktrace %x\nagent     %x", f[1], want, have)
					}
				}
				if exact["nested"] < 100 || exact["left"] == 0 {
					t.Errorf("compared %v: too few to mean anything", exact)
				}
				t.Log(exact)
			})
		}
	}
}
