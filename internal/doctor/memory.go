package doctor

import (
	"fmt"
	"os"
	"path/filepath"
	"unsafe"

	"golang.org/x/sys/unix"
)

// From <linux/userfaultfd.h> and <linux/fs.h>; Debian 12's headers are older than the last two features.
const (
	uffdUserModeOnly   = 1
	uffdAPI            = 0xaa
	uffdioAPI          = 0xc018aa3f // _IOWR(0xaa, 0x3f, struct uffdio_api)
	uffdFeatureWPAsync = 1 << 15    // UFFD_FEATURE_WP_ASYNC, Linux 6.7
	pagemapScanIoctl   = 0xc0606610 // _IOWR('f', 16, struct pm_scan_arg), Linux 6.7
)

type uffdioAPIArg struct{ api, features, _ uint64 }

// openUserfaultfd opens one for faults of user mode, which needs no privilege, and asks for features.
func (s *system) openUserfaultfd(features uint64) (fd uintptr, has uint64, e unix.Errno) {
	fd, e = s.call(unix.SYS_USERFAULTFD, unix.O_CLOEXEC|unix.O_NONBLOCK|uffdUserModeOnly)
	if e != 0 {
		return 0, 0, e
	}
	arg := &uffdioAPIArg{api: uffdAPI, features: features}
	if _, e = s.call(unix.SYS_IOCTL, fd, uffdioAPI, addressOf(arg)); e != 0 {
		s.close(fd)
		return 0, 0, e
	}
	return fd, arg.features, 0
}

func (s *system) userfaultfd() Answer {
	fd, _, e := s.openUserfaultfd(0)
	if e != 0 {
		return s.refused("userfaultfd", e)
	}
	s.close(fd)
	return yes("")
}

func (s *system) wpAsync() Answer {
	fd, has, e := s.openUserfaultfd(0)
	if e != 0 {
		return s.refused("userfaultfd", e)
	}
	s.close(fd)
	if has&uffdFeatureWPAsync == 0 {
		return no("this kernel's userfaultfd has no WP_ASYNC (Linux 6.7 has)")
	}
	fd, _, e = s.openUserfaultfd(uffdFeatureWPAsync)
	if e != 0 {
		return s.refused("userfaultfd with WP_ASYNC", e)
	}
	s.close(fd)
	return yes("")
}

// pmScanArg is struct pm_scan_arg; what is blank stays zero: flags, walk_end, max_pages, category_inverted, category_anyof_mask.
type pmScanArg struct {
	size, _, start, end, _, vec, vecLen, _, _, mask, _, ret uint64
}

func (s *system) pagemapScan() Answer {
	f, err := os.Open("/proc/self/pagemap")
	if err != nil {
		return notThere(err)
	}
	defer f.Close()
	page := os.Getpagesize()
	mem, err := unix.Mmap(-1, 0, page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return unknown("mmap: " + err.Error())
	}
	defer unix.Munmap(mem)
	mem[0] = 1
	const present = 1 << 3
	var region [3]uint64
	start := uint64(uintptr(unsafe.Pointer(&mem[0])))
	arg := &pmScanArg{
		start: start, end: start + uint64(page), vec: uint64(addressOf(&region)), vecLen: 1, mask: present, ret: present,
	}
	arg.size = uint64(unsafe.Sizeof(*arg))
	n, e := s.call(unix.SYS_IOCTL, f.Fd(), pagemapScanIoctl, addressOf(arg), addressOf(&region))
	switch {
	case e == unix.ENOTTY:
		return no("this kernel has no PAGEMAP_SCAN (Linux 6.7 has)")
	case e != 0:
		return s.refused("ioctl(PAGEMAP_SCAN)", e)
	case n != 1:
		return no(fmt.Sprintf("PAGEMAP_SCAN found %d regions where one page is present", n))
	}
	return yes("")
}

// memfd makes shared memory as the agent does: sealed against shrinking, mapped, written.
func (s *system) memfd() Answer {
	name := []byte("ripstop-doctor\x00")
	fd, e := s.call(unix.SYS_MEMFD_CREATE, addressOf(&name[0]), unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if e != 0 {
		return s.refused("memfd_create", e)
	}
	defer s.close(fd)
	page := uintptr(os.Getpagesize())
	if _, e = s.call(unix.SYS_FTRUNCATE, fd, page); e != 0 {
		return s.refused("ftruncate", e)
	}
	if _, e = s.call(unix.SYS_FCNTL, fd, unix.F_ADD_SEALS, unix.F_SEAL_SHRINK); e != 0 {
		return s.refused("fcntl(F_ADD_SEALS)", e)
	}
	addr, e := s.call(unix.SYS_MMAP, 0, page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED, fd, 0)
	if e != 0 {
		return s.refused("mmap of a memfd", e)
	}
	s.call(unix.SYS_MUNMAP, addr, page)
	return yes("")
}

// usualTempDirs are where a session may lie, in the order of preference.
func usualTempDirs(s *system) []string {
	var dirs []string
	if d := os.Getenv("XDG_RUNTIME_DIR"); d != "" {
		dirs = append(dirs, d)
	}
	return append(dirs, os.TempDir(), "/dev/shm", "/var/tmp")
}

func (s *system) execDir() Answer {
	why := "no directory to try"
	for _, dir := range s.opts.TempDir {
		a := s.executableIn(dir)
		if a.Status == Yes {
			return yes(dir)
		}
		why = a.Why
	}
	return no(why + "; set TMPDIR to a directory that is not mounted noexec")
}

// executableIn maps a file of dir executable, as the dynamic loader does.
func (s *system) executableIn(dir string) Answer {
	f, err := os.CreateTemp(dir, "ripstop-doctor-*")
	if err != nil {
		return no(err.Error())
	}
	defer os.Remove(f.Name())
	defer f.Close()
	page := os.Getpagesize()
	if err := f.Truncate(int64(page)); err != nil {
		return no(filepath.Dir(f.Name()) + ": " + err.Error())
	}
	addr, e := s.call(unix.SYS_MMAP, 0, uintptr(page), unix.PROT_READ|unix.PROT_EXEC, unix.MAP_PRIVATE, f.Fd(), 0)
	if e != 0 {
		if e == unix.EPERM || e == unix.EACCES {
			return no(dir + " is mounted noexec")
		}
		return s.refused("mmap of a file in "+dir, e)
	}
	s.call(unix.SYS_MUNMAP, addr, uintptr(page))
	return yes("")
}

func (s *system) socket() Answer {
	var fds [2]int32
	if _, e := s.call(unix.SYS_SOCKETPAIR, unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0, addressOf(&fds)); e != 0 {
		return s.refused("socketpair(AF_UNIX, SOCK_SEQPACKET)", e)
	}
	s.close(uintptr(fds[0]))
	s.close(uintptr(fds[1]))
	return yes("")
}

func (s *system) pidfd() Answer {
	fd, e := s.call(unix.SYS_PIDFD_OPEN, uintptr(os.Getpid()), 0)
	if e != 0 {
		return s.refused("pidfd_open", e)
	}
	s.close(fd)
	return yes("")
}
