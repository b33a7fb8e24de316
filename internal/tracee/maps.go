package tracee

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Mapping is one line of /proc/PID/maps.
type Mapping struct {
	Start, End Addr
	Read       bool
	Write      bool
	Exec       bool
	Shared     bool
	Offset     uint64 // in the file
	Dev        string // major:minor in hexadecimal
	Inode      uint64
	Path       string // of the file, or a name in brackets such as [stack]; "" for anonymous memory
	Deleted    bool   // the kernel says that the file has been removed
}

// Maps reads the mappings of a process.
func Maps(pid int) ([]Mapping, error) {
	path := fmt.Sprintf("/proc/%d/maps", pid)
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, gone(pid, err)
	}
	m, err := ParseMaps(string(b))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return m, nil
}

// Leads reports whether a path leads to the very file that is mapped. On an overlay a file's inode by stat(2) may be that of a lower layer's, from which it was copied up, where /proc/PID/maps shows the upper
// layer's (Linux 6.1); so where they differ it is looked how the file shows when it is mapped here.
func (m *Mapping) Leads(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	var st unix.Stat_t
	if unix.Fstat(int(f.Fd()), &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		return false
	}
	if st.Ino == m.Inode {
		return true
	}
	b, err := unix.Mmap(int(f.Fd()), 0, os.Getpagesize(), unix.PROT_READ, unix.MAP_PRIVATE)
	if err != nil {
		return false
	}
	defer unix.Munmap(b)
	here := Addr(uintptr(unsafe.Pointer(unsafe.SliceData(b))))
	maps, err := Maps(os.Getpid())
	return err == nil && slices.ContainsFunc(maps, func(x Mapping) bool { return x.Start <= here && here < x.End && x.Dev == m.Dev && x.Inode == m.Inode })
}

// ParseMaps reads the text of /proc/PID/maps.
func ParseMaps(text string) ([]Mapping, error) {
	var out []Mapping
	for n, line := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		if line == "" && text == "" {
			break
		}
		m, err := parseMapping(line)
		if err != nil {
			return nil, fmt.Errorf("line %d, %q: %w", n+1, line, err)
		}
		out = append(out, m)
	}
	return out, nil
}

func parseMapping(line string) (m Mapping, err error) {
	// start-end perms offset dev inode          path: the path may contain spaces, the fields before it may not.
	var f [5]string
	rest := line
	for i := range f {
		var ok bool
		f[i], rest, ok = strings.Cut(rest, " ")
		if !ok && i < 4 || f[i] == "" {
			return m, fmt.Errorf("fewer than five fields")
		}
	}
	lo, hi, ok := strings.Cut(f[0], "-")
	start, err1 := strconv.ParseUint(lo, 16, 64)
	end, err2 := strconv.ParseUint(hi, 16, 64)
	if !ok || err1 != nil || err2 != nil || start > end {
		return m, fmt.Errorf("%q is no range of addresses", f[0])
	}
	p := f[1]
	if len(p) != 4 || !flag(p[0], 'r') || !flag(p[1], 'w') || !flag(p[2], 'x') || p[3] != 'p' && p[3] != 's' {
		return m, fmt.Errorf("%q are no permissions", p)
	}
	off, err := strconv.ParseUint(f[2], 16, 64)
	if err != nil {
		return m, fmt.Errorf("%q is no offset", f[2])
	}
	ino, err := strconv.ParseUint(f[4], 10, 64)
	if err != nil {
		return m, fmt.Errorf("%q is no inode", f[4])
	}
	m = Mapping{Start: Addr(start), End: Addr(end), Read: p[0] == 'r', Write: p[1] == 'w', Exec: p[2] == 'x', Shared: p[3] == 's',
		Offset: off, Dev: f[3], Inode: ino, Path: unescape(strings.TrimLeft(rest, " "))}
	m.Path, m.Deleted = strings.CutSuffix(m.Path, " (deleted)")
	return m, nil
}

func flag(c, set byte) bool { return c == set || c == '-' }

// unescape undoes the kernel's \012 for a newline, the only byte that it escapes.
func unescape(s string) string { return strings.ReplaceAll(s, `\012`, "\n") }
