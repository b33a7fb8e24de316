package engine

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"sync"
	"testing"

	"github.com/ripstop/ripstop/internal/cache"
	"github.com/ripstop/ripstop/internal/image"
	"github.com/ripstop/ripstop/internal/patch"
)

const aLibrary, another = "/lib/x86_64-linux-gnu/libc.so.6", "/lib/x86_64-linux-gnu/libm.so.6"

// unreadOf makes a module whose code is in a process's memory, where change may have changed it, and not read yet; read says how much of it was taken into memory of its own.
func unreadOf(t *testing.T, path string, bias uint64, r *recalls, c *cache.Dir, change func(*Module)) (m *Module, read *int) {
	t.Helper()
	m, read = moduleOf(t, path, bias, c), new(int)
	m.recalls = r
	if change != nil {
		change(m)
	}
	memory := map[*text][]byte{}
	for _, x := range m.texts {
		memory[x], x.code = x.code, nil
	}
	m.fetch = func(x *text) bool {
		*read += len(memory[x])
		x.code = memory[x]
		return true
	}
	m.same = func(at uint64, code []byte) bool { return bytes.Equal(memory[m.text(at)], code) }
	return m, read
}

func flip(at int) func(*Module) {
	return func(m *Module) { m.texts[0].code[(len(m.texts[0].code)+at)%len(m.texts[0].code)] ^= 1 }
}

// A session finds out once what a module's file is, and what is known of its code: another process's module of the same file is known by its code, wherever it lies, and not if a byte differs, if it has other segments, or if the file is another one.
func TestRecalled(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	var r recalls
	type known struct {
		hash      string
		text      []byte
		undecoded uint64
	}
	know := func(path string, bias uint64, r *recalls, change func(*Module)) (k known, m *Module, recalled bool) {
		t.Helper()
		m, read := unreadOf(t, path, bias, r, nil, change)
		m.learn()
		for _, x := range m.texts {
			k.text = x.plan.AppendKnown(k.text)
		}
		if recalled = *read == 0; recalled != m.fromCache {
			t.Errorf("read anew: %v; known from elsewhere: %v", !recalled, m.fromCache)
		}
		k.hash, k.undecoded = m.hash, m.undecoded
		return k, m, recalled
	}
	anew, _, _ := know(aLibrary, 0x7f0000000000, nil, nil)
	var first *Module
	for i, bias := range []uint64{0x7f1234567000, 0x7f1111111000, 0x7f1111111000} {
		k, m, recalled := know(aLibrary, bias, &r, nil)
		if !reflect.DeepEqual(k, anew) || recalled != (i > 0) {
			t.Errorf("process %d: %s, want %s; recalled: %v", i, k.hash, anew.hash, recalled)
		}
		if first == nil {
			first = m
		}
		if &m.texts[0].code[0] != &first.texts[0].code[0] {
			t.Errorf("process %d has the code in memory of its own", i)
		}
	}
	for name, change := range map[string]func(*Module){
		"the first byte": flip(0), "the last byte": flip(-1), "a byte": flip(0x12345),
		"a segment": func(m *Module) {
			m.texts[0].at, m.texts[0].size, m.texts[0].code = m.texts[0].at+0x1000, m.texts[0].size-0x1000, m.texts[0].code[0x1000:]
		},
	} {
		want, _, _ := know(aLibrary, 0x7f0000000000, nil, change)
		if k, _, recalled := know(aLibrary, 0x7f1234567000, &r, change); !reflect.DeepEqual(k, want) || k.hash == anew.hash || recalled {
			t.Errorf("%s is another: %s, want %s; recalled: %v", name, k.hash, want.hash, recalled)
		}
	}
	if k, _, recalled := know(another, 0x7f1234567000, &r, nil); k.hash == anew.hash || recalled {
		t.Errorf("another file: recalled: %v", recalled)
	}
	// One that was just written may be written again with nobody the wiser: a library of the same content that takes its place is not believed to be it.
	b, err := os.ReadFile(another)
	if err != nil {
		t.Fatal(err)
	}
	fresh := filepath.Join(t.TempDir(), "libm.so.6")
	if err := os.WriteFile(fresh, b, 0o644); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, _, recalled := know(fresh, 0x7f1234567000, &r, nil); recalled {
			t.Error("a file is recalled that was just written")
		}
	}
}

// What processes have in common none of them changes: a text of which more becomes known has it for itself.
func TestRecalledIsCommon(t *testing.T) {
	var r recalls
	plan := func(m *Module) []*patch.Patch {
		m.space = patch.NewSpace([]patch.Range{{Lo: m.Bias - 256<<20, Hi: m.Bias}})
		m.learn()
		x := m.texts[0]
		var add []patch.Site
		for a := x.plan.Next(x.at, x.end()); a < x.end() && len(add) < 4000; a = x.plan.Next(a+1, x.end()) {
			if x.planner.Check(a) == nil {
				add = append(add, patch.Site{At: a, Recipe: bare{}})
			}
		}
		tx, err := x.planner.PlanSome(add)
		if err != nil {
			t.Fatal(err)
		}
		x.planner.Commit(tx)
		return tx.New
	}
	const bias = 0x7f1234000000
	want := plan(moduleOf(t, aLibrary, bias, nil))
	for i := range 3 {
		m, _ := unreadOf(t, aLibrary, bias, &r, nil, nil)
		if got := plan(m); !reflect.DeepEqual(got, want) {
			t.Fatalf("process %d: %d patches, or others than the %d", i, len(got), len(want))
		}
		x := m.texts[0] // more is found out, by a bug
		x.plan.Enter(x.at + 0x1001)
		x.plan.AddFunction(x.at+0x1001, x.at+0x1041)
		x.plan.Complete()
	}
}

// Several processes may come at once.
func TestRecalledAtOnce(t *testing.T) {
	var r recalls
	var all sync.WaitGroup
	hashes := make([]string, 6)
	for i := range hashes {
		m, _ := unreadOf(t, aLibrary, 0x7f1234567000+uint64(i)<<20, &r, nil, nil)
		all.Go(func() {
			m.learn()
			m.Recalled("test", func() any { return i })
			n := 0
			m.Instructions(func(*Insn) bool { n++; return n < 1000 })
			hashes[i] = fmt.Sprint(m.hash, n, m.Recalled("other", func() any { return 0 }))
		})
	}
	all.Wait()
	if len(slices.Compact(hashes)) != 1 {
		t.Errorf("%q", hashes)
	}
}

// What a client finds in a module it is asked for once, of each code; what is found while a process ends may be a part.
func TestRecalledFinds(t *testing.T) {
	var r recalls
	found := 0
	find := func(change func(*Module), closed bool) int {
		m, _ := unreadOf(t, aLibrary, 0x7f1234567000, &r, nil, change)
		m.learn()
		m.closed.Store(closed)
		return m.Recalled("test", func() any { found++; return found }).(int)
	}
	var got []int
	for _, x := range []struct {
		change func(*Module)
		closed bool
	}{{nil, true}, {nil, false}, {nil, false}, {flip(100), false}, {flip(100), false}, {nil, false}, {nil, false}} {
		got = append(got, find(x.change, x.closed))
	}
	// The code that was there last is remembered.
	if want := []int{1, 2, 2, 3, 3, 4, 4}; !slices.Equal(got, want) {
		t.Errorf("%v, not %v", got, want)
	}
	m, _ := unreadOf(t, aLibrary, 0x7f1234567000, nil, nil, nil)
	for i := range 2 {
		if n := m.Recalled("test", func() any { found++; return found }).(int); n != 5+i {
			t.Errorf("where nothing is remembered: %d", n)
		}
	}
}

// The vdso has no file: it is known by its code alone, which is all of it.
func TestRecalledVDSO(t *testing.T) {
	var r recalls
	know := func(change func(*Module), part bool) bool {
		m, read := unreadOf(t, another, 0x7f1234567000, &r, nil, change)
		m.Kind = VDSO
		if part {
			m.End += patch.PageSize
		}
		m.Image = nameless(t, another)
		m.learn()
		return *read == 0
	}
	for i, x := range []struct {
		change   func(*Module)
		part     bool
		recalled bool
	}{{nil, false, false}, {nil, false, true}, {flip(7), false, false}, {nil, true, false}, {nil, true, false}} {
		if recalled := know(x.change, x.part); recalled != x.recalled {
			t.Errorf("%d: recalled: %v", i, recalled)
		}
	}
}

// The memory of what is remembered is bounded, and counted with what is known.
func TestRecalledIsBounded(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: by one goroutine, nothing for the race detector")
	}
	var r recalls
	sum := func() (n int) {
		for _, x := range r.by {
			for i, code := range x.code {
				if n += len(code); x.plans != nil {
					n += patch.KnownSize(len(x.code[i]))
				}
			}
		}
		return n
	}
	most := 0
	for i := range 16 {
		m, _ := unreadOf(t, another, 0x7f1234567000, &r, nil, func(m *Module) { // another one each time, or the last one with other code
			m.Base -= uint64(i/2) * patch.PageSize
			m.texts[0].code = bytes.Repeat([]byte{0xf4}, 3<<20)
			m.texts[0].code[i] = 0x90
			m.texts[0].size = 3 << 20
		})
		m.learn()
		if n := sum(); n != r.bytes || n > recallMost {
			t.Fatalf("%d bytes are remembered, counted as %d", n, r.bytes)
		}
		most = max(most, r.bytes)
	}
	if most < recallMost/2 {
		t.Errorf("at most %d bytes", most)
	}
	m, _ := unreadOf(t, another, 0x7f1234567000, &r, nil, func(m *Module) { m.texts[0].code = make([]byte, recallMost/4+1); m.texts[0].size = recallMost/4 + 1 })
	before := r.bytes
	if m.learn(); r.bytes != before {
		t.Error("one is remembered that is too large")
	}
}

// nameless is a file's image as if it were read from memory.
func nameless(t *testing.T, path string) *image.Image {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	img, err := image.FromMemory("[vdso]", b)
	if err != nil {
		t.Fatal(err)
	}
	return img
}
