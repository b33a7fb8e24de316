package engine

import (
	"testing"

	"github.com/ripstop/ripstop/internal/patch"
	"github.com/ripstop/ripstop/internal/x86"
)

// Where we are killed after what is written by pages, and before what the thread that asks writes, each jump that is there leads to its trampoline: it lies on one page, and nothing that it is made of, or that it leads to, is yet to come. A short jump could be there
// whose second jump was not, as it lies further behind than was looked. And of libc's patches four times as many were left to the thread, one by one, as may lie on two pages.
func TestAcrossPages(t *testing.T) {
	m := moduleOf(t, "/lib/x86_64-linux-gnu/libc.so.6", 0x7f1234000000, nil)
	m.space = patch.NewSpace([]patch.Range{{Lo: m.Bias - 64<<20, Hi: m.Bias}}) // little: many tiers
	m.learn()
	x := m.texts[0]
	tiers := map[patch.Tier]int{}
	across := 0
	for lo := x.at; lo < x.end(); lo += 64 << 10 {
		var add []patch.Site
		n := 0
		for a := x.plan.Next(lo, min(lo+64<<10, x.end())); a < min(lo+64<<10, x.end()); a = x.plan.Next(a+1, x.end()) {
			if n++; n%3 == 0 && x.planner.Check(a) == nil {
				add = append(add, patch.Site{At: a, Recipe: bare{}})
			}
		}
		tx, err := x.planner.PlanSome(add)
		if err != nil {
			t.Fatal(err)
		}
		last := map[uint64]bool{}
		for _, e := range acrossPages(tx.Edits) {
			last[e.At] = true
		}
		across += len(last)
		text := patch.NewOverlay(x.code)
		for i := range tx.Edits {
			if e := &tx.Edits[i]; !last[e.At] {
				text.Set(e.At-x.at, e.New)
			}
		}
		for _, p := range tx.New {
			tiers[p.Tier]++
			if last[p.At] || p.Tier == patch.TierTrap {
				continue
			}
			at := p.At
			jump := func() (to, end uint64) {
				code := text.Copy(at-x.at, min(at-x.at+15, x.size))
				in, err := x86.Decode(code)
				if to, ok := in.Target(at); err == nil && ok {
					return to, at + uint64(in.Len)
				}
				t.Fatalf("%s: at %#x, for %#x, there is no jump but % x", p.Tier, at, p.At, code)
				return 0, 0
			}
			if text.At(at-x.at) == opShort {
				at, _ = jump()
			}
			if to, end := jump(); to != p.Trampoline.At || p.At/patch.PageSize != (end-1)/patch.PageSize {
				t.Errorf("%s: the jump of %#x, at %#x, leads to %#x instead of %#x, and ends at %#x", p.Tier, p.At, at, to, p.Trampoline.At, end)
			}
		}
		x.planner.Commit(tx)
		x.planner.Close()
	}
	if t.Logf("%v, %d across pages", tiers, across); tiers[patch.TierNeighbour] < 100 || tiers[patch.TierSuccessor] < 100 || across < 100 {
		t.Error("too few")
	}
}
