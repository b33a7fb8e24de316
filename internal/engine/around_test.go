package engine

import (
	"bytes"
	"debug/elf"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ripstop/ripstop/internal/cache"
	"github.com/ripstop/ripstop/internal/image"
	"github.com/ripstop/ripstop/internal/patch"
)

// unread makes a module of a file as if it lay elsewhere in a process by bias, of which nothing is read yet. got is how many bytes were read since.
func unread(t testing.TB, path string, bias uint64, c *cache.Dir) (m *Module, got *int) {
	t.Helper()
	m, got = moduleOf(t, path, bias, c), new(int)
	m.space = patch.NewSpace([]patch.Range{{Lo: bias - 256<<20, Hi: bias}, {Lo: bias + 128<<20, Hi: bias + 512<<20}})
	memory := map[uint64][]byte{}
	for _, x := range m.texts {
		// Whole pages are mapped.
		x.size = (x.size + patch.PageSize - 1) &^ (patch.PageSize - 1)
		lo, n := x.at, int(x.size)
		memory[lo] = append(x.code, make([]byte, n-len(x.code))...)
		if file := m.Image.Bytes(lo-bias, uint64(n)); len(file) > len(x.code) {
			copy(memory[lo], file)
		}
		x.code = nil
		m.End = x.end()
	}
	m.read = func(at uint64, b []byte) error {
		for lo, code := range memory {
			if at >= lo && at+uint64(len(b)) <= lo+uint64(len(code)) {
				*got += copy(b, code[at-lo:])
				return nil
			}
		}
		return errors.New("nothing is mapped there")
	}
	m.fetch = func(x *text) bool {
		x.code = make([]byte, x.size)
		return m.read(x.at, x.code) == nil
	}
	return m, got
}

// wantedOf gives the link-time addresses of rdtsc and of system calls.
func wantedOf(m *Module) (list []uint64) {
	for _, x := range m.texts {
		for a := x.plan.Next(x.at, x.end()); a < x.end(); a = x.plan.Next(a+1, x.end()) {
			if code := x.code[a-x.at:]; bytes.HasPrefix(code, opSyscall) || bytes.HasPrefix(code, []byte{0x0f, 0x31}) {
				list = append(list, a-m.Bias)
			}
		}
	}
	return list
}

// What is known around places is what is known of the whole module: the same is planned there, the same system calls are guarded, and little of the code is read.
func TestAround(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: planning, by one goroutine")
	}
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	c := cache.Open("code", cacheMost)
	const bias = 0x7f1234000000
	some := 0
	for _, path := range []string{"/usr/lib/x86_64-linux-gnu/libstdc++.so.6", "/usr/lib/x86_64-linux-gnu/libcrypto.so.3", "/usr/bin/python3", "/usr/bin/x264", "/usr/lib/x86_64-linux-gnu/librsvg-2.so.2", "/usr/lib/x86_64-linux-gnu/libgomp.so.1", "/usr/sbin/mariadbd"} {
		if _, err := os.Stat(path); err != nil {
			continue
		}
		all, _ := unread(t, path, bias, nil)
		all.learn()
		places := wantedOf(all)
		if len(places) == 0 || len(places) > 200 {
			t.Logf("%s: %d places", path, len(places))
			continue
		}
		plan := func(m *Module) (list []*patch.Patch) {
			for _, x := range slices.Backward(m.texts) { // as a planner goes
				var add []patch.Site
				for _, at := range places {
					if m.text(at+bias) == x && x.planner.Check(at+bias) == nil {
						add = append(add, patch.Site{At: at + bias, Recipe: bare{}})
					}
				}
				tx, err := x.planner.PlanSome(add)
				if err != nil {
					t.Fatal(err)
				}
				list = append(slices.Clone(tx.New), list...)
				x.planner.Commit(tx)
			}
			return list
		}
		want, guards := plan(all), all.guarded()
		if len(want) == 0 {
			t.Errorf("%s: nothing is planned", path)
		}
		for _, kept := range []bool{false, true} {
			m, got := unread(t, path, bias, c)
			if m.Around(places); !m.learnt || m.partly != kept {
				t.Fatalf("%s: known in part: %v, not %v", path, m.partly, kept)
			}
			if list := m.guarded(); !slices.Equal(list, guards) {
				t.Errorf("%s: %x are guarded, not %x", path, list, guards)
			}
			if list := plan(m); !reflect.DeepEqual(list, want) {
				t.Errorf("%s: %d patches, or others than the %d", path, len(list), len(want))
			}
			if !kept {
				continue
			}
			some++
			if whole := int(m.End - m.Base); *got > whole/2 {
				t.Errorf("%s: %d bytes were read of %d", path, *got, whole)
			}
			known := 0
			m.Instructions(func(*Insn) bool { known++; return true })
			if _, ok := m.Kept("guards"); ok || known == 0 || m.Undecoded() != all.Undecoded() {
				t.Errorf("%s: %d instructions are known; what is kept of all of it is there: %v; %d bytes are not decoded, not %d", path, known, ok, m.Undecoded(), all.Undecoded())
			}
			// Other places are not covered.
			more, _ := unread(t, path, bias, c)
			if more.Around(append([]uint64{more.texts[0].at - bias}, places...)); more.partly {
				t.Errorf("%s: other places are known, too", path)
			}
			// What was asked for then is kept from then on, and fewer are as well.
			for _, list := range [][]uint64{append([]uint64{more.texts[0].at - bias}, places...), places} {
				more, _ = unread(t, path, bias, c)
				if more.Around(list); !more.partly {
					t.Errorf("%s: places that were asked for are not known", path)
				}
			}
		}
	}
	if some < 2 {
		t.Errorf("%d modules", some)
	}
}

// Of another file, and of code that is not the file's, nothing is believed.
func TestAroundOther(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	c := cache.Open("code", cacheMost)
	const from = "/usr/lib/x86_64-linux-gnu/libstdc++.so.6"
	file, err := os.ReadFile(from)
	if err != nil {
		t.Skip(err)
	}
	path := filepath.Join(t.TempDir(), "lib.so")
	if err := os.WriteFile(path, file, 0o644); err != nil {
		t.Fatal(err)
	}
	const bias = 0x7f1234000000
	var places []uint64
	ask := func(m *Module, want bool, what string) {
		t.Helper()
		if m.Around(places); m.partly != want || want && !m.learnt {
			t.Errorf("%s: known in part: %v", what, m.partly)
		}
	}
	m, _ := unread(t, path, bias, nil)
	m.learn()
	x := m.texts[0]
	at := x.plan.Next(x.at+x.size/2, x.end())
	places = []uint64{at - bias}
	if err := os.Chtimes(path, time.Now(), time.Now()); err != nil { // to find out all can take longer than a file takes to settle
		t.Fatal(err)
	}
	m, _ = unread(t, path, bias, c)
	if ask(m, false, "just written"); m.learnt {
		t.Error("what was written just now is looked at")
	}
	time.Sleep(2100 * time.Millisecond)
	fresh := func() *Module { m, _ := unread(t, path, bias, c); return m }
	ask(fresh(), false, "first")
	ask(fresh(), true, "again")
	m, _ = unread(t, path, bias+1<<20, c)
	ask(m, true, "elsewhere")
	m = fresh()
	m.read = nil
	ask(m, false, "of a client that may ask for any instruction")
	m = fresh()
	read := m.read
	m.read = func(a uint64, b []byte) error {
		err := read(a, b)
		if i := at - a; i < uint64(len(b)) {
			b[i] ^= 1
		}
		return err
	}
	ask(m, false, "code that was changed in memory")
	if !m.learnt || m.texts[0].code[at-x.at] != x.code[at-x.at]^1 {
		t.Error("the code is not that of the process")
	}
	ask(fresh(), true, "and then")
	if err := os.Chtimes(path, time.Now(), time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	time.Sleep(2100 * time.Millisecond)
	ask(fresh(), false, "changed since")
	ask(fresh(), true, "changed since, again")
	m = fresh()
	if err := os.Chtimes(path, time.Now(), time.Unix(2, 0)); err != nil {
		t.Fatal(err)
	}
	c2 := cache.Open("other", cacheMost)
	m.cache = c2
	ask(m, false, "changed meanwhile")
	if _, ok := c2.Load(m.aroundName()); ok {
		t.Error("it is kept of a file that changed meanwhile")
	}
}

// Any bytes are refused, or leave a module that can be asked and planned for.
func FuzzAround(f *testing.F) {
	const path, bias = "/bin/true", 0x7f1234000000
	img, err := image.Open(path)
	if err != nil {
		f.Fatal(err)
	}
	defer img.Close()
	var code []byte
	var base uint64
	for _, s := range img.Segments() {
		if s.Flags&elf.PF_X != 0 {
			base, code = s.Addr+bias, img.Bytes(s.Addr, s.FileSize)
		}
	}
	code = append(code, make([]byte, -len(code)&(patch.PageSize-1))...)
	module := func() *Module {
		m := &Module{Image: img, Bias: bias, Base: base, End: base + uint64(len(code)), closed: new(atomic.Bool), space: patch.NewSpace([]patch.Range{{Lo: bias + 1<<20, Hi: bias + 64<<20}})}
		m.texts = []*text{{at: base, size: uint64(len(code))}}
		m.read = func(at uint64, b []byte) error {
			if at < base || at+uint64(len(b)) > m.End {
				return errors.New("nothing is mapped there")
			}
			copy(b, code[at-base:])
			return nil
		}
		m.fetch = func(x *text) bool { x.code = bytes.Clone(code); return true }
		return m
	}
	m := module()
	m.learn()
	for _, n := range []uint64{0, 0x800, 0x1800} {
		f.Add(m.appendAround(nil, nil, []uint64{base - bias + n}), base-bias+n)
	}
	at := m.texts[0].plan.Next(base, m.End)
	f.Add(m.appendAround(nil, []guarded{{at - bias, uint8(m.texts[0].plan.Len(at))}}, []uint64{base - bias}), at-bias)
	f.Fuzz(func(t *testing.T, b []byte, place uint64) {
		a, err := parseAround(b)
		if err != nil {
			return
		}
		m := module()
		covered := m.covers(a, []uint64{place})
		if !m.take(a) {
			if m.learnt || m.partly || len(m.texts) != 1 || m.texts[0].code != nil {
				t.Fatal("what was refused is believed")
			}
			return
		}
		m.guarded()
		if in, ok := m.Instruction(place + bias); ok && covered && !bytes.HasPrefix(code[place+bias-base:], in.Code[:in.Inst.Len]) {
			t.Fatalf("another instruction at %#x", place)
		}
		for _, x := range m.texts {
			var add []patch.Site
			for a := x.plan.Next(x.at, x.end()); a < x.end() && len(add) < 50; a = x.plan.Next(a+1, x.end()) {
				if x.planner.Check(a) == nil {
					add = append(add, patch.Site{At: a, Recipe: bare{}})
				}
			}
			if _, err := x.planner.PlanSome(add); err != nil {
				t.Fatal(err)
			}
		}
	})
}
