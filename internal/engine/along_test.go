package engine_test

import (
	"testing"

	"github.com/ripstop/ripstop/internal/engine"
	"github.com/ripstop/ripstop/internal/patch"
	"github.com/ripstop/ripstop/internal/wire"
)

// companion wants, with what is asked for, all of its function that accesses memory, that one itself and what lies beside it as well.
type companion struct {
	asked
	t     *testing.T
	asks  int
	sites int
}

func (c *companion) Along(_ *engine.Process, m *engine.Module, at, lo, hi uint64) (list []patch.Site) {
	if at < lo || at >= hi {
		c.t.Errorf("%#x lies in [%#x, %#x)", at, lo, hi)
	}
	c.asks++
	m.InstructionsIn(lo, hi, nil, func(i *engine.Insn) bool {
		if wanted(&i.Inst) {
			list = append(list, patch.Site{At: i.At, Recipe: empty{}})
		}
		return true
	})
	c.sites = len(list)
	return append(list, patch.Site{At: hi + 1<<20, Recipe: empty{}})
}

// Where threads touch shared memory by each instruction of a function, each fault asked for one of them: the four threads of a program that uses sqlite asked 3,600 times. What the client wants of the function
// beside it is patched with it, in one request, while another thread runs there.
func TestAlong(t *testing.T) {
	c := &companion{asked: asked{everywhere: everywhere{t: t}}, t: t}
	st := same(t, engine.Options{Client: c}, "", compile(t, "along.c", "-O1"))
	n := uint64(0)
	for tier, k := range st.Patched {
		if patch.Tier(tier) == patch.TierTrap && k > 1 {
			t.Errorf("%d are int3", k)
		}
		n += k
	}
	if c.asks == 0 || st.Requests[wire.PatchAskSite] == 0 || c.sites != 5 || n < 4 {
		t.Errorf("%d and %d requests, %d wanted, %d patched", c.asks, st.Requests[wire.PatchAskSite], c.sites, n)
	}
}
