package image

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

const transferName = "void bank::Account::transfer<int>(bank::Account&, int)"

// Proves: globals are named by symbol and offset, addresses outside objects are not, stubs of the PLT have their function's name.
func TestSymbols(t *testing.T) {
	for _, flags := range [][]string{
		{"-pie"}, {"-no-pie"}, {"-pie", "-Wl,-z,lazy"}, {"-pie", "-fcf-protection=none"}, {"-pie", "-Wl,-z,ibtplt", "-Wl,-z,lazy"}, {"-pie", "-fno-plt"},
	} {
		exe := build(t, "names", append([]string{"g++", "-g", "-O2", "testdata/names.cc"}, flags...)...)
		s := NewSymbolizer()
		defer s.Close()
		for _, c := range []struct {
			sym  string
			off  uint64
			want string
		}{
			{"_ZN4bank5tableE", 40, "bank::table"}, {"_ZN4bank5tableE", 159, "bank::table"}, {"_ZN4bank6zeroesE", 12, "bank::zeroes"},
			{"_ZN4bankL7counterE", 0, "bank::counter"}, {"plain_c", 1, "plain_c"},
		} {
			name, off, ok := s.Symbol(exe, "", symbolAddr(t, exe, c.sym)+c.off)
			if !ok || name != c.want || off != c.off {
				t.Errorf("%v %s+%d: %s+%d %v", flags, c.sym, c.off, name, off, ok)
			}
		}
		if name, off, ok := s.Symbol(exe, "", symbolAddr(t, exe, "_ZN4bank6zeroesE")+400); ok && name == "bank::zeroes" {
			t.Errorf("%v: behind zeroes: %s+%d", flags, name, off)
		}
		if flags[len(flags)-1] == "-fno-plt" {
			continue
		}
		// Every stub that objdump names is named the same.
		n := 0
		for _, line := range strings.Split(run(t, "objdump", "-d", "--no-show-raw-insn", exe), "\n") {
			addr, name, ok := strings.Cut(line, " <")
			if !ok || !strings.HasSuffix(name, "@plt>:") {
				continue
			}
			n++
			a := parseHex(t, addr)
			want := Demangle(strings.TrimSuffix(name, ">:"))
			if got, off, ok := s.Symbol(exe, "", a+4); !ok || got != want || off != 4 {
				t.Errorf("%v: stub at %#x is %s+%d, expected %s", flags, a, got, off, want)
			}
			if f := s.Frames(exe, "", a+4); len(f) != 1 || f[0].Func != want {
				t.Errorf("%v: frames at stub %#x: %+v", flags, a, f)
			}
		}
		if n < 2 {
			t.Errorf("%v: objdump shows %d stubs", flags, n)
		}
	}
}

func parseHex(t *testing.T, s string) (v uint64) {
	t.Helper()
	for _, c := range s {
		i := strings.IndexRune("0123456789abcdef", c)
		if i < 0 {
			t.Fatalf("%q is not hexadecimal", s)
		}
		v = v<<4 | uint64(i)
	}
	return v
}

// stripped builds the test program twice over: with everything, and stripped; it returns both, and an address in an inlined call.
func stripped(t *testing.T) (full, bare string, addr uint64) {
	full = build(t, "names", "g++", "-g", "-O2", "-Wl,--build-id", "testdata/names.cc")
	bare = filepath.Join(t.TempDir(), "names")
	run(t, "strip", "-o", bare, full)
	return full, bare, symbolAddr(t, full, "mark_deep")
}

// Proves: a stripped file gives module and offset, and never a wrong name.
func TestStripped(t *testing.T) {
	_, bare, addr := stripped(t)
	s := NewSymbolizer()
	defer s.Close()
	f := s.Frames(bare, "", addr)
	if len(f) != 1 || f[0].Func != "" || f[0].Module != bare || f[0].Offset != addr || f[0].BuildID == "" {
		t.Errorf("%+v", f)
	}
	if _, _, ok := s.Symbol(bare, "", addr); ok {
		t.Error("a symbol")
	}
}

// Proves: separate debug files are found by build-id, by .gnu_debuglink in the three usual places, and serve when the file itself is
// gone; one that does not fit is refused and said.
func TestSeparateDebugFiles(t *testing.T) {
	full, bare, addr := stripped(t)
	id := mustOpen(t, full).BuildID()
	dir := filepath.Dir(bare)
	debug := filepath.Join(t.TempDir(), "names.debug")
	run(t, "objcopy", "--only-keep-debug", full, debug)

	check := func(what, path, buildID string, good bool) *Symbolizer {
		t.Helper()
		s := NewSymbolizer()
		defer s.Close()
		f := s.Frames(path, buildID, addr)
		if isGood := len(f) == 3 && f[2].Func == transferName && f[0].Line == 12; isGood != good {
			t.Errorf("%s: %+v %v", what, f, s.Notes())
		}
		return s
	}

	old := debugDirs
	defer func() { debugDirs = old }()
	tree := t.TempDir()
	debugDirs = []string{tree}
	byID := filepath.Join(tree, ".build-id", id[:2], id[2:]+".debug")
	if err := os.MkdirAll(filepath.Dir(byID), 0o755); err != nil {
		t.Fatal(err)
	}
	check("no debug file", bare, id, false)
	write(t, byID, read(t, debug))
	check("by build-id", bare, id, true)
	check("module gone", filepath.Join(dir, "gone"), id, true)
	check("module gone, other build-id", filepath.Join(dir, "gone"), "00112233", false)

	// The debug file of another program under that name.
	other := build(t, "other", "g++", "-g", "-O1", "-DOTHER", "-Wl,--build-id", "testdata/names.cc")
	write(t, byID, read(t, other))
	if s := check("wrong build-id", bare, id, false); !strings.Contains(strings.Join(s.Notes(), "\n"), "its build-id is") {
		t.Errorf("notes %q", s.Notes())
	}
	write(t, byID, []byte("\x7fELF rubbish"))
	if s := check("rubbish", bare, id, false); !strings.Contains(strings.Join(s.Notes(), "\n"), byID) {
		t.Errorf("notes %q", s.Notes())
	}
	os.Remove(byID)

	// By link: no build-id at all.
	full = build(t, "names", "g++", "-g", "-O2", "-Wl,--build-id=none", "testdata/names.cc")
	addr = symbolAddr(t, full, "mark_deep")
	run(t, "objcopy", "--only-keep-debug", full, debug)
	run(t, "strip", "-o", bare, full)
	run(t, "objcopy", "--add-gnu-debuglink="+debug, bare)
	check("no debug file", bare, "", false)
	for _, at := range []string{filepath.Join(dir, "names.debug"), filepath.Join(dir, ".debug", "names.debug"), filepath.Join(tree, dir, "names.debug")} {
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		b := read(t, debug)
		write(t, at, b)
		check("by link at "+at, bare, "", true)
		b[len(b)-1] ^= 1
		write(t, at, b)
		if s := check("wrong checksum at "+at, bare, "", false); !strings.Contains(strings.Join(s.Notes(), "\n"), "checksum") {
			t.Errorf("notes %q", s.Notes())
		}
		os.Remove(at)
	}
}

// Proves: when the file on the disk is another one than the one that was loaded, no names are given, and that is said once.
func TestChangedFile(t *testing.T) {
	full, _, addr := stripped(t)
	s := NewSymbolizer()
	defer s.Close()
	for i := 0; i < 3; i++ {
		f := s.Frames(full, "0011223344556677", addr+uint64(i))
		if len(f) != 1 || f[0].Func != "" || f[0].File != "" || f[0].Module != full || f[0].BuildID != "0011223344556677" {
			t.Errorf("%+v", f)
		}
	}
	if _, _, ok := s.Symbol(full, "0011223344556677", addr); ok {
		t.Error("a symbol of a changed file")
	}
	if n := s.Notes(); len(n) != 1 || !strings.Contains(n[0], "changed after it was loaded") {
		t.Errorf("notes %q", n)
	}
	if f := s.Frames(filepath.Join(t.TempDir(), "gone"), "", 1); len(f) != 1 || f[0].Func != "" {
		t.Errorf("%+v", f)
	}
}

// Proves: a file that is truncated while it is open gives an error, not a crash.
func TestTruncatedWhileOpen(t *testing.T) {
	full, _, addr := stripped(t)
	m := mustOpen(t, full)
	if err := os.Truncate(full, 4096); err != nil {
		t.Fatal(err)
	}
	if f := m.Frames(addr); f != nil {
		t.Errorf("%+v", f)
	}
	m.Symbol(addr)
	m.Section(".eh_frame")
	if n := m.Notes(); len(n) == 0 || !strings.Contains(strings.Join(n, "\n"), "truncated") {
		t.Errorf("notes %q", n)
	}
}

// Proves: mini debug information (.gnu_debugdata) names functions; one that wants too large a dictionary is refused.
func TestMiniDebugInfo(t *testing.T) {
	full, bare, _ := stripped(t)
	addr := symbolAddr(t, full, "plain_c")
	mini := filepath.Join(t.TempDir(), "mini")
	run(t, "objcopy", "--strip-debug", full, mini)
	run(t, "xz", "-k", mini)
	with := filepath.Join(t.TempDir(), "with")
	run(t, "objcopy", "--add-section", ".gnu_debugdata="+mini+".xz", bare, with)
	m := mustOpen(t, with)
	if f := m.Frames(addr); len(f) != 1 || f[0].Func != "plain_c" {
		t.Errorf("%+v %q", f, m.Notes())
	}
	b := read(t, mini+".xz")
	i := bytes.Index(b[12:40], []byte{0x21, 1}) // the filter and the size of its properties
	if i < 0 {
		t.Fatal("no LZMA2 filter")
	}
	b[12+i+2] = 40
	if _, err := unxz(b); err == nil || !strings.Contains(err.Error(), "dictionary") {
		t.Errorf("a dictionary of 4 GiB: %v", err)
	}
}

// Proves: a file without section headers still has its dynamic symbols.
func TestNoSectionHeaders(t *testing.T) {
	for _, hash := range []string{"gnu", "sysv"} {
		lib := build(t, "lib.so", "g++", "-O2", "-shared", "-fPIC", "-Wl,--hash-style="+hash, "testdata/names.cc")
		addr := symbolAddr(t, lib, "plain_c")
		b := read(t, lib)
		clear(b[40:48])
		clear(b[60:64])
		m := mustOpen(t, write(t, lib, b))
		if s, ok := m.Symbol(addr + 1); !ok || s.Name != "plain_c" {
			t.Errorf("%s: %+v %v %q", hash, s, ok, m.Notes())
		}
		if f := m.Frames(addr + 1); len(f) != 1 || f[0].Func != "plain_c" {
			t.Errorf("%s: %+v", hash, f)
		}
		// A section table that lies is as good as none.
		binary.LittleEndian.PutUint64(b[40:], uint64(len(b))-10)
		b[60] = 200
		m = mustOpen(t, write(t, lib+"2", b))
		if s, ok := m.Symbol(addr + 1); !ok || s.Name != "plain_c" {
			t.Errorf("%s: %+v %v %q", hash, s, ok, m.Notes())
		}
		if n := m.Notes(); len(n) != 1 || !strings.Contains(n[0], "section table") {
			t.Errorf("notes %q", n)
		}
	}
}

// Proves: a public function of libc has its public name, with file and line from the separate debug file.
func TestLibcNames(t *testing.T) {
	const libc = "/lib/x86_64-linux-gnu/libc.so.6"
	m := mustOpen(t, libc)
	s := NewSymbolizer()
	defer s.Close()
	for _, name := range []string{"pthread_mutex_lock", "malloc", "pthread_create", "kill"} {
		var addr uint64
		for _, y := range m.symbols().code {
			if m.symbols().name(y) == name {
				addr = y.addr
			}
		}
		if addr == 0 {
			t.Fatalf("libc has no %s", name)
		}
		f := s.Frames(libc, m.BuildID(), addr)
		top := f[len(f)-1]
		if top.Func != name || top.File == "" || top.Line == 0 {
			t.Errorf("%s: %+v %q", name, f, s.Notes())
		}
	}
}

// Proves: the vdso of this machine is named.
func TestVDSO(t *testing.T) {
	b, err := ownVDSO()
	if err != nil {
		t.Fatal(err)
	}
	m, err := FromMemory("[vdso]", b)
	if err != nil {
		t.Fatal(err)
	}
	s := NewSymbolizer()
	n := 0
	for _, y := range m.symbols().code {
		name := m.symbols().name(y)
		f := s.Frames("[vdso]", m.BuildID(), y.addr)
		if len(f) == 1 && f[0].Func != "" {
			n++
		} else {
			t.Errorf("%s: %+v %q", name, f, s.Notes())
		}
	}
	if n < 3 {
		t.Errorf("%d functions", n)
	}
	if f := s.Frames("[vdso]", "00112233", 0x800); len(f) != 1 || f[0].Func != "" {
		t.Errorf("the vdso of another kernel: %+v", f)
	}
}

// Proves: several goroutines may ask at once, and modules beyond the limit of open files are closed and opened again.
func TestSymbolizerIsSafe(t *testing.T) {
	full, _, addr := stripped(t)
	dir := t.TempDir()
	b := read(t, full)
	s := NewSymbolizer()
	defer s.Close()
	var paths []string
	for i := 0; i < maxOpenModules+10; i++ {
		p := filepath.Join(dir, "m"+string(rune('a'+i/26))+string(rune('a'+i%26)))
		if i == 0 {
			write(t, p, b)
		} else if err := os.Link(paths[0], p); err != nil {
			t.Fatal(err)
		}
		paths = append(paths, p)
	}
	var wg sync.WaitGroup
	for g := 0; g < 4; g++ {
		wg.Go(func() {
			for i := range paths {
				p := paths[(i+g*30)%len(paths)]
				if f := s.Frames(p, "", addr+uint64(g)); len(f) == 0 || f[len(f)-1].Func != transferName {
					t.Errorf("%s: %+v", p, f)
				}
			}
		})
	}
	wg.Wait()
	open := 0
	for _, m := range s.mods {
		if m.img != nil {
			open++
		}
	}
	if open > maxOpenModules {
		t.Errorf("%d modules are open", open)
	}
}

// Proves: names that dwz moved to a common file (.gnu_debugaltlink) are found there, and their lack is said when that file is gone.
func TestDwz(t *testing.T) {
	if _, err := exec.LookPath("dwz"); err != nil {
		t.Fatal("dwz is not installed: script/deps test")
	}
	dir := t.TempDir()
	var exes []string
	for _, n := range []string{"a", "b"} {
		exe := filepath.Join(dir, n)
		run(t, "g++", "-g", "-gdwarf-4", "-O2", "-Wl,--build-id", "-DVARIANT_"+n, "testdata/names.cc", "-o", exe)
		// The files must differ, or dwz sees one file twice.
		run(t, "objcopy", "--add-section", ".which="+write(t, filepath.Join(dir, "which"), []byte(n)), exe)
		exes = append(exes, exe)
	}
	common := filepath.Join(dir, "common")
	run(t, append([]string{"dwz", "-m", common, "-r"}, exes...)...)
	for _, exe := range exes {
		m := mustOpen(t, exe)
		if _, _, ok := m.Section(".gnu_debugaltlink"); !ok {
			t.Fatal("dwz made no common file")
		}
		f := m.Frames(symbolAddr(t, exe, "mark_deep"))
		if len(f) != 3 || f[0].Func != "bank::deep" || f[1].Func != "bank::mid" || f[2].Func != transferName || f[0].Line != 12 {
			t.Errorf("%s: %s %q", exe, show(f), m.Notes())
		}
	}
	if err := os.Remove(common); err != nil {
		t.Fatal(err)
	}
	m := mustOpen(t, exes[0])
	f := m.Frames(symbolAddr(t, exes[0], "mark_deep"))
	if len(f) != 3 || f[2].Func != transferName || f[0].Line != 12 {
		t.Errorf("without the common file: %s", show(f))
	}
	if n := m.Notes(); len(n) == 0 || !strings.Contains(n[0], "names are missing") {
		t.Errorf("notes %q", n)
	}
}

// A thread-local variable is known by how far below the thread's pointer it lies: the program says where its own are, of each alignment, and with the initialised ones in front.
func TestThreadLocal(t *testing.T) {
	for _, align := range []string{"4", "64", "4096"} {
		src := write(t, filepath.Join(t.TempDir(), "tls.c"), []byte(`#include <pthread.h>
#include <stdio.h>
__thread int first = 1;
__thread char second[100] = "x";
static __thread __attribute__((aligned(`+align+`))) long third[3];
__thread short fourth;
#define SAY(v, at) printf(#v " %zu %d\n", (size_t)((char *)pthread_self() - (char *)&v - at), at)
int main(void) { SAY(first, 0); SAY(second, 0); SAY(second, 99); SAY(third, 8); SAY(fourth, 1); }
`))
		for _, kind := range []string{"-pie", "-no-pie"} {
			exe := filepath.Join(t.TempDir(), "tls")
			run(t, "gcc", "-O1", "-fPIE", kind, "-o", exe, src)
			m := mustOpen(t, exe)
			for line := range strings.Lines(run(t, exe)) {
				var name string
				var below, offset uint64
				if _, err := fmt.Sscan(line, &name, &below, &offset); err != nil {
					t.Fatal(err)
				}
				if s, got, ok := m.ThreadLocal(below); !ok || s.Name != name || got != offset {
					t.Errorf("align %s %s: %d below: %q+%d %v, want %s+%d", align, kind, below, s.Name, got, ok, name, offset)
				}
			}
			for _, no := range []uint64{0, 1 << 20, 1 << 63, ^uint64(0)} {
				if s, _, ok := m.ThreadLocal(no); ok {
					t.Errorf("%d below: %q", no, s.Name)
				}
			}
		}
	}
}
