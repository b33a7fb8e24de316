package engine_test

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/ripstop/ripstop/internal/engine"
	"github.com/ripstop/ripstop/internal/patch"
	"github.com/ripstop/ripstop/internal/tracee"
)

// What reload.c says of itself when it asks.
const (
	reloadBegun = 1 + iota
	reloadLoaded
	reloadGone
)

// A held is what a process has mapped for trampolines.
type held struct {
	areas int // of the process, all of them
	bytes uint64
	file  uint64 // bytes of the file's memory
}

// watching patches all instructions of reload.c's libraries and looks at its map when it asks.
type watching struct {
	everywhere
	begun  held
	loaded []held
	gone   []held
}

func (c *watching) Sites(_ *engine.Process, m *engine.Module) []patch.Site {
	if m.Kind != engine.Program && !strings.HasPrefix(filepath.Base(m.Path), "parts") {
		return nil
	}
	return patchable(m)
}

func (c *watching) Test(p *engine.Process, what uint64) error {
	maps, err := tracee.Maps(p.PID)
	if err != nil {
		return err
	}
	h := held{areas: len(maps)}
	if h.file, err = p.FileBytes(); err != nil {
		return err
	}
	for _, m := range maps {
		if m.Path == "/memfd:ripstop-patch" && m.Exec && uint64(m.End-m.Start) < 64<<20 { // but for the file as a whole
			h.bytes += uint64(m.End - m.Start)
		}
	}
	switch what {
	case reloadBegun:
		c.begun = h
	case reloadLoaded:
		c.loaded = append(c.loaded, h)
	case reloadGone:
		c.gone = append(c.gone, h)
	}
	return nil
}

// partsLibraries builds n libraries.
func partsLibraries(t *testing.T, n int) (list []string) {
	t.Helper()
	for i := range n {
		lib := compile(t, "parts.c", "-O1", "-shared", "-fPIC", fmt.Sprintf("-DSEED=%d", i+1))
		to := filepath.Join(filepath.Dir(lib), fmt.Sprintf("parts%d.so", i))
		if err := os.Rename(lib, to); err != nil {
			t.Fatal(err)
		}
		list = append(list, to)
	}
	return list
}

// reload runs reload.c natively and patched. What the engine warns of is given.
func reload(t *testing.T, o engine.Options, args ...string) (c *watching, st engine.Stats, warned []string) {
	t.Helper()
	argv := append([]string{compile(t, "reload.c", "-O1")}, args...)
	c = &watching{everywhere: everywhere{t: t}}
	var mu sync.Mutex
	o.Client, o.Warn = c, func(text string) {
		mu.Lock()
		defer mu.Unlock()
		warned = append(warned, text)
	}
	want := native(t, "", argv...)
	got, st := patched(t, o, "", argv...)
	if got != want || want.state != "exit status 0" {
		t.Errorf("natively %+v, patched %+v", want, got)
	}
	t.Logf("begun %+v; loaded %v; gone %v; %+v", c.begun, c.loaded, c.gone, st)
	return c, st, warned
}

// away says whether what libraries have needed is gone. Where trampolines of the program lie a twentieth may be left: pieces that were cut there, and what is shown together with those.
func (h held) away(begun, loaded held) bool {
	return h.areas <= begun.areas+(loaded.areas-begun.areas)/20 && h.bytes <= begun.bytes+(loaded.bytes-begun.bytes)/20
}

// A library that went left its trampolines' memory mapped for good: hundreds of megabytes of addresses and a thousand areas, which others could not have; what came after it was put elsewhere, and
// a program that loaded one library after the other came to half of the areas that it may have. Now the memory goes with the module.
func TestUnmapped(t *testing.T) {
	libs := partsLibraries(t, 3)
	for _, test := range []struct{ name, how string }{{"at once", "all"}, {"in turn", "turns"}} {
		for name, o := range map[string]engine.Options{"": {}, ", no frames": {NoFrames: true}, ", no memory": {NoMemory: true}} {
			t.Run(test.name+name, func(t *testing.T) {
				rounds := 1
				if test.how == "turns" {
					rounds = 3
				}
				c, _, warned := reload(t, o, append([]string{fmt.Sprint(rounds), "-1", test.how}, libs...)...)
				if len(warned) > 0 || len(c.gone) != rounds {
					t.Fatalf("%d looks, %q", len(c.gone), warned)
				}
				for i := range rounds {
					if !o.NoFrames && (c.loaded[i].areas < c.begun.areas+200 || c.loaded[i].bytes < c.begun.bytes+100<<20) {
						t.Errorf("round %d: there is nothing that could go", i)
					}
					// Pages where trampolines of the program lie, too, stay.
					if b, l, g := c.begun.file, c.loaded[i].file, c.gone[i].file; !o.NoFrames && (l < b+400<<10 || g > b+(l-b)/2) {
						t.Errorf("round %d: %d bytes of the file stay, of %d; before there were %d", i, g, l, b)
					}
					if !c.gone[i].away(c.begun, c.loaded[i]) {
						t.Errorf("round %d: %+v stay, of %+v; before there were %+v", i, c.gone[i], c.loaded[i], c.begun)
					}
				}
			})
		}
	}
}

// A library that comes again and again comes to need what it needed before, and no more: neither areas nor bytes. What it left the first time is unmapped; then it may stay, but not if the process
// has more than a sixteenth of the areas that it may have.
func TestReloaded(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: planning large libraries again and again, by one goroutine")
	}
	const rounds, settled = 14, 6
	b, err := os.ReadFile("/proc/sys/vm/max_map_count")
	if err != nil {
		t.Fatal(err)
	}
	most, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		t.Fatal(err)
	}
	for _, libs := range [][]string{partsLibraries(t, 1), partsLibraries(t, 2), partsLibraries(t, 5)} {
		c, st, warned := reload(t, engine.Options{}, append([]string{fmt.Sprint(rounds), "-1", "all"}, libs...)...)
		if len(warned) > 0 || len(c.gone) != rounds {
			t.Fatalf("%d looks, %q", len(c.gone), warned)
		}
		if !c.gone[0].away(c.begun, c.loaded[0]) {
			t.Errorf("nobody knew that it comes again: %+v stay; before there were %+v", c.gone[0], c.begun)
		}
		if stays := c.gone[settled]; len(libs) == 1 && c.loaded[settled].areas <= most/16 && stays.areas < c.loaded[settled].areas*9/10 {
			t.Errorf("it was unmapped for nothing: %+v", stays)
		}
		for i, h := range c.loaded[settled+1:] {
			if was := c.loaded[settled]; h.areas > was.areas+was.areas/8 || h.bytes > was.bytes+was.bytes/8 {
				t.Errorf("round %d: %+v, in round %d %+v", settled+1+i, h, settled, was)
			}
		}
		for i, h := range c.gone {
			if h.areas > most/16 {
				t.Errorf("round %d: %+v stay", i, h)
			}
		}
		if st.Lost != 0 {
			t.Errorf("%d bytes stay for nobody", st.Lost)
		}
	}
}

// After a fork the child runs what its parent has let go, in the same memory: so the parent never writes there again. But the addresses and areas are its own. They were not given back: 1,183 areas
// of a library became 8,343 in 150 rounds, and at half of what a process may have nothing more was patched.
func TestUnmappedShared(t *testing.T) {
	const rounds = 40
	c, st, warned := reload(t, engine.Options{}, append([]string{fmt.Sprint(rounds), "1", "all"}, partsLibraries(t, 2)...)...)
	if len(warned) > 0 || len(c.gone) != rounds {
		t.Fatalf("%d looks, %q", len(c.gone), warned)
	}
	most := c.loaded[0]
	for i := 1; i < rounds; i++ {
		// The fuller the memory is that nobody gets again, the more often a page shows other than its neighbours.
		if h := c.loaded[i]; h.areas > 3*most.areas || h.bytes > 2*most.bytes {
			t.Errorf("round %d: %+v, in the first %+v", i, h, most)
		}
		if !c.gone[i].away(c.begun, c.loaded[i]) {
			t.Errorf("round %d: %+v stay of %+v", i, c.gone[i], c.loaded[i])
		}
	}
	if st.Lost == 0 || len(st.Unpatched) > 0 && st.Unpatched[engine.WhyLost]+st.Unpatched[engine.WhyAreas] > 0 {
		t.Errorf("%d bytes lost; not patched: %v", st.Lost, st.Unpatched)
	}
}

// Each bound is said once, by the module that meets it first, and the program is as natively.
func TestBounds(t *testing.T) {
	libs := partsLibraries(t, 2)
	for _, test := range []struct {
		name string
		why  engine.Why
		o    engine.Options
		fork string
	}{
		{"areas", engine.WhyAreas, engine.Options{MostAreas: 300}, "-1"},
		{"bytes", engine.WhyLost, engine.Options{MostLost: 400 << 10}, "0"},
		{"file", engine.WhyLost, engine.Options{MostCode: 2 << 20}, "0"},
	} {
		t.Run(test.name, func(t *testing.T) {
			const rounds = 6
			c, st, warned := reload(t, test.o, append([]string{fmt.Sprint(rounds), test.fork, "all"}, libs...)...)
			if len(warned) != 1 || !strings.HasSuffix(warned[0], string(test.why)) || !strings.Contains(warned[0], "parts") {
				t.Errorf("it says %q", warned)
			}
			var other uint64
			for why, n := range st.Unpatched {
				if (why == engine.WhyLost || why == engine.WhyAreas) && why != test.why {
					other += n
				}
			}
			if st.Unpatched[test.why] == 0 || other > 0 {
				t.Errorf("not patched: %v", st.Unpatched)
			}
			if len(c.gone) != rounds || c.loaded[0].areas < 300 {
				t.Errorf("looks: %+v", c.loaded)
			}
			if test.why == engine.WhyLost && (st.Lost == 0 || st.Lost > max(test.o.MostLost, test.o.MostCode)) {
				t.Errorf("%d bytes are lost", st.Lost)
			}
		})
	}
}

// What a site takes of memory was told of all sites that there ever were: a program that loads its libraries again and again had 0 bytes a site, and after a fork what was left behind was counted as the
// program's own.
func TestHeldSites(t *testing.T) {
	libs := partsLibraries(t, 2)
	c := func(rounds, fork string) engine.Stats {
		_, st, _ := reload(t, engine.Options{}, append([]string{rounds, fork, "all"}, libs...)...)
		return st
	}
	none, some, forked := c("0", "-1"), c("5", "-1"), c("5", "1")
	if none.Held == 0 || some.Held != none.Held || forked.Held != none.Held {
		t.Errorf("sites: %d, %d and %d", none.Held, some.Held, forked.Held)
	}
	if some.Sites <= none.Sites+5*1000 {
		t.Errorf("%d sites of libraries", some.Sites-none.Sites)
	}
	// Of the same sites, in a program that lies elsewhere; what is told to debuggers has room for what it was.
	for _, st := range []engine.Stats{some, forked} {
		if st.Code > 2*none.Code || st.Pages > 2*none.Pages || st.Tables > 4*none.Tables {
			t.Errorf("%d bytes in %d, with tables of %d; without libraries %d in %d, %d", st.Code, st.Pages, st.Tables, none.Code, none.Pages, none.Tables)
		}
	}
	if none.Lost != 0 || some.Lost != 0 || forked.Lost == 0 {
		t.Errorf("lost: %d, %d, %d", none.Lost, some.Lost, forked.Lost)
	}
}

// telling tells taken.c where the trampolines of its library lie.
type telling struct {
	watching
	trampolines []uint64
	tried       uint64
}

func (c *telling) Patched(_ *engine.Process, m *engine.Module, at func(uint64) *patch.Patch) {
	if m.Kind == engine.Program {
		return
	}
	m.Instructions(func(in *engine.Insn) bool {
		if x := at(in.At); x != nil {
			c.trampolines = append(c.trampolines, x.Trampoline.At)
		}
		return true
	})
	slices.Sort(c.trampolines)
}

func (c *telling) Test(p *engine.Process, what uint64) error {
	if what < 1<<20 { // an answer
		c.tried = what
		return nil
	}
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(c.trampolines)))
	for _, a := range c.trampolines {
		b = binary.LittleEndian.AppendUint64(b, a)
	}
	f, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", p.PID), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteAt(b, int64(what))
	return err
}

// What the index says of trampolines goes before their memory: a fault in what the program has mapped there would be shown as one in the library.
func TestTaken(t *testing.T) {
	c := &telling{watching: watching{everywhere: everywhere{t: t}}}
	st := same(t, engine.Options{Client: c}, "", compile(t, "taken.c", "-O1"), partsLibraries(t, 1)[0])
	if len(c.trampolines) < 1000 || c.tried < uint64(len(c.trampolines))/2 {
		t.Errorf("%d of %d places were tried: %+v", c.tried, len(c.trampolines), st)
	}
}

// overlaid hears what over.c has done.
type overlaid struct {
	watching
	told []uint64
}

func (c *overlaid) Test(_ *engine.Process, n uint64) error {
	c.told = append(c.told, n)
	return nil
}

// What somebody else has mapped in the place of memory of ours that was idle is not unmapped with it.
func TestMappedOver(t *testing.T) {
	libs := partsLibraries(t, 2)
	c := &overlaid{watching: watching{everywhere: everywhere{t: t}}}
	same(t, engine.Options{Client: c}, "", compile(t, "over.c", "-O1"), libs[0], libs[1])
	if len(c.told) != 2 || c.told[0] < 100 || c.told[1] != 1 {
		t.Errorf("it has mapped memory over ours in %v", c.told)
	}
}
