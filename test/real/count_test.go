package real

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/ripstop/ripstop/test/real/drive"
)

// counts is what is needed here of a profile of `ripstop count`.
type counts struct {
	Tiers []struct {
		Tier            string
		Sites, Executed uint64
	}
	Modules []struct {
		Path      string
		Undecoded uint64 `json:"undecoded_bytes"`
		// they are many: nothing else of them is read
		Instructions []struct{ Tier string }
		Missed       []struct{ Why string }
	}
	NotCounted []string `json:"not_counted"`
}

// soak are the programs whose code takes minutes to plan patches for, or that have many children, each planned anew: only with RIPSTOP_SOAK.
var soak = []string{"x264", "python-threading", "python-futures", "mariadb", "cc1"}

// TestCounted: programs give the native results with every memory instruction of theirs and of their libraries patched, but those of libc and the loader; and with libc's too.
// Of the sites at most 0.3% need int3, of their executions at most 0.1%, in each run: redis executed 0.19% by int3 in every other one, at a site of writeToClient behind a lock prefix, whose only
// place the kernel had chosen for the heap. libc and ld.so have none at all: with signals blocked it would kill.
// With RIPSTOP_SOAK=1 it is 50 runs of each, or RIPSTOP_RUNS, for the hours that machine time comes in pieces.
func TestCounted(t *testing.T) {
	if os.Getenv("RIPSTOP_REAL") == "" {
		t.Skip("real programs run by make test-real (RIPSTOP_REAL=1)")
	}
	ripstop, err := filepath.Abs(filepath.Join(root, "bin/ripstop"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(ripstop); err != nil {
		t.Fatalf("%v; run make first", err)
	}
	rounds, long := 1, os.Getenv("RIPSTOP_SOAK") != ""
	if long {
		rounds = 50
		if v := os.Getenv("RIPSTOP_RUNS"); v != "" {
			if rounds, err = strconv.Atoi(v); err != nil || rounds < 1 {
				t.Fatalf("RIPSTOP_RUNS=%q: it takes a number of runs, 1 or more", v)
			}
		}
	}
	shared := directory(t)
	for _, p := range append(drive.Programs(), drive.Single()...) {
		if !long && slices.Contains(soak, p.Name) {
			continue
		}
		t.Run(p.Name, func(t *testing.T) {
			native := once(t, p, drive.Job{Mode: drive.Native, Size: drive.Small, Shared: shared})
			for _, pass := range []struct {
				name  string
				flags []string
			}{{"program", nil}, {"libc", []string{"--libc"}}} {
				t.Run(pass.name, func(t *testing.T) {
					for range rounds {
						job := drive.Job{Mode: drive.Count, Size: drive.Small, Shared: shared, Ripstop: ripstop, Flags: pass.flags, Dir: directory(t)}
						same(t, native, once(t, p, job))
						tiers(t, &job)
					}
				})
			}
		})
	}
}

// Of the memory instructions of a module at most so many may be missed, because they cannot be patched, and so many bytes of its code be unknown: twice what it is of the worst large one and of the
// worst small one (23 November: libc 34 of 84,934, libfreetype 33 of 39,593, libsasl2 15 of 4,136; nothing is unknown).
const (
	mayMissOf  = 500 // one of so many
	mayMissFew = 30
)

// tiers checks how sites were patched, that there were some, and that nearly all are.
func tiers(t *testing.T, job *drive.Job) {
	t.Helper()
	for _, file := range glob(t, job.Dir, filepath.Base(job.Counts())) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var c counts
		if err := json.Unmarshal(text, &c); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		os.Remove(file) // it is large
		var sites, executed, traps, trapped uint64
		for _, tier := range c.Tiers {
			t.Logf("%-17s %9d sites %14d executed", tier.Tier, tier.Sites, tier.Executed)
			sites, executed = sites+tier.Sites, executed+tier.Executed
			if tier.Tier == "int3" {
				traps, trapped = tier.Sites, tier.Executed
			}
		}
		for _, m := range c.Modules {
			traps := 0
			for _, in := range m.Instructions {
				if in.Tier == "int3" {
					traps++
				}
			}
			if base := filepath.Base(m.Path); traps > 0 && (strings.HasPrefix(base, "libc.so") || strings.HasPrefix(base, "ld-linux")) {
				t.Errorf("%s: int3 at %d instructions; it blocks all signals at times, and then an int3 kills", m.Path, traps)
			}
			why := map[string]int{}
			for _, x := range m.Missed {
				why[x.Why]++
			}
			wanted := len(m.Instructions) + len(m.Missed)
			most := max(wanted/mayMissOf, mayMissFew)
			const each = 10 // bytes of code have some such instruction: fewer than those of any program here
			if len(m.Missed) > most || m.Undecoded > uint64(each*most) {
				t.Errorf("%s: of %d memory instructions missed %v, %d bytes unknown; at most %d, and %d bytes", m.Path, wanted, why, m.Undecoded, most, each*most)
			} else if len(why) > 0 || m.Undecoded > 0 {
				t.Logf("%s: of %d missed %v, %d bytes unknown", m.Path, wanted, why, m.Undecoded)
			}
		}
		for _, s := range c.NotCounted {
			t.Logf("not counted: %s", s)
		}
		switch {
		case sites < 100 || executed < 1000:
			t.Errorf("only %d sites, %d executed: the program was not counted", sites, executed)
		case 1000*traps > 3*sites || 1000*trapped > executed:
			t.Errorf("int3 at %d of %d sites, %d of %d executed", traps, sites, trapped, executed)
		}
	}
}
