package engine

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/ripstop/ripstop/internal/cache"
	"github.com/ripstop/ripstop/internal/image"
	"github.com/ripstop/ripstop/internal/patch"
	"github.com/ripstop/ripstop/internal/tracee"
)

// choosy wants nothing of libraries, and says so of some.
type choosy struct {
	nobody
	idle  func(path string) bool
	asked []string
}

func (*choosy) Unasked() {}
func (c *choosy) Idle(m *Module) bool {
	c.asked = append(c.asked, m.Path)
	return c.idle(m.Path)
}

// Of a library that is idle the file is not opened when it comes again, in another session neither; of one that is not, or is another one since, it is. All of that is found in this process's own map.
func TestIdle(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	file, err := os.ReadFile("/usr/lib/x86_64-linux-gnu/libz.so.1")
	if err != nil {
		if file, err = os.ReadFile("/lib/x86_64-linux-gnu/libm.so.6"); err != nil {
			t.Skip(err)
		}
	}
	dir := t.TempDir()
	paths := []string{filepath.Join(dir, "a.so"), filepath.Join(dir, "b.so")}
	var maps []tracee.Mapping
	const at = 0x7f1234000000
	for i, path := range paths {
		if err := os.WriteFile(path, file, 0o755); err != nil {
			t.Fatal(err)
		}
		img, err := image.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		st, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range img.Segments() {
			if s.Flags&1 != 0 {
				start := uint64(at + i<<24)
				maps = append(maps, tracee.Mapping{Start: tracee.Addr(start), End: tracee.Addr(start + (s.FileSize+patch.PageSize-1)&^(patch.PageSize-1)), Offset: s.Offset, Read: true, Exec: true, Dev: "1:1", Inode: inodeOf(st), Path: path})
			}
		}
		img.Close()
	}
	c := &choosy{idle: func(path string) bool { return path == paths[0] }}
	// find gives which of the modules are known to be idle.
	find := func(e *Engine, times int) (list []bool) {
		for range times {
			p := &Process{PID: os.Getpid(), e: e}
			come, _ := p.find(maps)
			if len(come) != len(paths) {
				t.Fatalf("%d modules", len(come))
			}
			list, c.asked = nil, nil
			for i, m := range come {
				if m.Path != paths[i] || m.Kind != Library || m.Base != uint64(at+i<<24) || m.End <= m.Base {
					t.Fatalf("%+v", m)
				}
				list = append(list, m.Image == nil)
			}
			p.noteIdle(come)
			for _, m := range come {
				m.close()
			}
		}
		return list
	}
	engine := func() *Engine {
		return &Engine{opts: Options{Client: c}, cache: cache.Open("code", cacheMost)}
	}
	e := engine()
	if got := find(e, 2); !slices.Equal(got, []bool{false, false}) || len(c.asked) > 0 {
		t.Errorf("just written: %v, asked of %v", got, c.asked)
	}
	time.Sleep(2100 * time.Millisecond)
	if got := find(e, 1); !slices.Equal(got, []bool{false, false}) || !slices.Equal(c.asked, paths) {
		t.Errorf("first: %v, asked of %v", got, c.asked)
	}
	for _, e := range []*Engine{e, engine()} {
		if got := find(e, 1); !slices.Equal(got, []bool{true, false}) || !slices.Equal(c.asked, paths[1:]) {
			t.Errorf("again: %v, asked of %v", got, c.asked)
		}
	}
	if err := os.Chtimes(paths[0], time.Now(), time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	if got := find(e, 2); got[0] {
		t.Error("changed just now, and still idle")
	}
	time.Sleep(2100 * time.Millisecond)
	if got := find(e, 1); got[0] {
		t.Error("changed, and still idle")
	}
	if got := find(e, 1); !got[0] {
		t.Error("changed, and not known again")
	}
	e = engine()
	e.opts.Orders = true
	if got := find(e, 1); got[0] {
		t.Error("idle, though what orders threads is of interest everywhere")
	}
	e = engine()
	e.opts.Client = &nobody{}
	if got := find(e, 1); got[0] {
		t.Error("idle for a client that is none")
	}
}

// Any bytes are a list of files.
func FuzzIdle(f *testing.F) {
	f.Add(appendIdle(nil, map[idleHash]bool{hashIdle("a"): true, hashIdle("b"): true}))
	f.Add([]byte{1})
	f.Fuzz(func(t *testing.T, b []byte) {
		set := parseIdle(b)
		if again := parseIdle(appendIdle(nil, set)); !maps.Equal(set, again) || len(set) > len(b)/idleSize {
			t.Fatalf("%v is kept as %v", set, again)
		}
	})
}

func inodeOf(st os.FileInfo) uint64 { return st.Sys().(*syscall.Stat_t).Ino }
