package agent

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ripstop/ripstop/internal/wire"
)

// FuzzMessage sends arbitrary bytes with a descriptor as a message: refused or answered, never a crash.
func FuzzMessage(f *testing.F) {
	const token = 0x0123456789abcdef
	for kind := uint32(0); kind < 5; kind++ {
		h := wire.Hello{Magic: wire.Magic, Version: wire.Version, Kind: kind, Process: 1, Token: token}
		h.Count = kind / 3
		var m wire.ModuleRequest
		copy(m.Path[:], "/bin/true")
		f.Add(append(bytes.Clone(bytesOf(&h)), bytesOf(&m)...))
	}
	s := &Session{opts: Options{Handler: newCollector()}, warned: map[string]bool{}, processes: map[uint64]*process{}, loopDone: make(chan struct{})}
	close(s.loopDone)
	s.tables = newTables(s.warn)
	s.tables.cache = &diskCache{}
	c, err := newCtl()
	if err != nil {
		f.Fatal(err)
	}
	s.ctl, c.token = c, token
	f.Fuzz(func(t *testing.T, msg []byte) {
		ours, theirs := socketPair(t)
		defer unix.Close(ours)
		defer unix.Close(theirs)
		null, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(null)
		p := &caller{fd: ours, door: &door{}, pid: os.Getpid()}
		_ = s.answer(p, msg, []int{null})
	})
}

func socketPair(t *testing.T) (a, b int) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	return fds[0], fds[1]
}

// FuzzProgram asks about an arbitrary file: it is refused in one line, or thought to be executable.
func FuzzProgram(f *testing.F) {
	self, err := os.ReadFile("/bin/true")
	if err != nil {
		f.Fatal(err)
	}
	for _, seed := range [][]byte{self, self[:700], []byte("#!/bin/sh\n"), []byte("#! /usr/bin/env python3\n"), []byte("#!"), {0}, nil} {
		f.Add(seed)
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, content []byte) {
		path := filepath.Join(dir, "program")
		if err := os.WriteFile(path, content, 0o777); err != nil {
			t.Fatal(err)
		}
		if _, err := Resolve([]string{path}, nil); err != nil && bytes.ContainsRune([]byte(err.Error()), '\n') {
			t.Errorf("more than one line: %q", err)
		}
	})
}

// FuzzCache reads an arbitrary file of the cache.
func FuzzCache(f *testing.F) {
	dir := f.TempDir()
	c := &diskCache{dir}
	c.store("ab", make([]byte, 100))
	b, err := os.ReadFile(filepath.Join(dir, "ab"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Fuzz(func(t *testing.T, content []byte) {
		if err := os.WriteFile(filepath.Join(dir, "cd"), content, 0o600); err != nil {
			t.Fatal(err)
		}
		fd, size, ok := c.load("cd")
		if !ok {
			return
		}
		defer unix.Close(fd)
		b := make([]byte, size)
		if n, err := unix.Pread(fd, b, 0); err != nil || n != len(b) || !bytes.Equal(b, content[:size]) {
			t.Errorf("%d bytes of %d, %v", n, size, err)
		}
	})
}
