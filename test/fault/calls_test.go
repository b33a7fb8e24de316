package fault

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// errnos are those with which a call is made to fail, the likeliest first.
func errnos(nr int32) []unix.Errno {
	switch nr {
	case unix.SYS_MMAP, unix.SYS_MUNMAP:
		return []unix.Errno{unix.ENOMEM, unix.EPERM}
	case unix.SYS_MADVISE:
		return []unix.Errno{unix.ENOMEM, unix.EINVAL, unix.EAGAIN}
	case unix.SYS_MEMFD_CREATE:
		return []unix.Errno{unix.EMFILE, unix.ENOSYS, unix.ENOMEM, unix.ENFILE, unix.EPERM}
	case unix.SYS_SOCKET:
		return []unix.Errno{unix.EMFILE, unix.EPERM, unix.ENOMEM, unix.ENFILE, unix.EACCES}
	case unix.SYS_CONNECT:
		return []unix.Errno{unix.EAGAIN, unix.EACCES, unix.EINTR, unix.ECONNREFUSED, unix.ENOENT}
	case unix.SYS_SENDMSG, unix.SYS_RECVMSG:
		return []unix.Errno{unix.ENOMEM, unix.EINTR, unix.EAGAIN, unix.ECONNRESET, unix.EPERM}
	case unix.SYS_FTRUNCATE:
		return []unix.Errno{unix.ENOMEM, unix.EFBIG, unix.EINTR}
	case unix.SYS_FUTEX:
		return []unix.Errno{unix.EINTR, unix.ENOSYS}
	case unix.SYS_CLONE:
		return []unix.Errno{unix.EAGAIN, unix.ENOMEM}
	case unix.SYS_OPENAT:
		return []unix.Errno{unix.EMFILE, unix.ENFILE, unix.ENOMEM, unix.EACCES}
	case unix.SYS_PREAD64:
		return []unix.Errno{unix.EINTR, unix.EIO, unix.ENOMEM}
	case unix.SYS_POLL:
		return []unix.Errno{unix.EINTR, unix.ENOMEM}
	case unix.SYS_WRITE:
		return []unix.Errno{unix.EAGAIN, unix.EINTR, unix.EIO}
	}
	return []unix.Errno{unix.EPERM, unix.ENOSYS, unix.ENOMEM}
}

// Whichever system call of the agent fails, with whatever error, once or always: the program runs to its normal end with its own output
// and status, nothing false is reported, and of the agent there is at most one line for each process.
func TestCallsFail(t *testing.T) {
	sites := agentSites(t)
	for _, p := range []struct {
		name string
		args []string
		most int // k-th calls tried outside of a soak, spread evenly; the sites are tried all
	}{
		{"single", []string{program("work"), "single", "1000"}, 100},
		{"threads", []string{program("work"), "threads", "100", "20"}, 25},
		{"forks", []string{program("work"), "forks"}, 50},
	} {
		for _, name := range []string{"run", "record"} {
			if name == "record" && p.name != "single" && !soak {
				continue
			}
			t.Run(p.name+" "+name, func(t *testing.T) {
				t.Parallel()
				native := start(t, mode{}.command(p.args...))()
				try := func(what string, choose chooser) (calls []call, failed int) {
					t.Run(what, func(t *testing.T) {
						m := watched(t)[0]
						if name == "record" {
							m = watched(t)[1]
						}
						var r result
						r, calls, failed = inject(t, sites, m.command(p.args...), choose)
						processes := 1
						if p.name == "forks" {
							processes = 20
						}
						failuresHidden(t, native, r, processes)
						if name == "run" {
							nothingReported(t, m.file)
						}
					})
					return calls, failed
				}
				calls, _ := try("none", func(call) unix.Errno { return 0 })
				if len(calls) < 15 {
					t.Fatalf("only %d system calls of the agent's seen: %v", len(calls), calls)
				}
				kinds := map[call]int{}
				for _, c := range calls {
					kinds[call{nr: c.nr, site: c.site}]++
				}
				t.Logf("%d calls, %d kinds", len(calls), len(kinds))

				// One after the other.
				step := 1
				if !soak {
					step = max(1, len(calls)/p.most)
				}
				for k := 0; k < len(calls); k += step {
					list := errnos(calls[k].nr)
					if !soak {
						list = list[k%len(list):][:1]
					}
					for _, e := range list {
						// The order of calls differs a little from run to run: the errno is that of the k-th call now.
						try(fmt.Sprintf("call %d %v", k, e), func(c call) unix.Errno {
							if c.k != k {
								return 0
							}
							if l := errnos(c.nr); !slices.Contains(l, e) {
								return l[0]
							}
							return e
						})
					}
				}
				// All calls of one place, all but its first, and the tenth and later.
				order := slices.SortedFunc(maps.Keys(kinds), func(a, b call) int { return int(a.site) - int(b.site) })
				for i, kind := range order {
					for j, e := range errnos(kind.nr) {
						for _, after := range []int{0, 1, 10} {
							if after >= kinds[kind] || !soak && j != (i+after)%len(errnos(kind.nr)) {
								continue
							}
							if e == unix.EINTR && after == 0 && soak {
								continue // a call interrupted without end is no kernel's
							}
							n := 0
							what := fmt.Sprintf("site %x call %d %v after %d", kind.site, kind.nr, e, after)
							_, failed := try(what, func(c call) unix.Errno {
								if c.nr != kind.nr || c.site != kind.site {
									return 0
								}
								if n++; n <= after || e == unix.EINTR && n > after+20 {
									return 0
								}
								return e
							})
							if failed == 0 && after == 0 {
								t.Logf("%s: not called this time", what)
							}
						}
					}
				}
			})
		}
	}
}

// failuresHidden compares with native, but for what the agent may say.
func failuresHidden(t *testing.T, native, got result, processes int) {
	t.Helper()
	var ours []string
	got.stderr, ours = oursApart(got.stderr)
	same(t, native, got)
	agents := 0
	for _, line := range ours {
		if strings.HasPrefix(line, "ripstop: process ") {
			agents++
		} else if !strings.HasPrefix(line, "ripstop: not seen: ") {
			t.Errorf("ripstop said %q", line)
		}
	}
	if agents > processes {
		t.Errorf("too many words: %q", ours)
	}
	if t.Failed() {
		t.Logf("ripstop said %q", ours)
	}
}
