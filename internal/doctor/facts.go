package doctor

import (
	"encoding/binary"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// question is one row of the table of facts.
type question struct {
	id, group, title string
	ask              func(*system) Answer
}

// questions in the order in which they are shown.
var questions = []question{
	{"kernel", "system", "Linux 5.15 or newer", (*system).kernel},
	{"glibc", "system", "GNU C library", (*system).glibc},
	{"container", "system", "outside any container", (*system).container},
	{"seccomp", "system", "free of seccomp filters", (*system).seccomp},
	{"agent", "system", "the agent is built in and loads", (*system).agent},
	{"exec-dir", "system", "a directory the agent can be loaded from", (*system).execDir},
	{"dev-shm", "system", "/dev/shm allows executable mappings", func(s *system) Answer { return s.executableIn("/dev/shm") }},
	{"memfd", "system", "shared memory by memfd_create, sealed", (*system).memfd},
	{"socket", "system", "Unix sockets with packets", (*system).socket},
	{"pidfd", "system", "pidfd_open", (*system).pidfd},
	{"ptrace", "system", "ptrace attach to a child", (*system).ptrace},
	{"yama", "system", "Yama lets unrelated processes be traced", (*system).yama},
	{"vm-read", "system", "process_vm_readv of a child", (*system).vmRead},
	{"core", "system", "core dumps", (*system).core},
	{"gdb", "system", "gdb", func(s *system) Answer { return s.tool("gdb") }},
	{"perf", "system", "perf", func(s *system) Answer { return s.tool("perf") }},

	{"tsc", "cpu", "invariant time stamp counter", (*system).tsc},
	{"pku", "cpu", "protection keys (PKU)", (*system).pku},
	{"gs-base", "cpu", "GS base free to use", (*system).gsBase},
	{"fsgsbase", "cpu", "wrgsbase from user mode", (*system).fsgsbase},
	{"membarrier", "cpu", "membarrier SYNC_CORE", (*system).membarrier},

	{"paranoid", "perf", "perf_event_paranoid allows own processes", (*system).paranoid},
	{"pmu", "perf", "performance counters (cycles)", (*system).pmu},
	{"pebs", "perf", "precise samples (PEBS)", (*system).pebs},
	{"pt", "perf", "Intel PT", (*system).intelPT},
	{"clock", "perf", "timer samples", (*system).cpuClock},
	{"breakpoints", "perf", "hardware breakpoints", (*system).breakpoints},
	{"sigtrap", "perf", "synchronous watchpoints (sigtrap)", (*system).sigtrap},

	{"userfaultfd", "memory", "userfaultfd", (*system).userfaultfd},
	{"wp-async", "memory", "asynchronous write protection", (*system).wpAsync},
	{"pagemap-scan", "memory", "PAGEMAP_SCAN", (*system).pagemapScan},
}

func (s *system) kernel() Answer {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return unknown("uname: " + err.Error())
	}
	release := unix.ByteSliceToString(u.Release[:])
	major, minor, ok := parseVersion(release)
	switch {
	case !ok:
		return unknown("cannot read the version " + strconv.Quote(release))
	case major < 5 || major == 5 && minor < 15:
		return no("too old: " + release).with(release)
	}
	return yes(release)
}

// parseVersion reads the first two numbers of a version like 6.18.44-fc.
func parseVersion(v string) (major, minor int, ok bool) {
	n, _ := fmt.Sscanf(v, "%d.%d", &major, &minor)
	return major, minor, n == 2
}

// status reads a line of /proc/self/status.
func (s *system) status(key string) (string, error) {
	data, err := s.readFile("/proc/self/status")
	if err != nil {
		return "", err
	}
	for _, line := range strings.Split(string(data), "\n") {
		if value, ok := strings.CutPrefix(line, key+":"); ok {
			return strings.TrimSpace(value), nil
		}
	}
	return "", fmt.Errorf("/proc/self/status has no %s", key)
}

func (s *system) filtered() bool {
	v, err := s.status("Seccomp")
	return err == nil && v != "0"
}

func (s *system) seccomp() Answer {
	v, err := s.status("Seccomp")
	switch {
	case err != nil:
		return unknown(err.Error())
	case v == "0":
		return yes("")
	}
	return no("a filter is in force, inherited from what started this shell; it may refuse any of the calls below")
}

// container looks for the marks that container managers leave.
func (s *system) container() Answer {
	for path, what := range map[string]string{"/.dockerenv": "Docker", "/run/.containerenv": "Podman"} {
		if _, err := s.readFile(path); err == nil {
			return no("in " + what + ", as " + path + " shows")
		}
	}
	if data, err := s.readFile("/run/systemd/container"); err == nil {
		return no("in " + strings.TrimSpace(string(data)) + ", as /run/systemd/container shows")
	}
	if data, err := s.readFile("/proc/1/cgroup"); err == nil {
		for _, mark := range []string{"docker", "kubepods", "containerd", "lxc", "libpod"} {
			if strings.Contains(string(data), mark) {
				return no("the control group of process 1 names " + mark)
			}
		}
	} else {
		return unknown(err.Error())
	}
	if data, err := s.readFile("/proc/self/uid_map"); err == nil {
		if f := strings.Fields(string(data)); len(f) == 3 && f[2] != "4294967295" {
			return no("in a user namespace")
		}
	}
	return yes("")
}

func (s *system) core() Answer {
	var lim unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_CORE, &lim); err != nil {
		return unknown(err.Error())
	}
	pattern := "?"
	if data, err := s.readFile("/proc/sys/kernel/core_pattern"); err == nil {
		pattern = strings.TrimSpace(string(data))
	}
	if lim.Cur == 0 && !strings.HasPrefix(pattern, "|") {
		return no("the limit is 0: ulimit -c unlimited allows them").with("to " + pattern)
	}
	size := "unlimited"
	if lim.Cur != unix.RLIM_INFINITY {
		size = fmt.Sprintf("%d bytes", lim.Cur)
	}
	return yes(size + ", to " + pattern)
}

func (s *system) tool(name string) Answer {
	path, err := s.lookPath(name)
	if err != nil {
		return no(name + " is not in PATH")
	}
	return yes(path)
}

func (s *system) tsc() Answer {
	if max, _, _, _ := s.cpuid(0x80000000, 0); max < 0x80000007 {
		return no("the CPU does not say that its time stamp counter is invariant")
	}
	if _, _, _, edx := s.cpuid(0x80000007, 0); edx&(1<<8) == 0 {
		return no("the CPU does not say that its time stamp counter is invariant")
	}
	hz := s.tscFrequency()
	if data, err := s.readFile("/sys/devices/system/clocksource/clocksource0/available_clocksource"); err == nil {
		if !strings.Contains(" "+strings.TrimSpace(string(data))+" ", " tsc ") {
			return no("the kernel found it unsteady and uses " + strings.TrimSpace(string(data))).with(hz)
		}
	}
	return yes(hz)
}

// tscFrequency measures against CLOCK_MONOTONIC.
func (s *system) tscFrequency() string {
	t0, c0 := time.Now(), s.rdtsc()
	time.Sleep(20 * time.Millisecond)
	t1, c1 := time.Now(), s.rdtsc()
	return fmt.Sprintf("%.0f MHz", float64(c1-c0)/float64(t1.Sub(t0).Nanoseconds())*1000)
}

func (s *system) leaf7() (ebx, ecx uint32) {
	if max, _, _, _ := s.cpuid(0, 0); max < 7 {
		return 0, 0
	}
	_, ebx, ecx, _ = s.cpuid(7, 0)
	return ebx, ecx
}

func (s *system) pku() Answer {
	_, ecx := s.leaf7()
	if ecx&(1<<3) == 0 {
		return no("the CPU has none, or the hypervisor hides them")
	}
	if ecx&(1<<4) == 0 {
		return no("the kernel has not turned them on (nopku?)")
	}
	var keys []uintptr
	var e unix.Errno
	for len(keys) < 16 {
		var key uintptr
		if key, e = s.call(unix.SYS_PKEY_ALLOC, 0, 0); e != 0 {
			break
		}
		keys = append(keys, key)
	}
	for _, k := range keys {
		s.call(unix.SYS_PKEY_FREE, k)
	}
	switch {
	case len(keys) > 0:
		return yes(fmt.Sprintf("%d keys", len(keys)))
	case e == unix.ENOSPC:
		return no("pkey_alloc: " + e.Error() + " (all keys are in use, or the kernel has not turned them on)")
	}
	return s.refused("pkey_alloc", e)
}

const (
	archSetGS = 0x1001
	archGetGS = 0x1004
)

func (s *system) gsBase() Answer {
	var old, got uint64
	if _, e := s.call(unix.SYS_ARCH_PRCTL, archGetGS, addressOf(&old)); e != 0 {
		return s.refused("arch_prctl(ARCH_GET_GS)", e)
	}
	if old != 0 {
		return no(fmt.Sprintf("the GS base is 0x%x already: something in this process uses it", old))
	}
	const probe = 0x12345000
	if _, e := s.call(unix.SYS_ARCH_PRCTL, archSetGS, probe); e != 0 {
		return s.refused("arch_prctl(ARCH_SET_GS)", e)
	}
	_, e := s.call(unix.SYS_ARCH_PRCTL, archGetGS, addressOf(&got))
	s.call(unix.SYS_ARCH_PRCTL, archSetGS, 0)
	if e != 0 || got != probe {
		return no(fmt.Sprintf("the GS base was set to 0x%x and read as 0x%x", probe, got))
	}
	return yes("")
}

func (s *system) fsgsbase() Answer {
	if ebx, _ := s.leaf7(); ebx&1 == 0 {
		return no("the CPU has no FSGSBASE, or the hypervisor hides it")
	}
	data, err := s.readFile("/proc/self/auxv")
	if err != nil {
		return unknown(err.Error())
	}
	const atHWCAP2, fsgsbase = 26, 1 << 1
	for i := 0; i+16 <= len(data); i += 16 {
		if binary.LittleEndian.Uint64(data[i:]) == atHWCAP2 {
			if binary.LittleEndian.Uint64(data[i+8:])&fsgsbase != 0 {
				return yes("")
			}
			return no("the kernel has not turned it on (nofsgsbase?)")
		}
	}
	return unknown("the kernel passed no AT_HWCAP2")
}

const (
	membarrierQuery        = 0
	membarrierSyncCore     = 1 << 5
	membarrierRegisterSync = 1 << 6
)

func (s *system) membarrier() Answer {
	mask, e := s.call(unix.SYS_MEMBARRIER, membarrierQuery, 0, 0)
	if e != 0 {
		return s.refused("membarrier", e)
	}
	if mask&membarrierSyncCore == 0 {
		return no("the kernel has no MEMBARRIER_CMD_PRIVATE_EXPEDITED_SYNC_CORE")
	}
	for _, cmd := range []uintptr{membarrierRegisterSync, membarrierSyncCore} {
		if _, e := s.call(unix.SYS_MEMBARRIER, cmd, 0, 0); e != 0 {
			return s.refused("membarrier", e)
		}
	}
	return yes("")
}

func (s *system) yama() Answer {
	data, err := s.readFile("/proc/sys/kernel/yama/ptrace_scope")
	if err != nil {
		if os.IsNotExist(err) {
			return yes("no Yama")
		}
		return unknown(err.Error())
	}
	scope := strings.TrimSpace(string(data))
	switch scope {
	case "0":
		return yes("ptrace_scope 0")
	case "1":
		return no("ptrace_scope is 1: only children may be traced, which is enough for ripstop").with("ptrace_scope 1")
	case "2":
		return no("ptrace_scope is 2: only root may trace").with("ptrace_scope 2")
	case "3":
		return no("ptrace_scope is 3: nobody may trace until the next boot").with("ptrace_scope 3")
	}
	return unknown("ptrace_scope is " + strconv.Quote(scope))
}
