package race

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ripstop/ripstop/internal/finding"
	"github.com/ripstop/ripstop/internal/image"
	"github.com/ripstop/ripstop/internal/target"
	"github.com/ripstop/ripstop/internal/trace"
	"github.com/ripstop/ripstop/internal/wire"
)

// The detector in the agent (internal/agent/c/race*.c) is held against this package's, over the same items in the same order. It does not know the future: what it finds must be
// found here too, and at no higher class; where no location turns out to be atomic late, it must find all.

// agentDetector is a process that runs programs through the agent's detector.
type agentDetector struct {
	in  io.WriteCloser
	out *bufio.Reader
}

// driverOf builds ctest/testdata/race_driver.c with the detector's sources.
func driverOf(t testing.TB, name string, flags ...string) string {
	t.Helper()
	dir := "../agent/c"
	sources, err := filepath.Glob(filepath.Join(dir, "race*.c"))
	sources = slices.DeleteFunc(sources, func(s string) bool { return filepath.Base(s) == "racelive.c" }) // the seam to the agent
	if err != nil || len(sources) < 5 {
		t.Fatal(sources, err)
	}
	exe := filepath.Join(t.TempDir(), name)
	args := append([]string{"-O2", "-g", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-ffreestanding", "-fno-builtin", "-pthread", "-o", exe}, flags...)
	args = append(args, filepath.Join(dir, "ctest/testdata", name+".c"))
	if out, err := exec.Command("gcc", append(args, sources...)...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return exe
}

func newAgentDetector(t testing.TB) *agentDetector {
	t.Helper()
	cmd := exec.Command(driverOf(t, "race_driver"))
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		cmd.Wait()
	})
	return &agentDetector{in, bufio.NewReader(out)}
}

// agentResult is what the agent's detector found: keys as Race.Key of process 1; true: of the class that rests on mov.
type agentResult struct {
	races                      map[string]bool
	found                      []wire.EvRace
	amnesties, unsaid, evicted int
}

// pages is how many pages' history is kept at most; 0: all.
func (a *agentDetector) run(t testing.TB, items []item, pages uint64) agentResult {
	t.Helper()
	var b []byte
	put := func(words ...uint64) {
		for _, w := range words {
			b = binary.LittleEndian.AppendUint64(b, w)
		}
	}
	put(uint64(len(items)), pages)
	for i := range items {
		if e := items[i].event; e != nil {
			put(uint64(e.Thread)<<32 | uint64(len(e.Words)))
			put(e.Words...)
			continue
		}
		x := &items[i].access
		put(uint64(x.Thread)<<32, x.Addr, x.Size, uint64(x.Kind), x.PC, uint64(x.Stack))
	}
	if _, err := a.in.Write(b); err != nil {
		t.Fatal(err)
	}
	res := agentResult{races: map[string]bool{}}
	for {
		line, err := a.out.ReadString('\n')
		if err != nil {
			t.Fatalf("the agent's detector: %v", err)
		}
		var status int
		if n, _ := fmt.Sscanf(line, "end %d", &status); n == 1 {
			if status != 0 {
				t.Fatalf("the agent's detector ended with status %#x", status)
			}
			return res
		}
		if n, _ := fmt.Sscanf(line, "counts %d %d %d", &res.amnesties, &res.unsaid, &res.evicted); n == 3 {
			continue
		}
		var f wire.EvRace
		if _, err := fmt.Sscanf(line, "%d %d %d %d %x %x %x %d %x %x %x %d %d", &f.Rule, &f.Kind, &f.Kind2, &f.By, &f.Addr, &f.Size, &f.Pc, &f.By2, &f.Addr2, &f.Size2, &f.Pc2, &f.Stack, &f.Stack2); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		key, mov := "", false
		switch f.Rule {
		case wire.RaceRuleDataRace, wire.RaceRuleDataRaceMov, wire.RaceRuleDataRaceOrdered:
			key, mov = pairKey(1, "race", f.Pc, f.Pc2), f.Rule != wire.RaceRuleDataRace
		case wire.RaceRuleFree, wire.RaceRuleFreeMov:
			key, mov = fmt.Sprintf("1 free %x S%d", f.Pc2, f.Stack), f.Rule == wire.RaceRuleFreeMov
		case wire.RaceRuleUseAfterFree:
			key = fmt.Sprintf("1 freed %x S%d", f.Pc, f.Stack2)
		default:
			t.Fatalf("%q: no such rule", line)
		}
		res.found = append(res.found, f)
		if was, ok := res.races[key]; ok {
			mov = mov && was
		}
		res.races[key] = mov
	}
}

// compared counts what holds it against this package showed.
type compared struct{ all, found, sure, foundSure int }

// holdAgent compares with the reference: what is found must be a race, what is told as certain must be one if each mov that raced is taken for an atomic's; and of each byte the first
// race must be found, if all. classes: what is told as certain is looked at.
func holdAgent(t testing.TB, items []item, got agentResult, all, classes bool) (c compared, wrong []string) {
	t.Helper()
	say := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	in := inputOf(items)
	atomics, err := Learn(in, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	d := NewWith(Config{}, nil, atomics)
	if err := d.Detect(in); err != nil {
		t.Fatal(err)
	}
	maybe, sure := newReference(items, nil), newReference(items, d.Suspects())
	for key, mov := range got.races {
		if maybe.races[key] == nil && sure.races[key] == nil {
			say("%q is found and is none (mov: %t)", key, mov)
		} else if sure.races[key] == nil && !mov && classes {
			say("%q rests on mov and is told as certain", key)
		}
	}
	for _, ref := range []*reference{maybe, sure} {
		for b, i := range ref.first {
			found, certain := false, false
			for key, bytes := range ref.races {
				if mov, ok := got.races[key]; ok && bytes[b.addr] && involves(key, items, i) {
					found, certain = true, certain || !mov
				}
			}
			if ref == sure {
				c.sure++
				if certain {
					c.foundSure++
				}
				continue
			}
			c.all++
			if found {
				c.found++
			} else if all {
				say("the first race of byte %#x, by item %d, is not found", b.addr, i+1)
			}
		}
	}
	for key := range maybe.races {
		if _, ok := got.races[key]; !ok && strings.HasPrefix(key, "1 freed") {
			say("%q is not found", key)
		}
	}
	return c, wrong
}

// involves reports whether the key names item i as one of the two.
func involves(key string, items []item, i int) bool {
	if items[i].event != nil {
		return strings.HasSuffix(key, fmt.Sprintf(" S%d", i+1))
	}
	return strings.Contains(key+" ", fmt.Sprintf(" %x ", items[i].access.PC))
}

func (c *compared) add(o compared) {
	c.all += o.all
	c.found += o.found
	c.sure += o.sure
	c.foundSure += o.foundSure
}

func TestAgentAgainstThis(t *testing.T) {
	a := newAgentDetector(t)
	seeds := 300
	switch {
	case os.Getenv("RIPSTOP_SOAK") == "1":
		seeds = 5000
	case testing.Short():
		seeds = 60
	}
	var plain, atomic compared
	for seed := range uint64(seeds) {
		for _, real := range []bool{true, false} {
			all := seed%2 == 1 // there are no atomics
			if !real && !all {
				continue
			}
			hold := func(items []item) (compared, []string) { return holdAgent(t, items, a.run(t, items, 0), all, real) }
			items := randomProgram(seed, 60+int(seed%7)*60)
			if real {
				items = realAtomics(items)
			}
			c, wrong := hold(items)
			if all {
				plain.add(c)
			} else {
				atomic.add(c)
			}
			if wrong != nil {
				less := shrink(items, func(items []item) bool { _, wrong := hold(items); return wrong != nil })
				_, wrong = hold(less)
				t.Fatalf("seed %d, real %t:\n%s\n%s", seed, real, strings.Join(wrong, "\n"), strings.Join(text(less), "\n"))
			}
		}
	}
	t.Logf("without atomics %+v, with %+v", plain, atomic)
}

// realAtomics makes of each cell's locked instructions and movs accesses of one address and size, as an atomic variable's are. Where others overlap in part this package makes one location
// of them, so that one orders a read of bytes that it did not write; the agent's detector does so only once it has seen that they overlap.
func realAtomics(items []item) []item {
	for i := range items {
		a := &items[i].access
		if items[i].event != nil || a.Kind&Locked == 0 && !a.movLike() {
			continue
		}
		size := uint64(4) << (a.Addr >> 3 & 1)
		addr := a.Addr &^ (size - 1)
		if a.Addr >= 0x50000 && (addr < a.Addr || addr+size > a.Addr+a.Size) { // beyond a block
			a.Kind = Read | Write
			continue
		}
		a.Addr, a.Size = addr, size
	}
	return items
}

// shrink leaves out what a failure does not need. Threads' own events stay.
func shrink(items []item, fails func([]item) bool) []item {
	for size := len(items) / 2; size > 0; size /= 2 {
		for i := 0; i+size <= len(items); {
			less := slices.Concat(items[:i], items[i+size:])
			for j, it := range less {
				if it.event != nil && it.event.Type == wire.TypeFree { // its stack is its number
					ev := wire.DecodeFree(it.event.Words)
					ev.Stack = uint32(j) + 1
					less[j].event = &wire.Event{Type: wire.TypeFree, Thread: it.event.Thread, Words: ev.Append(nil, 0)}
				}
			}
			if sound(less) && fails(less) {
				items = less
			} else {
				i += size
			}
		}
	}
	return items
}

// sound reports whether threads are made before they run, and blocks are there when they are freed, as the reference assumes.
func sound(items []item) bool {
	freed := map[uint64]bool{}
	made, blocks, inside := map[uint32]bool{1: true}, map[uint64]uint64{}, map[uint32]bool{}
	for i := range items {
		thread := items[i].access.Thread
		if e := items[i].event; e != nil {
			thread = e.Thread
			switch e.Type {
			case wire.TypeThreadCreate:
				made[wire.DecodeThreadCreate(e.Words).Child] = true
			case wire.TypeAlloc:
				ev := wire.DecodeAlloc(e.Words)
				for addr, size := range blocks {
					if addr < ev.Addr+ev.Size && ev.Addr < addr+size {
						return false
					}
				}
				blocks[ev.Addr] = ev.Size
				for b := ev.Addr; b < ev.Addr+ev.Size; b++ {
					delete(freed, b)
				}
			case wire.TypeFree:
				if a := wire.DecodeFree(e.Words).Addr; blocks[a] == 0 {
					return false
				} else {
					for b := a; b < a+blocks[a]; b++ {
						freed[b] = true
					}
					delete(blocks, a)
				}
			case wire.TypeBarrierArrive:
				inside[thread] = true
			case wire.TypeBarrierLeave:
				if !inside[thread] {
					return false
				}
				delete(inside, thread)
			}
		}
		if !made[thread] {
			return false
		}
		for b, a := uint64(0), &items[i].access; b < a.Size; b++ {
			if freed[a.Addr+b] != freed[a.Addr] || freed[a.Addr] && a.Kind&Locked != 0 {
				return false // what such an instruction orders is not defined
			}
		}
	}
	return len(items) > 0 && items[0].event != nil
}

// Every event, followed by every other on another thread, orders what it orders here: two writes around them race in both or in neither.
func TestAgentEvents(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: each pair is one small run, of one goroutine; TestAgainstReference has all of the Go code")
	}
	a := newAgentDetector(t)
	rounds := 1
	if os.Getenv("RIPSTOP_SOAK") != "" {
		rounds = 10
	}
	r := rand.New(rand.NewPCG(33, 1))
	// What only several processes give: the agent's detector sees one, and takes more for ordered.
	more := map[wire.Type]bool{wire.TypeFork: true, wire.TypeProcess: true, wire.TypeWait: true}
	races, ordered := 0, map[[2]wire.Type]bool{}
	for i := range wire.Events {
		for j := range wire.Events {
			for range rounds {
				first, second := randomEvent(r, &wire.Events[i]), randomEvent(r, &wire.Events[j])
				first.Thread, second.Thread = 1, 2
				p := &program{}
				write := func(thread uint32, pc uint64) {
					p.items = append(p.items, item{process: 1, access: Access{Process: 1, Thread: thread, Addr: 0x100000, Size: 4, Kind: Write, PC: pc}})
				}
				p.event(1, wire.EvThreadStart{Self: 1})
				p.event(1, wire.EvThreadCreate{Child: 2})
				p.event(2, wire.EvThreadStart{Self: 2})
				write(1, 1)
				p.items = append(p.items, item{process: 1, event: first}, item{process: 1, event: second})
				write(2, 2)
				items := p.items
				want := map[string]bool{}
				res, err := Run(inputOf(items), newPlainWorld, Config{})
				if err != nil {
					t.Fatal(err)
				}
				for _, r := range res.Races {
					want[r.Key] = r.Mov
					races++
				}
				if len(res.Races) == 0 {
					ordered[[2]wire.Type{first.Type, second.Type}] = true
				}
				got := a.run(t, items, 0)
				// The first thread's write stands for its use, in the same time, of an object in the same bytes; so a race of both threads' uses is told as one of its write. Of its use with the other's
				// write nothing is asked: the recording's last look may take the first write for an atomic's.
				object := fmt.Sprintf("%x", objectPC(0)>>8)
				instead := func(key string) []string {
					a, b, _ := strings.Cut(strings.TrimPrefix(key, "1 race "), " ") // which is whose their numbers do not say
					if strings.HasPrefix(a, object) && strings.HasPrefix(b, object) {
						return []string{"1 race 1 " + a, "1 race 1 " + b}
					}
					return nil
				}
				stands := map[string]bool{}
				for key := range want {
					for _, k := range instead(key) {
						stands[k] = true
					}
				}
				for key, mov := range got.races {
					if was, ok := want[key]; (!ok || was && !mov) && !stands[key] {
						t.Errorf("%v %x, %v %x: %q (mov: %t) is found and is none", first.Type, first.Words[1:], second.Type, second.Words[1:], key, mov)
					}
				}
				for key := range want {
					_, found := got.races[key]
					for _, k := range instead(key) {
						_, ok := got.races[k]
						found = found || ok
					}
					own := strings.HasPrefix(key, "1 race 2 "+object)
					if !found && !own && !more[first.Type] && !more[second.Type] {
						t.Errorf("%v %x, %v %x: %q is not found", first.Type, first.Words[1:], second.Type, second.Words[1:], key)
					}
				}
			}
		}
	}
	if races < 500 || len(ordered) < 100 {
		t.Errorf("%d races, %d pairs of events that order: they show nothing", races, len(ordered))
	}
}

// Whatever records and accesses say, the agent's detector ends well. Records are those of FuzzRun.
func TestAgentAnything(t *testing.T) {
	a := newAgentDetector(t)
	programs := 1000
	if testing.Short() {
		programs = 200
	}
	r := rand.New(rand.NewPCG(33, 2))
	for n := range programs {
		data := make(choices, 200+r.IntN(3000))
		for i := range data {
			data[i] = byte(r.IntN(256))
		}
		var items []item
		for len(data) > 0 {
			thread := uint32(data.next() % 5)
			if data.next()%3 == 0 {
				w := data.record(0, &wire.Events[int(data.next())%len(wire.Events)])
				items = append(items, item{process: 1, event: &wire.Event{Type: wire.Type(w[0]), Thread: thread, Words: w}})
				continue
			}
			x := Access{Process: 1, Thread: thread, Addr: data.value(), Size: data.value() & (1<<14 - 1), Kind: Kind(data.next() % 16), PC: uint64(data.next()), Stack: uint32(data.next() % 4)}
			items = append(items, item{process: 1, access: x})
		}
		a.run(t, items, uint64(n%3)) // of some, two pages are kept at most
	}
}

// Threads that use the agent's detector at once: see ctest/testdata/race_stress.c.
//
// A race that rests on movs was noted by one thread just after another had shown the location to be an atomic, too late to be taken back, and told at the end (once in some hundred runs of
// atomics.c; 8 of 80,000 flags in each run of hand_over there).
func TestAgentStress(t *testing.T) {
	exe := driverOf(t, "race_stress")
	rounds := "10"
	if testing.Short() {
		rounds = "2"
	}
	for _, args := range [][]string{{"plain", rounds}, {"signals", rounds}, {"fork", rounds}, {"plain", rounds, "8"}} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			out, err := exec.Command(exe, args...).CombinedOutput()
			t.Logf("%s", out)
			if err != nil {
				t.Fatal(err)
			}
			for _, line := range strings.Split(strings.TrimSpace(string(out)), "\n") {
				var rounds, found, wrong, amnesties int
				if n, _ := fmt.Sscanf(line, "rounds %d found %d wrong %d amnesties %d", &rounds, &found, &wrong, &amnesties); n != 4 {
					t.Fatalf("%q", line)
				}
				if amnesties == 0 && found != rounds {
					t.Errorf("%d races found, %d made", found, rounds)
				}
			}
		})
	}
}

// Of races that rest on movs the agent says, like this package, which are between the movs that would order, and which are ordered by such.
func TestAgentOrdered(t *testing.T) {
	a := newAgentDetector(t)
	items := parse(t, twoThreads+`
		T2 w16 0x200 @1
		T2 w4 0x210 @5
		T2 w4 0x100 @2
		T3 r4 0x100 @3
		T3 r16 0x200 @4
		T3 r4 0x210 @6`)
	got := map[uint64]wire.RaceRule{} // by the second access
	for _, f := range a.run(t, items, 0).found {
		got[f.Pc] = f.Rule
	}
	pc := func(i int) uint64 { return items[len(items)-i].access.PC }
	if want := map[uint64]wire.RaceRule{pc(3): wire.RaceRuleDataRaceMov, pc(2): wire.RaceRuleDataRaceOrdered, pc(1): wire.RaceRuleDataRaceOrdered}; !maps.Equal(got, want) {
		t.Errorf("%v, not %v", got, want)
	}
	res, err := Run(inputOf(items), func() World { return plainWorld{} }, Config{})
	if err != nil {
		t.Fatal(err)
	}
	var ordered []string
	for _, r := range res.Races {
		if r.Finding.Ordered {
			ordered = append(ordered, r.Key)
		}
	}
	// What a mov accesses may be an atomic itself, which here is not looked behind.
	if want := []string{pairKey(1, "race", pc(2), items[len(items)-6].access.PC)}; !slices.Equal(ordered, want) {
		t.Errorf("%q, not %q", ordered, want)
	}
}

// The programs of testdata, run at full speed with their accesses told: what the agent's detector finds is what the sources state.
//
// Of six runs one told a race of what an xchg orders that a load waits for. What a thread had told in one time was not told to the detector again; a load that came before the xchg made
// the location an atomic was such, so the later ones, of the same time, acquired nothing.
func TestAgentTold(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: what it runs of the Go code others run, too")
	}
	a := newAgentDetector(t)
	runner, sources := runnerAndSources(t)
	for _, source := range sources {
		t.Run(filepath.Base(source), func(t *testing.T) {
			dir := recordBy(t, "full", runner, build(t, source, "-O1"))
			tr, err := trace.Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer tr.Close()
			sym := image.NewSymbolizer()
			defer sym.Close()
			w := toldWorld{target.New(sym)}
			items := map[uint64][]item{} // by process: each has a detector of its own
			var codes knownCode
			err = Told(tr.Events).Both(func(process uint64, e *wire.Event) error {
				w.Event(process, e)
				items[process] = append(items[process], item{process: process, event: &wire.Event{Type: e.Type, Thread: e.Thread, Words: slices.Clone(e.Words)}})
				return nil
			}, func(x *Access) {
				if codes.of(w, x) == Program {
					items[x.Process] = append(items[x.Process], item{process: x.Process, access: *x})
				}
			})
			if err != nil {
				t.Fatal(err)
			}
			var findings []finding.Finding
			for process, list := range items {
				for _, r := range a.run(t, list, 0).found {
					f := told(w, process, &r)
					w.Symbolize(&f)
					findings = append(findings, f)
				}
			}
			judge(t, source, findings, false, "memcpy") // libc's accesses are not told
		})
	}
}

// told makes a finding of what the agent's detector found.
func told(w World, process uint64, r *wire.EvRace) (f finding.Finding) {
	stack := func(id uint32, pc uint64) finding.Stack {
		if id != 0 {
			return stackAt(w, process, id, pc)
		}
		return finding.Stack{w.Frame(process, pc, false)}
	}
	f.Rule = map[wire.RaceRule]finding.Rule{wire.RaceRuleDataRace: finding.RuleDataRace, wire.RaceRuleFree: finding.RuleDataRace, wire.RaceRuleDataRaceMov: finding.RuleDataRaceMov, wire.RaceRuleDataRaceOrdered: finding.RuleDataRaceMov,
		wire.RaceRuleFreeMov: finding.RuleDataRaceMov, wire.RaceRuleUseAfterFree: finding.RuleUseAfterFree}[r.Rule]
	f.Message = fmt.Sprintf("%+v", *r)
	f.Parts = []finding.Part{{Stack: stack(r.Stack, r.Pc)}, {Stack: stack(r.Stack2, r.Pc2)}}
	return f
}

// randomEvent has values that meet those of others.
func randomEvent(r *rand.Rand, spec *wire.Spec) *wire.Event {
	places, words := spec.Places()
	w := make([]uint64, words)
	w[0] = uint64(spec.ID)
	for i, f := range spec.Fields {
		v := uint64(0)
		switch {
		case f.Kind == wire.Addr || f.Width == 64:
			v = []uint64{0x1000, 0x1000, 0x1000, 0x1000, 0x100000}[r.IntN(5)]
		case f.Kind == wire.Enum && f.Enum == "Object":
			v = []uint64{1, 1, 2, 5, 8}[r.IntN(5)]
		case f.Kind == wire.Thread:
			v = r.Uint64N(4)
		case f.Name == "result" || f.Name == "errno" || f.Kind == wire.Enum:
			v = []uint64{0, 0, 0, 1}[r.IntN(4)]
		case f.Name == "sig":
			v = 10
		default:
			v = r.Uint64N(3)
		}
		if f.Width < 64 {
			v &= 1<<f.Width - 1
		}
		w[places[i].Word] |= v << places[i].Shift
	}
	return &wire.Event{Type: spec.ID, Words: w}
}

func text(items []item) (out []string) {
	for i := range items {
		if e := items[i].event; e != nil {
			out = append(out, fmt.Sprintf("%d T%d %s %x", i+1, e.Thread, e.Type, e.Words[1:]))
			continue
		}
		a := &items[i].access
		out = append(out, fmt.Sprintf("%d T%d kind %d %d@%x pc %x", i+1, a.Thread, a.Kind, a.Size, a.Addr, a.PC))
	}
	return out
}
