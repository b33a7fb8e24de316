package agent

import (
	"bytes"
	"debug/elf"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ripstop/ripstop/internal/image"
	"github.com/ripstop/ripstop/internal/unwind"
	"github.com/ripstop/ripstop/internal/wire"
)

// sleeper starts a program whose modules are asked for.
func sleeper(t *testing.T, path string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(path, "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	eventually(t, "the program is executed", func() bool {
		exe, _ := os.Readlink(fmt.Sprintf("/proc/%d/exe", cmd.Process.Pid))
		_, _, _, ok := (&module{pid: cmd.Process.Pid, base: baseOf(t, cmd.Process.Pid, filepath.Base(path))}).mapping()
		return ok && filepath.Base(exe) != "agent.test"
	})
	return cmd
}

func baseOf(t *testing.T, pid int, name string) (base uint64) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range bytes.Split(b, []byte("\n")) {
		if bytes.Contains(line, []byte(name)) {
			fmt.Sscanf(string(line), "%x-", &base)
			return base
		}
	}
	return 0
}

// copyOf makes a copy of sleep to delete, replace, or hide.
func copyOf(t *testing.T, dir string) string {
	t.Helper()
	b, err := os.ReadFile("/bin/sleep")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "sleeping")
	if err := os.WriteFile(path, b, 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func buildID(t *testing.T, path string) []byte {
	t.Helper()
	img, err := image.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer img.Close()
	id, err := hex.DecodeString(img.BuildID())
	if err != nil || len(id) == 0 {
		t.Fatalf("%s: build-id %q", path, img.BuildID())
	}
	return id
}

func request(path string, id []byte, base uint64) (r wire.ModuleRequest) {
	copy(r.Path[:], path)
	r.BuildIDLen = uint32(copy(r.BuildID[:], id))
	r.Base = base
	return r
}

// The table of a module is that of the very image that is mapped: from its file, though it be replaced or deleted, from memory where
// no file can be had, and the vdso's.
func TestTables(t *testing.T) {
	want := func(path string) []byte {
		img, err := image.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer img.Close()
		b, _, err := unwind.Compile(img)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	fromFile := want("/bin/sleep")
	id := buildID(t, "/bin/sleep")
	get := func(r wire.ModuleRequest, pid int) []byte {
		tabs := newTables(func(string) {})
		tabs.cache = &diskCache{}
		defer tabs.close()
		fd := tabs.get([]wire.ModuleRequest{r}, pid)[0]
		if fd < 0 {
			return nil
		}
		b := make([]byte, 1<<20)
		n, err := unix.Pread(fd, b, 0)
		if err != nil {
			t.Fatal(err)
		}
		return b[:n]
	}

	plain := copyOf(t, t.TempDir())
	cmd := sleeper(t, plain)
	pid, base := cmd.Process.Pid, baseOf(t, cmd.Process.Pid, "sleeping")
	if got := get(request(plain, id, base), pid); !bytes.Equal(got, fromFile) {
		t.Errorf("by its path: %d bytes, want %d", len(got), len(fromFile))
	}
	if got := get(request("/no/such/file", id, base), pid); !bytes.Equal(got, fromFile) {
		t.Errorf("by its mapping: %d bytes, want %d", len(got), len(fromFile))
	}
	if got := get(request(plain, append([]byte{1}, id[1:]...), base), pid); got != nil {
		t.Error("another build-id was answered")
	}
	if err := os.Remove(plain); err != nil {
		t.Fatal(err)
	}
	other, err := os.ReadFile("/bin/cat")
	if err != nil {
		t.Fatal(err)
	}
	os.WriteFile(plain, other, 0o755)
	if got := get(request(plain, id, base), pid); !bytes.Equal(got, fromFile) {
		t.Errorf("replaced by another file: %d bytes, want %d", len(got), len(fromFile))
	}

	// From memory the sections are gone, but not the rows.
	img, err := (&module{pid: pid, path: plain, buildID: hex.EncodeToString(id), base: base}).fromMemory()
	if err != nil {
		t.Fatal(err)
	}
	defer img.Close()
	b, _, err := unwind.Compile(img)
	if err != nil {
		t.Fatal(err)
	}
	if !sameRules(t, b, fromFile) {
		t.Error("from memory: other rules than from the file")
	}

	vdso := baseOf(t, pid, "[vdso]")
	own, err := (&module{pid: pid, base: vdso}).fromMemoryAny()
	if err != nil {
		t.Fatal(err)
	}
	vid, _ := hex.DecodeString(own.BuildID())
	if got := get(request("", vid, vdso), pid); len(got) <= wire.SizeUnwindHeader {
		t.Errorf("vdso: %d bytes", len(got))
	}
}

// fromMemoryAny reads an image of whatever build-id.
func (m *module) fromMemoryAny() (*image.Image, error) {
	b := make([]byte, 8192)
	if err := m.readAt(b, m.base); err != nil {
		return nil, err
	}
	return image.FromMemory("any", b)
}

func sameRules(t *testing.T, a, b []byte) bool {
	t.Helper()
	ta, err := unwind.Decode(a)
	if err != nil {
		t.Fatal(err)
	}
	tb, err := unwind.Decode(b)
	if err != nil {
		t.Fatal(err)
	}
	f, err := elf.Open("/bin/sleep")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	text := f.Section(".text")
	for pc := text.Addr; pc < text.Addr+text.Size; pc++ {
		if ta.Lookup(pc) != tb.Lookup(pc) {
			return false
		}
	}
	return true
}

// Tables are kept on disk, used by the next session, made anew when damaged, and bounded.
func TestDiskCache(t *testing.T) {
	home := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", home)
	id := buildID(t, "/bin/sleep")
	r := request("/bin/sleep", id, 0)
	counts := func() string {
		tabs := newTables(func(s string) { t.Log(s) })
		defer tabs.close()
		if fd := tabs.get([]wire.ModuleRequest{r, r}, os.Getpid()); fd[0] < 0 || fd[0] != fd[1] {
			t.Fatalf("descriptors %v", fd)
		}
		a, b, c := tabs.counts()
		return fmt.Sprint(a, b, c)
	}
	if got := counts(); got != "1 0 0" {
		t.Errorf("at first: %s", got)
	}
	if got := counts(); got != "0 1 0" {
		t.Errorf("the second time: %s", got)
	}
	c := openDiskCache()
	file := filepath.Join(c.dir, hex.EncodeToString(id))
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	// What looks at processes from outside reads the same files, and must not take the trailer for a part of the table.
	sess := &Session{tables: newTables(func(s string) { t.Log(s) })}
	defer sess.tables.close()
	seen, err := sess.Table(os.Getpid(), Module{Path: "/bin/sleep", BuildID: hex.EncodeToString(id)})
	if _, cached, _ := sess.tables.counts(); err != nil || cached != 1 || len(seen.Rows) == 0 {
		t.Errorf("from outside: %v, %d from the cache", err, cached)
	}
	if fi, err := os.Stat(file); err != nil || fi.Mode() != 0o400 {
		t.Errorf("a file that processes map: %v (%v)", fi.Mode(), err)
	}
	table := b[:len(b)-cacheTrailer]
	for _, damaged := range [][]byte{b[:len(b)-1], b[:cacheTrailer-1], {}, append(bytes.Clone(table[:len(table)-8]), b[len(table):]...),
		append(append(bytes.Clone(table[:len(table)-1]), table[len(table)-1]^1), b[len(table):]...)} {
		if err := errors.Join(os.Remove(file), os.WriteFile(file, damaged, 0o600)); err != nil {
			t.Fatal(err)
		}
		if got := counts(); got != "1 0 0" {
			t.Errorf("damaged, %d bytes of %d: %s", len(damaged), len(b), got)
		}
	}
	// Processes may map the file itself only where it stays readable once it is unlinked; else they get a copy, sealed, and the same table. It stays what
	// it was whatever the cache does with the name.
	saved := keepsMappings
	defer func() { keepsMappings = saved }()
	for _, direct := range []bool{false, true} {
		var fs unix.Statfs_t
		if err := unix.Statfs(c.dir, &fs); err != nil {
			t.Fatal(err)
		}
		keepsMappings = map[int64]bool{int64(fs.Type): direct}
		fd, size, ok := c.load(hex.EncodeToString(id))
		if !ok || size != int64(len(table)) {
			t.Fatalf("%d bytes of %d", size, len(table))
		}
		if seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0); (err == nil && seals&unix.F_SEAL_WRITE != 0) == direct {
			t.Errorf("mapped itself: %v, and seals %#x (%v)", direct, seals, err)
		}
		mapped, err := unix.Mmap(fd, 0, int(size), unix.PROT_READ, unix.MAP_PRIVATE)
		unix.Close(fd)
		if err != nil {
			t.Fatal(err)
		}
		c.store(hex.EncodeToString(id), table[:100])
		c.shrink(0, 0)
		if !bytes.Equal(mapped, table) {
			t.Error("what is mapped was changed")
		}
		unix.Munmap(mapped)
		c.store(hex.EncodeToString(id), table)
	}
	c.store("00", make([]byte, 1000))
	c.shrink(100, 50)
	if left, _ := os.ReadDir(c.dir); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
	if err := os.Chmod(c.dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if openDiskCache().dir != "" {
		t.Error("a cache that anybody can write to is trusted")
	}
	t.Setenv("XDG_CACHE_HOME", "/proc/none")
	if got := counts(); got != "1 0 0" {
		t.Errorf("without a cache: %s", got)
	}
}

// Rust's toolchain has no build-ids: every rustc of a build had the 6 MB of .eh_frame of its librustc_driver compiled anew, which was six times what
// the build itself cost. The table of such a module is kept by the file, and not used for another one with its name.
func TestDiskCacheWithoutBuildID(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	path := filepath.Join(t.TempDir(), "shell")
	counts := func() string {
		cmd := exec.Command(path, "-c", "read x")
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		defer cmd.Wait()
		defer in.Close()
		eventually(t, "the program is executed", func() bool { return baseOf(t, cmd.Process.Pid, "/shell") != 0 })
		tabs := newTables(func(s string) { t.Log(s) })
		defer tabs.close()
		r := request(path, nil, baseOf(t, cmd.Process.Pid, "/shell"))
		if fd := tabs.get([]wire.ModuleRequest{r}, cmd.Process.Pid); fd[0] < 0 {
			t.Fatal("no table")
		}
		a, b, c := tabs.counts()
		return fmt.Sprint(a, b, c)
	}
	replace := func() {
		if out, err := exec.Command("objcopy", "--remove-section", ".note.gnu.build-id", "/bin/bash", path).CombinedOutput(); err != nil {
			t.Fatalf("objcopy: %v %s", err, out)
		}
	}
	replace()
	for _, want := range []string{"1 0 0", "0 1 0", "0 1 0"} {
		if got := counts(); got != want {
			t.Errorf("made, cached, absent: %s, want %s", got, want)
		}
	}
	other := path + "2"
	if err := os.Rename(path, other); err != nil { // the inode lives on, another file gets the name
		t.Fatal(err)
	}
	replace()
	if got := counts(); got != "1 0 0" {
		t.Errorf("another file of that name: %s", got)
	}
}
