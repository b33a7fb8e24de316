package count

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/pprof/profile"

	"github.com/ripstop/ripstop/internal/finding"
	"github.com/ripstop/ripstop/internal/image"
	"github.com/ripstop/ripstop/internal/patch"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// names knows a program with an inlined function, and a library without debug information.
type names struct{}

func (names) Frames(module, _ string, addr uint64) []finding.Frame {
	switch {
	case module == "/bin/prog" && addr < 0x1100:
		return []finding.Frame{{Func: "main", File: "src/main.c", Line: int(addr & 0xff)}}
	case module == "/bin/prog":
		return []finding.Frame{{Func: "get", File: "src/table.h", Line: 7, Inlined: true}, {Func: "main", File: "src/main.c", Line: 3}}
	case addr < 0x2100:
		return []finding.Frame{{Func: "lookup\x1b[2J", Symbol: "_Z6lookupv"}}
	}
	return []finding.Frame{{}}
}

// sample is a profile of two modules that were counted and one that was not.
func sample() *Profile {
	p := &Profile{Command: []string{"prog", "-x"}, Version: "1.2.3", Ended: "exit status 0", Processes: []Process{{10, "/bin/prog"}, {11, "/bin/prog"}},
		NotCounted: []string{"what prog does after the program's end"}}
	add := func(m *Module, addr uint64, op string, k Kind, size uint16, tier patch.Tier, n uint64) {
		m.add([]Inst{{addr, op, Access{k, size}, tier, n}})
	}
	lib := p.module("/lib/libx.so", "bb")
	lib.start, lib.end, lib.off = 0x2000, 0x3000, 0x2000
	add(lib, 0x2008, "add", ReadWrite, 4, patch.TierTrap, 1)
	add(lib, 0x2000, "mov", Load, 8, patch.TierPun, 70)
	add(lib, 0x2200, "mov", Store, 8, patch.TierPun, 2)
	lib.Missed = []Missed{{0x2400, "cmpxchg", Access{Locked, 8}, "a call"}, {0x2300, "mov", Access{Load, 8}, "no memory"}, {0x2300, "mov", Access{Load, 8}, "no memory"}}
	lib.Undecoded = 12
	prog := p.module("/bin/prog", "aa")
	prog.start, prog.end, prog.off = 0x1000, 0x2000, 0x1000
	add(prog, 0x1001, "mov", Load, 8, patch.TierJump, 1000)
	add(prog, 0x1001, "mov", Load, 8, patch.TierJump, 234567) // of the second process
	add(prog, 0x1002, "movsb", String, 1, patch.TierJump, 5)
	add(prog, 0x1003, "mov", Store, 4, patch.TierJump, 0)
	add(prog, 0x1100, "mov", Store, 4, patch.TierJump, 300)
	add(prog, 0x1108, "xchg", Locked, 4, patch.TierJump, 20)
	p.module("/lib/libc.so.6", "cc").Why = "libc: --libc counts it"
	p.sort()
	return p
}

// The text is what the golden file shows; -update rewrites it.
func TestText(t *testing.T) {
	for _, top := range []int{0, 1} {
		var b bytes.Buffer
		if err := sample().WriteText(&b, names{}, top); err != nil {
			t.Fatal(err)
		}
		golden := filepath.Join("testdata", fmt.Sprintf("text%d.golden", top))
		if *update {
			if err := os.WriteFile(golden, b.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(b.Bytes(), want) {
			t.Errorf("%s:\n%s", golden, b.Bytes())
		}
	}
	var b bytes.Buffer
	if err := (&Profile{}).WriteText(&b, names{}, 0); err != nil || !strings.Contains(b.String(), "0 memory instructions ran in 0 modules of 0 processes") {
		t.Errorf("of nothing: %v\n%s", err, b.String())
	}
}

// The JSON has every instruction with its count, and its sums fit.
func TestJSON(t *testing.T) {
	var b bytes.Buffer
	if err := sample().WriteJSON(&b, names{}); err != nil {
		t.Fatal(err)
	}
	var got jsonProfile
	d := json.NewDecoder(&b)
	d.DisallowUnknownFields()
	if err := d.Decode(&got); err != nil {
		t.Fatal(err)
	}
	if got.Type != "count" || got.Version != 1 || len(got.Modules) != 3 || got.Modules[1].NotCounted == "" || len(got.Modules[2].Missed) != 2 {
		t.Errorf("%+v", got)
	}
	if fmt.Sprint(got.Tiers) != "[{jump 5 235892} {pun 2 72} {padded 0 0} {evicted successor 0 0} {evicted neighbour 0 0} {int3 1 1}]" {
		t.Errorf("tiers %v", got.Tiers)
	}
	total, places := map[string]uint64{}, map[string]uint64{}
	for i, m := range got.Modules {
		for _, in := range m.Instructions {
			total[in.Kind] += in.Count
			if (in.Count > 0) != (in.Place >= 0) || in.Place >= 0 && got.Places[in.Place].Module != i {
				t.Errorf("instruction %+v of module %d has another's place", in, i)
			}
		}
	}
	for _, p := range got.Places {
		for k, n := range p.Counts {
			places[k] += n
		}
	}
	if got.Counts["load"] != 235637 || fmt.Sprint(total) != fmt.Sprint(map[string]uint64{"load": 235637, "store": 302, "read-write": 1, "locked": 20, "string": 5}) {
		t.Errorf("counts %v, of instructions %v", got.Counts, total)
	}
	if fmt.Sprint(places) != fmt.Sprint(got.Counts) || fmt.Sprint(total) != fmt.Sprint(got.Counts) {
		t.Errorf("counts %v, of instructions %v, of places %v", got.Counts, total, places)
	}
	inlined := false
	for _, p := range got.Places {
		inlined = inlined || len(p.Stack) == 2 && p.Stack[0].Function == "get" && p.Stack[1].Line == 3 && p.Counts["store"] == 300
	}
	if !inlined {
		t.Errorf("no place in an inlined function: %+v", got.Places)
	}
}

// The profile is valid, pprof's own tool reads it, and shows the inlined function, kind by kind.
func TestPprof(t *testing.T) {
	file := filepath.Join(t.TempDir(), "p.pb.gz")
	var b bytes.Buffer
	if err := sample().WritePprof(&b, names{}); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	p, err := profile.ParseData(b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	if err := p.CheckValid(); err != nil {
		t.Fatal(err)
	}
	if len(p.Mapping) != 2 || p.Mapping[0].BuildID != "aa" || p.Mapping[0].File != "/bin/prog" || len(p.Sample) != 7 {
		t.Errorf("%v", p)
	}
	for _, c := range []struct{ index, want string }{
		{"", "235572 99.83% 99.83%     235892   100%  main"}, {"store", "300 99.34% 99.34%        300 99.34%  get (inline)"}, {"locked", "20   100%   100%         20   100%  get (inline)"},
	} {
		args := []string{"tool", "pprof", "-top", "-sample_index=" + c.index, file}
		if c.index == "" {
			args = []string{"tool", "pprof", "-top", file}
		}
		out, err := exec.Command("go", args...).CombinedOutput()
		if err != nil || !strings.Contains(string(out), c.want) {
			t.Errorf("pprof %v: %v\n%s", args, err, out)
		}
	}
}

// The counts of processes add up by address, whatever of a module each of them counted.
func TestAdd(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 6))
	for range 200 {
		m, want := &Module{}, map[uint64]uint64{}
		var same []Inst
		for range 4 {
			var list []Inst
			for a := range uint64(20) {
				if rnd.IntN(3) > 0 {
					list = append(list, Inst{Addr: a, Count: uint64(rnd.IntN(100))})
				}
			}
			if rnd.IntN(2) > 0 && same != nil {
				list = slices.Clone(same)
			}
			same = slices.Clone(list)
			m.add(list)
			for _, in := range list {
				want[in.Addr] += in.Count
			}
		}
		got := map[uint64]uint64{}
		for i, in := range m.Insts {
			got[in.Addr] = in.Count
			if i > 0 && m.Insts[i-1].Addr >= in.Addr {
				t.Fatalf("out of order: %v", m.Insts)
			}
		}
		if !maps.Equal(got, want) {
			t.Fatalf("%v, want %v", got, want)
		}
	}
}

// All that ran in a stripped program was one line, '? (sort)': its functions are told apart by where they begin, which .eh_frame says.
func TestStripped(t *testing.T) {
	dir := t.TempDir()
	source, exe := filepath.Join(dir, "two.c"), filepath.Join(dir, "two")
	text := "__attribute__((noinline)) int one(int *p) { return *p + 1; }\n__attribute__((noinline)) int two(int *p) { return *p * 3; }\nint main(int n, char **v) { return one(&n) + two(&n) - 5; }\n"
	if err := os.WriteFile(source, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("gcc", "-O1", "-o", exe, source).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	img, err := image.Open(exe)
	if err != nil {
		t.Fatal(err)
	}
	at := map[string]uint64{}
	for _, name := range []string{"one", "two"} {
		for _, r := range img.Functions() {
			if s, ok := img.Symbol(r[0]); ok && s.Name == name {
				at[name] = r[0]
			}
		}
	}
	id := img.BuildID()
	img.Close()
	if at["one"] == 0 || at["two"] == 0 {
		t.Fatalf("%v", at)
	}
	if out, err := exec.Command("strip", "-s", exe).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	p := &Profile{}
	m := p.module(exe, id)
	m.add([]Inst{{at["one"], "mov", Access{Load, 4}, patch.TierJump, 5}, {at["one"] + 2, "mov", Access{Load, 4}, patch.TierJump, 1}, {at["two"] + 3, "mov", Access{Load, 4}, patch.TierJump, 7}, {8, "mov", Access{Load, 4}, patch.TierJump, 2}})
	want := []Place{{Module: m, Start: at["two"], Counts: Counts{Load: 7}}, {Module: m, Start: at["one"], Counts: Counts{Load: 6}}, {Module: m, Counts: Counts{Load: 2}}}
	if got := p.Functions(nameless{}); !slices.Equal(got, want) {
		t.Errorf("%+v, not %+v", got, want)
	}
	var b bytes.Buffer
	if err := p.WriteText(&b, nameless{}, 0); err != nil || !strings.Contains(b.String(), fmt.Sprintf("  two+%#x\n", at["two"])) || !strings.Contains(b.String(), "  ? (two)\n") {
		t.Errorf("%v\n%s", err, b.String())
	}
	m.BuildID = "another" // the file is another one by now
	if got := p.Functions(nameless{}); len(got) != 1 || got[0].Start != 0 {
		t.Errorf("%+v", got)
	}
}

type nameless struct{}

func (nameless) Frames(string, string, uint64) []finding.Frame { return []finding.Frame{{}} }
