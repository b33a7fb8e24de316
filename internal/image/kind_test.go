package image

import (
	"debug/elf"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// Proves: what a program is, is read from its head: static, PIE or not, glibc or musl, class and machine.
func TestClassify(t *testing.T) {
	src := write(t, filepath.Join(t.TempDir(), "a.c"), []byte("int main(void) { return 0; }\n"))
	for _, c := range []struct {
		flags []string
		want  Kind
	}{
		{[]string{"-pie", "-fPIE"}, Kind{Type: elf.ET_DYN, Interp: "/lib64/ld-linux-x86-64.so.2", Libc: LibcGlibc, Dynamic: true, PIE: true}},
		{[]string{"-no-pie"}, Kind{Type: elf.ET_EXEC, Interp: "/lib64/ld-linux-x86-64.so.2", Libc: LibcGlibc, Dynamic: true}},
		{[]string{"-static"}, Kind{Type: elf.ET_EXEC, Libc: LibcNone}},
		{[]string{"-static-pie"}, Kind{Type: elf.ET_DYN, Libc: LibcNone, Dynamic: true}},
		{[]string{"-shared", "-fPIC"}, Kind{Type: elf.ET_DYN, Libc: LibcNone, Dynamic: true}},
		{[]string{"-Wl,--dynamic-linker=/lib/ld-musl-x86_64.so.1"}, Kind{Type: elf.ET_DYN, Interp: "/lib/ld-musl-x86_64.so.1", Libc: LibcMusl, Dynamic: true, PIE: true}},
		{[]string{"-Wl,--dynamic-linker=/system/bin/linker64"}, Kind{Type: elf.ET_DYN, Interp: "/system/bin/linker64", Libc: LibcOther, Dynamic: true, PIE: true}},
		{[]string{"-c"}, Kind{Type: elf.ET_REL, Libc: LibcNone}},
	} {
		got, err := Classify(build(t, "a", append([]string{"gcc", src}, c.flags...)...))
		c.want.Class, c.want.Data, c.want.Machine = elf.ELFCLASS64, elf.ELFDATA2LSB, elf.EM_X86_64
		got.Entry = 0
		if err != nil || got != c.want {
			t.Errorf("%v: %+v %v, expected %+v", c.flags, got, err, c.want)
		}
	}
}

// Proves: what is no ELF file, is truncated or contradicts itself gives the error that says so; foreign files are read.
func TestClassifyErrors(t *testing.T) {
	dir := t.TempDir()
	exe := build(t, "a", "gcc", write(t, filepath.Join(dir, "a.c"), []byte("int main(void) { return 0; }\n")))
	good := read(t, exe)
	edit := func(f func(b []byte) []byte) string {
		return write(t, filepath.Join(dir, "x"), f(append([]byte(nil), good...)))
	}
	put16 := func(off int, v uint16) func([]byte) []byte {
		return func(b []byte) []byte { binary.LittleEndian.PutUint16(b[off:], v); return b }
	}
	for name, c := range map[string]struct {
		path string
		want error
	}{
		"empty":      {edit(func([]byte) []byte { return nil }), ErrNotELF},
		"short":      {write(t, filepath.Join(dir, "short"), []byte("\x7fE")), ErrNotELF},
		"script":     {write(t, filepath.Join(dir, "script"), []byte("#!/bin/sh\nexit 0\n")), ErrNotELF},
		"magic only": {write(t, filepath.Join(dir, "magic"), []byte("\x7fELF")), ErrDamaged},
		"directory":  {dir, ErrNotRegular},
		"device":     {"/dev/null", ErrNotRegular},
		"missing":    {filepath.Join(dir, "missing"), os.ErrNotExist},
	} {
		if name == "empty" {
			c.path = write(t, filepath.Join(dir, "empty"), nil)
		}
		if _, err := Classify(c.path); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, expected %v", name, err, c.want)
		}
		if _, err := Open(c.path); err == nil {
			t.Errorf("%s: opened", name)
		}
	}
	for name, f := range map[string]func([]byte) []byte{
		"truncated in its headers": func(b []byte) []byte { return b[:100] },
		"program header size":      put16(54, 7),
		"65535 program headers":    put16(56, 0xffff),
		"headers far away":         func(b []byte) []byte { binary.LittleEndian.PutUint64(b[32:], 1<<63); return b },
		"class":                    func(b []byte) []byte { b[4] = 9; return b },
		"byte order":               func(b []byte) []byte { b[5] = 9; return b },
	} {
		if k, err := Classify(edit(f)); !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: %+v %v", name, k, err)
		}
	}
	if k, err := Classify(edit(func(b []byte) []byte { return b[:len(b)/4] })); err != nil || !k.Truncated {
		t.Errorf("truncated: %+v %v", k, err)
	}
	if k, err := Classify(edit(put16(18, uint16(elf.EM_AARCH64)))); err != nil || k.Machine != elf.EM_AARCH64 {
		t.Errorf("another machine: %+v %v", k, err)
	}
	if _, err := Open(edit(put16(18, uint16(elf.EM_AARCH64)))); err == nil {
		t.Error("another machine: opened")
	}
}
