package patch

import (
	"fmt"
	"math/bits"
	"slices"
	"testing"
)

// In loops the first of sites that run one after the other goes on through the others in its trampoline, up to the last; a branch target begins another chain, a call ends one, and so do fixed
// addresses. The others have trampolines of their own.
func TestChain(t *testing.T) {
	const load, add, call = "488b07", "4883c001", "e800000000" // mov rax, [rdi]; add rax, 1; call
	nops := func(n int) (s string) {
		for range n {
			s += "90"
		}
		return s
	}
	for _, c := range []struct {
		name, code string
		sites      []uint64
		holds      []uint64 // instructions in the first site's trampoline
	}{
		{"one after the other", load + add + load + load + add, []uint64{0, 7, 10}, []uint64{0, 3, 7, 10}},
		{"a conditional branch between", load + "7502" + load + load, []uint64{0, 5, 8}, []uint64{0, 3, 5, 8}}, // to 7, inside: no beginning
		{"a target between", load + load + load + "75fb", []uint64{0, 3, 6}, []uint64{0, 3}},                   // to 6; but the jump overlaps 3
		{"a call between", load + add + call + load, []uint64{0, 12}, []uint64{0, 3}},
		{"alone", load + add + add, []uint64{0}, []uint64{0, 3}},
		{"too far", load + nops(chainBytes) + load, []uint64{0, 3 + chainBytes}, []uint64{0, 3, 4}},
	} {
		back := fmt.Sprintf("0f85%08x", bits.ReverseBytes32(-uint32(len(c.code)/2+6)))
		text := code(t, c.code+back+"9090909090909090909090")
		b := newBench(text, around(text))
		var sites []Site
		for _, s := range c.sites {
			sites = append(sites, Site{edgeAt + s, mark{edgeAt + s, 1}})
		}
		tx, err := b.Plan(sites, nil)
		if err != nil {
			t.Fatal(err)
		}
		b.apply(t, tx, sites, nil)
		b.Commit(tx)
		held := func(x *Patch) (list []uint64) {
			for _, p := range x.Trampoline.Parts[:len(x.Trampoline.Parts)-1] {
				if !p.Recipe {
					list = append(list, p.For-edgeAt)
				}
			}
			return list
		}
		if got := held(tx.New[0]); !slices.Equal(got, c.holds) {
			t.Errorf("%s: the first trampoline holds %d, want %d", c.name, got, c.holds)
		}
		if len(tx.New) != len(sites) {
			t.Errorf("%s: %d patches", c.name, len(tx.New))
		}
		if len(sites) < 2 {
			continue
		}
		// A site in the middle goes: the first is planned anew, without its recipe.
		gone := sites[len(sites)-1].At
		if tx, err = b.Plan(nil, []uint64{gone}); err != nil {
			t.Fatal(err)
		}
		b.apply(t, tx, nil, []uint64{gone})
		b.Commit(tx)
	}
}
