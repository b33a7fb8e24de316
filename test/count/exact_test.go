package count

import (
	"bytes"
	"context"
	"debug/elf"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ripstop/ripstop/internal/count"
	"github.com/ripstop/ripstop/internal/image"
	"github.com/ripstop/ripstop/internal/unwind"
	"github.com/ripstop/ripstop/internal/x86"
)

// ripstop is the binary under test.
func ripstop(t *testing.T) string {
	t.Helper()
	path := os.Getenv("RIPSTOP_BINARY")
	if path == "" {
		path, _ = filepath.Abs("../../bin/ripstop")
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("%v; run make first", err)
	}
	return path
}

// A profile is what the tests read of `ripstop count --format json` (docs/formats.md).
type profile struct {
	Modules []struct {
		Path         string
		NotCounted   string `json:"not_counted"`
		Undecoded    uint64 `json:"undecoded_bytes"`
		Instructions []struct {
			Address string
			Tier    string
			Count   uint64
		}
		Missed []struct{ Address, Why string }
	}
	NotCounted []string `json:"not_counted"`
}

// A tally is what was counted of one module, by link-time address.
type tally struct {
	counts map[uint64]uint64
	missed map[uint64]string
	why    string
	dark   uint64 // bytes in which no instructions are known
}

// Counted runs the program under `ripstop count` and gives what it counted, how often sites of each tier ran, and the program's output.
func counted(ctx context.Context, t *testing.T, p *Program, dir string, flags ...string) (modules map[string]tally, sites, hits map[string]uint64, stdout []byte) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "counts.json")
	stdout, err := p.Run(ctx, dir, append(append([]string{ripstop(t), "count", "--format", "json", "-o", file}, flags...), "--")...)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var prof profile
	if err := json.Unmarshal(text, &prof); err != nil {
		t.Fatal(err)
	}
	for _, s := range prof.NotCounted {
		t.Logf("not counted: %s", s)
	}
	address := func(s string) uint64 {
		n, err := strconv.ParseUint(s, 0, 64)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	modules, sites, hits = map[string]tally{}, map[string]uint64{}, map[string]uint64{}
	for _, m := range prof.Modules {
		y := tally{counts: map[uint64]uint64{}, missed: map[uint64]string{}, why: m.NotCounted, dark: m.Undecoded}
		for _, in := range m.Instructions {
			y.counts[address(in.Address)] = in.Count
			sites[in.Tier]++
			hits[in.Tier] += in.Count
		}
		for _, x := range m.Missed {
			y.missed[address(x.Address)] = x.Why
		}
		modules[m.Path] = y
	}
	return modules, sites, hits, stdout
}

// text writes a file of words, the same in every run.
func text(t *testing.T, size int) string {
	t.Helper()
	rnd := rand.New(rand.NewPCG(1, 2))
	var b bytes.Buffer
	for b.Len() < size {
		for range 2 + rnd.IntN(12) {
			for range 1 + rnd.IntN(9) {
				b.WriteByte(byte('a' + min(rnd.IntN(26), rnd.IntN(26))))
			}
			b.WriteByte(' ')
		}
		b.WriteByte('\n')
	}
	file := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(file, b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

// script writes what sqlite3 is to do: tables, joins, text functions, a sort.
func script(t *testing.T, rows int) string {
	t.Helper()
	rnd := rand.New(rand.NewPCG(3, 4))
	var b strings.Builder
	b.WriteString("create table a(k integer primary key, v text, n real);\ncreate table b(k integer, w text);\nbegin;\n")
	for i := range rows {
		fmt.Fprintf(&b, "insert into a values(%d, 'value %d', %d.%d);\ninsert into b values(%d, printf('%%06x', %d));\n", i, rnd.IntN(1000), rnd.IntN(100), rnd.IntN(100), rnd.IntN(rows),
			rnd.IntN(1<<20))
	}
	b.WriteString("commit;\ncreate index bk on b(k);\nselect count(*), sum(n), max(length(v)) from a;\nselect a.v, group_concat(b.w) from a join b on a.k = b.k " +
		"group by a.v order by a.v limit 20;\nselect upper(w), substr(w, 2, 3) from b where w like '%a%' order by w desc limit 10;\n" +
		"update a set n = n * 2 where k % 3 = 0;\ndelete from b where k < 10;\nselect avg(n) from a;\n")
	file := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

// deterministic are programs that do the same in every run.
func deterministic(t *testing.T) map[string]*Program {
	in := text(t, 400_000)
	return map[string]*Program{
		"gzip":    {Path: "/usr/bin/gzip", Args: []string{"-c", "-n", in}},
		"sort":    {Path: "/usr/bin/sort", Args: []string{"--parallel=1", "-S", "1M", "-k", "2", in}},
		"xz":      {Path: "/usr/bin/xz", Args: []string{"-T1", "-2", "-c", in}},
		"sqlite3": {Path: "/usr/bin/sqlite3", Args: []string{":memory:"}, Stdin: script(t, 2000)},
		"kernel":  {Path: build(t, "kernel.c", "-O3", "-mavx2")},
	}
}

// resolvers gives the ranges of functions that choose an implementation, which relocations of type IRELATIVE or symbols of type STT_GNU_IFUNC name. The loader calls them while it
// relocates, before there is anything that could count.
func resolvers(t *testing.T, module string) (list [][2]uint64) {
	t.Helper()
	f, err := elf.Open(module)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	img, err := image.Open(module)
	if err != nil {
		t.Fatal(err)
	}
	defer img.Close()
	functions, err := unwind.Ranges(img)
	if err != nil {
		t.Fatal(err)
	}
	add := func(addr uint64) {
		for _, r := range functions {
			if addr == r[0] {
				list = append(list, r)
			}
		}
	}
	symbols, err := f.DynamicSymbols()
	if err != nil && !errors.Is(err, elf.ErrNoSymbols) {
		t.Fatal(err)
	}
	for _, s := range symbols {
		if elf.ST_TYPE(s.Info) == elf.STT_GNU_IFUNC && s.Section != elf.SHN_UNDEF {
			add(s.Value)
		}
	}
	for _, s := range f.Sections {
		if s.Type != elf.SHT_RELA {
			continue
		}
		b, err := s.Data()
		if err != nil {
			t.Fatal(err)
		}
		for ; len(b) >= 24; b = b[24:] {
			if elf.R_X86_64(binary.LittleEndian.Uint32(b[8:])) == elf.R_X86_64_IRELATIVE {
				add(binary.LittleEndian.Uint64(b[16:]))
			}
		}
	}
	return list
}

// expected gives what of an oracle's executions of a module `ripstop count` must have counted: memory instructions, of stack traffic only if asked for, that
// do not run before there is anything that could count.
func expected(t *testing.T, module string, ran map[uint64]uint64, stack bool) map[uint64]uint64 {
	t.Helper()
	img, err := image.Open(module)
	if err != nil {
		t.Fatal(err)
	}
	defer img.Close()
	want := map[uint64]uint64{}
	early := resolvers(t, module)
	for addr, n := range ran {
		if slices.ContainsFunc(early, func(r [2]uint64) bool { return addr >= r[0] && addr < r[1] }) {
			continue
		}
		in, err := x86.Decode(img.Bytes(addr, x86.MaxLen))
		if err != nil {
			t.Errorf("%s+%#x ran and cannot be decoded: %v", module, addr, err)
			continue
		}
		if a, ok := count.Classify(&in); ok && (stack || a.Kind != count.Stack) {
			want[addr] = n
		}
	}
	return want
}

// The executions that `ripstop count` counts are those that qemu counts, instruction by instruction, with no difference, in the program and all its
// libraries but libc and the loader; and none that ran is missing. The program's output is the native one.
func TestExact(t *testing.T) {
	so := plugin(t)
	for name, p := range deterministic(t) {
		t.Run(name, func(t *testing.T) { exact(t, p, so, false) })
	}
}

// Likewise with stack traffic.
func TestExactStack(t *testing.T) {
	so := plugin(t)
	for name, p := range deterministic(t) {
		t.Run(name, func(t *testing.T) { exact(t, p, so, true) })
	}
}

func exact(t *testing.T, p *Program, so string, stack bool) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	dir := t.TempDir()
	native, err := p.Run(ctx, dir)
	if err != nil {
		t.Fatal(err)
	}
	ran, emulated, err := Emulated(ctx, p, dir, so)
	if err != nil {
		t.Fatal(err)
	}
	var flags []string
	if stack {
		flags = []string{"--stack"}
	}
	got, sites, hits, stdout := counted(ctx, t, p, dir, flags...)
	if !bytes.Equal(native, stdout) || !bytes.Equal(native, emulated) {
		t.Errorf("natively %d bytes of output, counted %d, emulated %d: not the same", len(native), len(stdout), len(emulated))
	}
	for _, module := range slices.Sorted(maps.Keys(ran)) {
		if module == libc || module == loader {
			continue
		}
		want := expected(t, module, ran[module], stack)
		y, ok := got[module]
		if !ok || y.why != "" {
			t.Errorf("%s was not counted: %s", module, y.why)
			continue
		}
		var executed uint64
		for addr, n := range want {
			executed += n
			if _, counted := y.counts[addr]; counted {
				continue
			}
			why, said := y.missed[addr]
			if !said {
				why = "not known to be an instruction"
			}
			t.Errorf("%s+%#x ran %d times and was not counted: %s", module, addr, n, why)
			delete(want, addr)
		}
		ranOurs := maps.Clone(y.counts)
		maps.DeleteFunc(ranOurs, func(_, n uint64) bool { return n == 0 })
		diff := differences(module, want, ranOurs)
		t.Logf("%s: %d memory instructions ran, %d times, %d differ; %d more were counted and never ran, %d could not be", module, len(want), executed, len(diff),
			len(y.counts)-len(ranOurs), len(y.missed))
		for _, line := range diff {
			t.Errorf("emulated, counted: %s", line)
		}
	}
	t.Logf("sites %v, hits %v", sites, hits)
}

// What an oracle says of the programs of TestExact is the same in every run: else equality would be luck.
func TestDeterministic(t *testing.T) {
	so := plugin(t)
	for name, p := range deterministic(t) {
		dir := t.TempDir()
		var runs [2]Executions
		for i := range runs {
			var err error
			if runs[i], _, err = Emulated(context.Background(), p, dir, so); err != nil {
				t.Fatal(err)
			}
		}
		for module := range runs[0] {
			if module == loader || module == libc {
				continue
			}
			for _, line := range differences(module, runs[0][module], runs[1][module]) {
				t.Errorf("%s: first, second: %s", name, line)
			}
		}
	}
}
