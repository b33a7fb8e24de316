package engine_test

import (
	"encoding/binary"
	"fmt"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/ripstop/ripstop/internal/engine"
	"github.com/ripstop/ripstop/internal/patch"
	"github.com/ripstop/ripstop/internal/recipe"
	"github.com/ripstop/ripstop/internal/x86"
)

// covering counts how often each memory instruction is run, and has its sites covered.
type covering struct {
	everywhere
	cells map[string][]byte // by module and link-time address
	uses  map[string]uint64 // what they had at the process's end
	mu    sync.Mutex
}

type counted struct{ *recipe.Code }

func (counted) Replaces() bool { return false }

func (c *covering) Covers(_ *engine.Process, m *engine.Module) (string, bool) {
	return "test-covering", m.Kind == engine.Program || m.Kind == engine.Library
}
func (c *covering) Covered(*engine.Process, *engine.Module) {}

func (c *covering) sites(p *engine.Process, m *engine.Module, lo, hi uint64) (list []patch.Site) {
	m.InstructionsIn(lo, hi, nil, func(in *engine.Insn) bool {
		if !wanted(&in.Inst) {
			return true
		}
		addr, cell, err := p.Share(8)
		if err != nil {
			c.t.Error(err)
			return false
		}
		code, err := recipe.Compile([]recipe.Op{recipe.Count{Cell: addr}}, recipe.Site{At: in.At, Inst: in.Inst, Code: in.Code}, x86.AllLive, p.Env())
		if err != nil {
			c.t.Error(err)
			return false
		}
		c.mu.Lock()
		c.cells[fmt.Sprintf("%s %#x", filepath.Base(m.Path), in.At-m.Bias)] = cell
		c.mu.Unlock()
		list = append(list, patch.Site{At: in.At, Recipe: counted{code}})
		return true
	})
	return list
}

func (c *covering) Sites(p *engine.Process, m *engine.Module) (list []patch.Site) {
	if m.Kind != engine.Program && m.Kind != engine.Library {
		return nil
	}
	for _, r := range m.Texts() {
		list = append(list, c.sites(p, m, r[0], r[1])...)
	}
	return list
}

func (c *covering) SitesIn(p *engine.Process, m *engine.Module, lo, hi uint64) []patch.Site {
	return c.sites(p, m, lo, hi)
}

func (c *covering) PatchedIn(p *engine.Process, m *engine.Module, lo, hi uint64, at func(uint64) *patch.Patch) {
	m.InstructionsIn(lo, hi, nil, func(in *engine.Insn) bool {
		if wanted(&in.Inst) && at(in.At) == nil {
			c.t.Logf("%s at %#x is not patched", m.Path, in.At-m.Bias)
		}
		return true
	})
}

func (c *covering) End(p *engine.Process) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for at, cell := range c.cells {
		if n := binary.LittleEndian.Uint64(cell); n > 0 {
			c.uses[at] += n
		}
	}
	c.everywhere.End(p)
}

func newCovering(t *testing.T) *covering {
	return &covering{everywhere: everywhere{t: t}, cells: map[string][]byte{}, uses: map[string]uint64{}}
}

// Of a program whose code is patched when it is first run each instruction is counted as often as where all of it is patched before; and most of it never is.
func TestCoveredCounts(t *testing.T) {
	text := words(3000)
	for _, argv := range [][]string{
		{"setarch", "-R", "gzip", "-c"},
		{"setarch", "-R", "xz", "-c", "-T1", "-0"},
	} {
		if testing.Short() && argv[2] != "gzip" {
			continue // as below
		}
		t.Run(argv[2], func(t *testing.T) {
			uses := map[bool]map[string]uint64{}
			patched := map[bool]uint64{}
			for _, atOnce := range []bool{true, false} {
				c := newCovering(t)
				st := same(t, engine.Options{Client: c, SharedBytes: 64 << 20, AtOnce: atOnce}, text, argv...)
				uses[atOnce], patched[atOnce] = c.uses, st.Sites
			}
			if patched[false] > patched[true]*2/3 {
				t.Errorf("%d sites were patched, of %d", patched[false], patched[true])
			}
			sameUses(t, uses[true], uses[false], 300)
		})
	}
}

// Code that is run for the first time by a forked child, a vfork child, several threads at once, on small stacks, in handlers, in a box, where signals are blocked, behind an int3 of its own does what it does natively.
func TestCovered(t *testing.T) {
	prog := compile(t, "cover.c", "-O1", "-Wl,-z,now") // how many threads find a symbol not yet bound is chance
	lib := filepath.Join(t.TempDir(), "plugin.so")
	if out, err := exec.Command("gcc", "-O1", "-shared", "-fPIC", "-o", lib, "testdata/plugin.c").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, kind := range []string{"forks", "vforks", "clones", "threads", "narrow", "contexts", "handlers", "blocked", "int3", "jumps", "box", "load"} {
		t.Run(kind, func(t *testing.T) {
			uses := map[bool]map[string]uint64{}
			for _, atOnce := range []bool{true, false} {
				c := newCovering(t)
				same(t, engine.Options{Client: c, SharedBytes: 64 << 20, AtOnce: atOnce, Orders: true}, "", prog, kind, lib)
				uses[atOnce] = c.uses
			}
			// A process that shares memory with its parent, and was not seen to be made, asks for nothing.
			if kind != "clones" {
				sameUses(t, uses[true], uses[false], 4)
			}
		})
	}
}

// sameUses says where code that was covered counted something else, and whether there was something to count.
func sameUses(t *testing.T, uses, covered map[string]uint64, least int) {
	t.Helper()
	if len(uses) < least {
		t.Errorf("%d instructions were run", len(uses))
	}
	if maps.Equal(uses, covered) {
		return
	}
	n := 0
	for _, at := range slices.Sorted(maps.Keys(uses)) {
		if uses[at] != covered[at] && n < 10 {
			n++
			t.Errorf("%s: %d times, %d where it is patched when it is run", at, uses[at], covered[at])
		}
	}
	t.Errorf("%d and %d instructions", len(uses), len(covered))
}

// Likewise real programs, with children and threads.
func TestCoveredPrograms(t *testing.T) {
	text := words(3000)
	for _, argv := range [][]string{
		{"pigz", "-c", "-n", "-m", "-p", "4"},
		{"/bin/bash", "-c", "for i in 1 2 3; do echo $i | tr 1 x; done; (sleep 0; echo $$ | wc -w); x=$(seq 100 | sort -rn | head -3); echo $x; kill -USR1 $$ 2>/dev/null || true"},
		{"/usr/bin/python3", "-c", "import threading,subprocess,signal,os\nsignal.signal(signal.SIGUSR1,lambda *a: print('usr1'))\nr=[]\ndef f(n):\n  r.append(sum(i*n for i in range(5000)))\n" +
			"t=[threading.Thread(target=f,args=(i,)) for i in range(4)]\n[x.start() for x in t]\n[x.join() for x in t]\nprint(sorted(r))\n" +
			"os.kill(os.getpid(),signal.SIGUSR1)\nprint(subprocess.run(['/bin/echo','hi'],capture_output=True))\npid=os.fork()\nif pid==0: os._exit(7)\nprint(os.waitpid(pid,0)[1])"},
	} {
		if testing.Short() && argv[0] != "pigz" {
			continue // under the race detector planning takes long
		}
		t.Run(filepath.Base(argv[0]), func(t *testing.T) {
			c := newCovering(t)
			same(t, engine.Options{Client: c, SharedBytes: 64 << 20}, text, argv...)
		})
	}
}
