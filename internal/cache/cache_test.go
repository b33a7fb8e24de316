package cache

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func open(t *testing.T, most int64) *Dir {
	t.Helper()
	d := openAt(filepath.Join(t.TempDir(), "c"), most)
	if d.dir == "" {
		t.Fatal("no cache")
	}
	return d
}

// What is stored comes back, by another session too; a file of which anything was changed, or that has another one's name, is nothing and goes.
func TestLoad(t *testing.T) {
	d := open(t, 1<<20)
	want := bytes.Repeat([]byte("what was made"), 100)
	d.Store("a", want[:10], want[10:])
	d.Store("b", []byte("other"))
	again := openAt(d.dir, 1<<20)
	if b, ok := again.Load("a"); !ok || !bytes.Equal(b, want) {
		t.Fatalf("%q, %v", b, ok)
	}
	file := filepath.Join(d.dir, "a")
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	other, err := os.ReadFile(filepath.Join(d.dir, "b"))
	if err != nil {
		t.Fatal(err)
	}
	bad := [][]byte{nil, whole[:10], whole[:len(whole)-1], append(bytes.Clone(whole), 0), other}
	for i := range whole {
		b := bytes.Clone(whole)
		b[i] ^= 1
		bad = append(bad, b)
	}
	for i, b := range bad {
		if err := os.WriteFile(file, b, 0o600); err != nil {
			t.Fatal(err)
		}
		if got, ok := d.Load("a"); ok {
			t.Fatalf("file %d passes: %q", i, got)
		}
		if _, err := os.Stat(file); err == nil {
			t.Fatalf("file %d is still there", i)
		}
	}
	if _, ok := d.Load("never"); ok {
		t.Error("something that was not stored")
	}
}

// The key is the user's alone, and so is the directory: otherwise there is no cache. Another key knows nothing of the files.
func TestKey(t *testing.T) {
	d := open(t, 1<<20)
	d.Store("a", []byte("x"))
	key := filepath.Join(d.dir, keyName)
	if err := os.Chmod(key, 0o640); err != nil {
		t.Fatal(err)
	}
	if openAt(d.dir, 1<<20).dir != "" {
		t.Error("others may read the key")
	}
	if err := os.Remove(key); err != nil {
		t.Fatal(err)
	}
	if _, ok := openAt(d.dir, 1<<20).Load("a"); ok {
		t.Error("another key fits")
	}
	if err := os.Chmod(d.dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if openAt(d.dir, 1<<20).dir != "" {
		t.Error("others may write to the directory")
	}
	var none *Dir
	none.Store("a", []byte("x"))
	if _, ok := none.Load("a"); ok {
		t.Error("nil has something")
	}
}

// A session loads the same for each of its processes: what is small it reads once. It is the caller's each time, and what is stored replaces it.
func TestHeld(t *testing.T) {
	d := open(t, 1<<30)
	load := func(id string, want []byte) {
		t.Helper()
		if b, ok := d.Load(id); ok != (want != nil) || !bytes.Equal(b, want) {
			t.Errorf("%s: %.20q, %v, want %.20q", id, b, ok, want)
		} else {
			clear(b)
		}
	}
	gone := func(id string) {
		t.Helper()
		if err := os.Remove(filepath.Join(d.dir, id)); err != nil {
			t.Fatal(err)
		}
	}
	d.Store("a", []byte("first"))
	load("a", []byte("first"))
	gone("a")
	load("a", []byte("first"))
	load("a", []byte("first"))
	d.Store("a", []byte("second"))
	load("a", []byte("second"))
	large := bytes.Repeat([]byte{1}, heldLong+1)
	d.Store("large", large)
	load("large", large)
	gone("large")
	load("large", nil)
	for i := range 2 * heldMost / heldLong {
		id := fmt.Sprint(i)
		d.Store(id, large[:heldLong])
		load(id, large[:heldLong])
		if d.bytes > heldMost {
			t.Fatalf("%d bytes are held", d.bytes)
		}
	}
	d.hold("0", large[:100]) // as two processes do at once
	d.hold("0", large[:100])
	sum := 0
	for _, b := range d.held {
		sum += len(b)
	}
	if sum != d.bytes || sum == 0 {
		t.Errorf("%d bytes are held, said to be %d", sum, d.bytes)
	}
}

// With too many bytes the least recently used files go; the key stays, and so does what was stored last.
func TestShrink(t *testing.T) {
	d := open(t, 10<<10)
	for i := range 30 {
		id := fmt.Sprint(i)
		d.Store(id, make([]byte, 1000))
		old := time.Now().Add(time.Duration(i-1000) * time.Minute)
		if err := os.Chtimes(filepath.Join(d.dir, id), old, old); err != nil {
			t.Fatal(err)
		}
		if _, ok := openAt(d.dir, d.most).Load(id); !ok {
			t.Fatalf("file %d is gone", i)
		}
		if err := os.Chtimes(filepath.Join(d.dir, id), old, old); err != nil {
			t.Fatal(err)
		}
	}
	if _, ok := openAt(d.dir, d.most).Load("0"); ok {
		t.Error("the oldest is still there")
	}
	entries, err := os.ReadDir(d.dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) > 11 || len(entries) < 7 {
		t.Errorf("%d files", len(entries))
	}
	d.Store("big", make([]byte, 9<<10))
	if _, ok := d.Load("big"); ok {
		t.Error("one that would leave no room for others was kept")
	}
}

// The first start of a program of 400 new files took 13 s with 10,000 files in the directory, as each file that was stored had all of them listed. The directory's limit holds all the
// same, also for two sessions that store by turns.
func TestListed(t *testing.T) {
	a := open(t, 1<<20)
	b := openAt(a.dir, a.most)
	for i := range 1000 {
		a.Store(fmt.Sprint("a", i), make([]byte, 500))
		b.Store(fmt.Sprint("b", i), make([]byte, 500))
	}
	if a.listed > 40 || b.listed > 40 {
		t.Errorf("listed %d and %d times", a.listed, b.listed)
	}
	for i := range 2000 {
		a.Store(fmt.Sprint("c", i), make([]byte, 500))
		b.Store(fmt.Sprint("d", i), make([]byte, 500))
	}
	var sum int64
	entries, err := os.ReadDir(a.dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if fi, err := e.Info(); err == nil {
			sum += fi.Size()
		}
	}
	if sum > a.most/16*17 {
		t.Errorf("%d bytes, where %d are the most", sum, a.most)
	}
}
