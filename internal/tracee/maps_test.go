package tracee

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// Proves: each kind of line that the kernel writes is read right.
func TestParseMaps(t *testing.T) {
	got, err := ParseMaps(strings.Join([]string{
		"00400000-00452000 r-xp 00001000 08:02 173521      /usr/bin/a name (1)  with\\012newline",
		"7f0000000000-7f0000001000 rw-s 00000000 00:01 77                         /memfd:x (deleted)",
		"7ffc00000000-7ffc00021000 rw-p 00000000 00:00 0                          [stack]",
		"7f1000000000-7f1000001000 ---p 00000000 00:00 0 ",
		"ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]",
	}, "\n") + "\n")
	if err != nil {
		t.Fatal(err)
	}
	want := []Mapping{
		{0x400000, 0x452000, true, false, true, false, 0x1000, "08:02", 173521, "/usr/bin/a name (1)  with\nnewline", false},
		{0x7f0000000000, 0x7f0000001000, true, true, false, true, 0, "00:01", 77, "/memfd:x", true},
		{0x7ffc00000000, 0x7ffc00021000, true, true, false, false, 0, "00:00", 0, "[stack]", false},
		{0x7f1000000000, 0x7f1000001000, false, false, false, false, 0, "00:00", 0, "", false},
		{0xffffffffff600000, 0xffffffffff601000, false, false, true, false, 0, "00:00", 0, "[vsyscall]", false},
	}
	if len(got) != len(want) {
		t.Fatalf("%d mappings, expected %d", len(got), len(want))
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("%d: %+v, expected %+v", i, got[i], want[i])
		}
	}
}

// Proves: damaged lines give an error that shows the line.
func TestParseMapsErrors(t *testing.T) {
	for _, s := range []string{"x", "1-2", "2-1 r-xp 0 0:0 0", "1-2 r?xp 0 0:0 0", "1-2 r-xp z 0:0 0", "1-2 r-xp 0 0:0 z", "1-2 r-xp 0 0:0", "\n\n"} {
		if _, err := ParseMaps(s); err == nil || !strings.Contains(err.Error(), "line 1") {
			t.Errorf("%q: %v", s, err)
		}
	}
	if m, err := ParseMaps(""); err != nil || len(m) != 0 {
		t.Errorf("empty: %v, %v", m, err)
	}
}

// Proves: no text makes the parser panic, and what it accepts has ranges in order.
func FuzzParseMaps(f *testing.F) {
	b, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(b))
	f.Add("1-2 r-xp 0 0:0 0 (deleted)\n")
	f.Fuzz(func(t *testing.T, s string) {
		ms, err := ParseMaps(s)
		if err != nil {
			return
		}
		for _, m := range ms {
			if m.Start > m.End {
				t.Errorf("%+v", m)
			}
		}
	})
}

// Proves: a path leads to the file that is mapped, and to no other.
func TestLeads(t *testing.T) {
	maps, err := Maps(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Readlink("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(maps, func(m Mapping) bool { return m.Path == self })
	if i < 0 {
		t.Fatalf("%s is not in %+v", self, maps)
	}
	m, other := maps[i], filepath.Join(t.TempDir(), "x")
	if err := os.WriteFile(other, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if !m.Leads(self) || m.Leads(other) || m.Leads(other+"none") || m.Leads(t.TempDir()) || m.Leads("/dev/null") {
		t.Errorf("%v %v %v %v %v: true and four times false expected", m.Leads(self), m.Leads(other), m.Leads(other+"none"), m.Leads(t.TempDir()), m.Leads("/dev/null"))
	}
}

// A program that had been copied up on an overlay, by a second link to it, had another inode by stat(2) than /proc/PID/maps showed on Linux 6.1 with a lower layer of another file system: it was "not the file
// that is mapped", was not patched, and by protection keys python3 took a fault, a request in vain and a step for each access to what its threads shared.
//
// Proves: where an overlay can be had, of such a program the path leads to what is mapped.
func TestLeadsCopiedUp(t *testing.T) {
	dir, sleep := t.TempDir(), "/bin/sleep"
	if s, err := filepath.EvalSymlinks(sleep); err == nil {
		sleep = s
	}
	script := fmt.Sprintf(`mount --make-rprivate / && cd %s && mkdir m low up && mount -t tmpfs l low && cp %s low/sleep && mount -t tmpfs t up && mkdir up/u up/w && mount -t overlay o -o lowerdir=low,upperdir=up/u,workdir=up/w m && ln m/sleep m/second && echo yes && exec m/sleep 60`, dir, sleep)
	c := exec.Command("/bin/sh", "-c", script)
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	if os.Getuid() != 0 { // in a namespace of users the overlay may have no way to remember the lower file, and then the two are the same
		c.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		c.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
		c.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Skip("no namespaces: ", err)
	}
	defer func() { c.Process.Kill(); c.Wait() }()
	b := make([]byte, 4)
	if n, _ := out.Read(b); string(b[:n]) != "yes\n" {
		t.Skip("no overlay can be mounted")
	}
	path := filepath.Join(dir, "m/sleep")
	for {
		maps, err := Maps(c.Process.Pid)
		if err != nil {
			t.Fatal(err)
		}
		if i := slices.IndexFunc(maps, func(m Mapping) bool { return m.Path == path }); i >= 0 { // else it is the shell still
			if !maps[i].Leads(fmt.Sprintf("/proc/%d/root%s", c.Process.Pid, path)) {
				t.Errorf("%+v: %s does not lead there", maps[i], path)
			}
			return
		}
	}
}
