package doctor

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// An answer other than yes must say why, whatever the machine, and every fact must be shown in some group.
func TestEveryAnswerIsExplained(t *testing.T) {
	r := Examine(Options{})
	groups := map[string]bool{}
	for _, g := range groupTitles {
		groups[g.id] = true
	}
	for _, f := range r.Facts {
		if f.Status != Yes && f.Why == "" {
			t.Errorf("%s: %v without a reason", f.ID, f.Status)
		}
		if !groups[f.Group] {
			t.Errorf("%s: group %q is not shown", f.ID, f.Group)
		}
	}
	for _, f := range r.Features {
		if f.Status != Yes && f.Why == "" {
			t.Errorf("%s: %v without a reason", f.ID, f.Status)
		}
	}
	var text, js bytes.Buffer
	if err := r.Text(&text, nil); err != nil {
		t.Fatal(err)
	}
	for _, f := range r.Facts {
		if !strings.Contains(text.String(), f.Title) {
			t.Errorf("the text does not show %s", f.ID)
		}
	}
	if err := r.JSON(&js); err != nil {
		t.Fatal(err)
	}
	var back struct {
		Facts []struct{ ID, Status string }
	}
	if err := json.Unmarshal(js.Bytes(), &back); err != nil || len(back.Facts) != len(r.Facts) {
		t.Fatalf("JSON: %v, %d facts of %d", err, len(back.Facts), len(r.Facts))
	}
}

// What this test binary needs to run at all must be answered with yes on every machine that can run it.
func TestWhatIsCertainHere(t *testing.T) {
	r := Examine(Options{})
	want := map[string]bool{"kernel": true, "socket": true}
	if runtime.GOARCH == "amd64" {
		want["glibc"] = true
	}
	for _, f := range r.Facts {
		if want[f.ID] && f.Status != Yes {
			t.Errorf("%s: %v, because %s", f.ID, f.Status, f.Why)
		}
	}
}

// Each system call refused in turn: the facts that rest on it become no (refused, missing) or unknown (a passing shortage), all
// others keep their answer, and nothing panics.
func TestRefusedSystemCalls(t *testing.T) {
	sole := map[uintptr][]string{
		unix.SYS_PKEY_ALLOC:       {"pku"},
		unix.SYS_ARCH_PRCTL:       {"gs-base"},
		unix.SYS_MEMBARRIER:       {"membarrier"},
		unix.SYS_PERF_EVENT_OPEN:  {"pmu", "pebs", "pt", "clock", "breakpoints", "sigtrap"},
		unix.SYS_USERFAULTFD:      {"userfaultfd", "wp-async"},
		unix.SYS_IOCTL:            {"userfaultfd", "wp-async", "pagemap-scan"},
		unix.SYS_MEMFD_CREATE:     {"memfd"},
		unix.SYS_SOCKETPAIR:       {"socket"},
		unix.SYS_PIDFD_OPEN:       {"pidfd"},
		unix.SYS_PTRACE:           {"ptrace"},
		unix.SYS_PROCESS_VM_READV: {"vm-read"},
		unix.SYS_MMAP:             {"exec-dir", "dev-shm", "memfd"},
	}
	base := map[string]Status{}
	for _, f := range Examine(Options{}).Facts {
		base[f.ID] = f.Status
	}
	for nr, ids := range sole {
		for _, errno := range []unix.Errno{unix.EPERM, unix.ENOSYS, unix.EMFILE} {
			s := realSystem()
			real := s.raw
			s.raw = func(n uintptr, a [6]uintptr) (uintptr, unix.Errno) {
				if n == nr {
					return 0, errno
				}
				return real(n, a)
			}
			touched := map[string]bool{}
			for _, id := range ids {
				touched[id] = true
			}
			for _, f := range examine(s, Options{}).Facts {
				switch {
				case !touched[f.ID]:
					if f.Status != base[f.ID] {
						t.Errorf("system call %d = %v: %s became %v (%s)", nr, errno, f.ID, f.Status, f.Why)
					}
				case base[f.ID] != Yes:
				case f.Status == Yes:
					t.Errorf("system call %d = %v: %s is still yes", nr, errno, f.ID)
				case errno == unix.EMFILE && f.Status != Unknown && nr != unix.SYS_MMAP:
					t.Errorf("system call %d = %v: %s is %v, want could not tell", nr, errno, f.ID, f.Status)
				case errno == unix.EPERM && f.Status != No:
					t.Errorf("system call %d = %v: %s is %v, want no", nr, errno, f.ID, f.Status)
				}
			}
		}
	}
}

// CPUs and kernels we do not have: the answers follow from what CPUID and files say.
func TestOtherMachines(t *testing.T) {
	leaves := func(features7b, features7c, power uint32) func(leaf, sub uint32) (a, b, c, d uint32) {
		return func(leaf, sub uint32) (a, b, c, d uint32) {
			switch leaf {
			case 0:
				return 7, 0, 0, 0
			case 7:
				return 0, features7b, features7c, 0
			case 0x80000000:
				return 0x80000007, 0, 0, 0
			case 0x80000007:
				return 0, 0, 0, power
			}
			return 0, 0, 0, 0
		}
	}
	keys := uintptr(0)
	fifteenKeys := func(nr uintptr, a [6]uintptr) (uintptr, unix.Errno) {
		if nr == unix.SYS_PKEY_ALLOC && keys < 15 {
			keys++
			return keys, 0
		}
		if nr == unix.SYS_PKEY_FREE {
			return 0, 0
		}
		return 0, unix.ENOSPC
	}
	files := func(m map[string]string) func(string) ([]byte, error) {
		return func(path string) ([]byte, error) {
			if s, ok := m[path]; ok {
				return []byte(s), nil
			}
			return nil, &os.PathError{Op: "open", Path: path, Err: os.ErrNotExist}
		}
	}
	const paranoid = "/proc/sys/kernel/perf_event_paranoid"
	const yama = "/proc/sys/kernel/yama/ptrace_scope"
	tests := []struct {
		name   string
		change func(*system)
		ask    func(*system) Answer
		want   Status
		say    string
	}{
		{"PKU with 15 keys", func(s *system) { s.cpuid, s.raw = leaves(0, 3<<3, 0), fifteenKeys }, (*system).pku, Yes, "15 keys"},
		{"PKU turned off", func(s *system) { s.cpuid = leaves(0, 1<<3, 0) }, (*system).pku, No, "nopku"},
		{"no PKU", func(s *system) { s.cpuid = leaves(0, 0, 0) }, (*system).pku, No, "hypervisor"},
		{"TSC not invariant", func(s *system) { s.cpuid = leaves(0, 0, 0) }, (*system).tsc, No, "invariant"},
		{"TSC distrusted", func(s *system) {
			s.cpuid = leaves(0, 0, 1<<8)
			s.readFile = files(map[string]string{"/sys/devices/system/clocksource/clocksource0/available_clocksource": "hpet acpi_pm\n"})
		}, (*system).tsc, No, "hpet"},
		{"no FSGSBASE", func(s *system) { s.cpuid = leaves(0, 0, 0) }, (*system).fsgsbase, No, "FSGSBASE"},
		{"no auxv", func(s *system) { s.cpuid, s.readFile = leaves(1, 0, 0), files(nil) }, (*system).fsgsbase, Unknown, "auxv"},
		{"perf forbidden", func(s *system) {
			s.readFile = files(map[string]string{paranoid: "4\n", "/proc/self/status": "CapEff:\t0000000000000000\n"})
		}, (*system).paranoid, No, "sysctl"},
		{"perf forbidden, but root", func(s *system) {
			s.readFile = files(map[string]string{paranoid: "4\n", "/proc/self/status": "CapEff:\t000001ffffffffff\n"})
		}, (*system).paranoid, Yes, "4"},
		{"perf not built in", func(s *system) { s.readFile = files(nil) }, (*system).paranoid, No, paranoid},
		{"perf_event_paranoid nonsense", func(s *system) { s.readFile = files(map[string]string{paranoid: "x"}) }, (*system).paranoid, Unknown, "x"},
		{"Yama 3", func(s *system) { s.readFile = files(map[string]string{yama: "3\n"}) }, (*system).yama, No, "nobody"},
		{"Yama unreadable", func(s *system) {
			s.readFile = func(string) ([]byte, error) { return nil, errors.New("input/output error") }
		}, (*system).yama, Unknown, "input/output"},
		{"gdb missing", func(s *system) {
			s.lookPath = func(string) (string, error) { return "", exec.ErrNotFound }
		}, func(s *system) Answer { return s.tool("gdb") }, No, "PATH"},
		{"ptrace without a victim", func(s *system) {
			s.lookPath = func(string) (string, error) { return "", exec.ErrNotFound }
		}, (*system).ptrace, Unknown, "no program"},
		{"Kubernetes", func(s *system) {
			s.readFile = files(map[string]string{"/proc/1/cgroup": "0::/kubepods/besteffort/pod1\n"})
		}, (*system).container, No, "kubepods"},
		{"seccomp", func(s *system) { s.readFile = files(map[string]string{"/proc/self/status": "Seccomp:\t2\n"}) }, (*system).seccomp, No, "filter"},
		{"no agent", func(s *system) {
			s.opts.Agent = func() ([]byte, error) { return nil, errors.New("built without the agent: run make") }
		}, (*system).agent, No, "run make"},
		{"an agent that is no library", func(s *system) {
			s.opts = Options{TempDir: []string{t.TempDir()}, Agent: func() ([]byte, error) { return []byte("\x7fELF, not"), nil }}
		}, (*system).agent, No, "libripstop.so"},
		{"no directory", func(s *system) { s.opts.TempDir = []string{"/nonexistent"} }, (*system).execDir, No, "TMPDIR"},
	}
	for _, tc := range tests {
		s := realSystem()
		tc.change(s)
		a := tc.ask(s)
		if a.Status != tc.want || !strings.Contains(a.Why+a.Value, tc.say) {
			t.Errorf("%s: %v %q %q, want %v with %q", tc.name, a.Status, a.Value, a.Why, tc.want, tc.say)
		}
	}
}

// Features follow from facts: one no is enough, a doubt is passed on, a question not asked does not count.
func TestFollow(t *testing.T) {
	facts := func(change map[string]Answer) map[string]Answer {
		all := map[string]Answer{}
		for _, q := range questions {
			all[q.id] = yes("")
		}
		for id, a := range change {
			all[id] = a
		}
		return all
	}
	status := func(fs []Feature, id string) Status {
		for _, f := range fs {
			if f.ID == id {
				return f.Status
			}
		}
		t.Fatalf("no feature %s", id)
		return Unknown
	}
	for _, f := range follow(facts(nil)) {
		if f.Status != Yes {
			t.Errorf("%s is %v though everything is there", f.ID, f.Status)
		}
	}
	fs := follow(facts(map[string]Answer{"memfd": no("x"), "ptrace": unknown("y")}))
	if status(fs, "run") != No || status(fs, "dumps") != Unknown || status(fs, "races") != Yes {
		t.Errorf("got %+v", fs)
	}
	if (&Report{Features: fs}).CanRun() {
		t.Error("CanRun without memfd")
	}
	without := facts(nil)
	delete(without, "agent")
	if fs := follow(without); status(fs, "run") != Yes {
		t.Errorf("run depends on a question that was not asked")
	}
}

// A real refusal: the test binary runs itself under a seccomp filter, and the probes must meet the kernel's own EPERM.
func TestUnderSeccomp(t *testing.T) {
	const mark = "RIPSTOP_DOCTOR_TEST_SECCOMP"
	if os.Getenv(mark) != "" {
		refuseBySeccomp(t, unix.SYS_PERF_EVENT_OPEN, unix.SYS_USERFAULTFD, unix.SYS_PTRACE, unix.SYS_MEMBARRIER, unix.SYS_MEMFD_CREATE)
		f, err := os.Create(os.Getenv(mark))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if err := Examine(Options{}).JSON(f); err != nil {
			t.Fatal(err)
		}
		return
	}
	out := filepath.Join(t.TempDir(), "report.json")
	cmd := exec.Command(os.Args[0], "-test.run=^TestUnderSeccomp$")
	cmd.Env = append(os.Environ(), mark+"="+out)
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	data, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	var r struct {
		Facts, Features []struct{ ID, Status, Why string }
	}
	if err := json.Unmarshal(data, &r); err != nil {
		t.Fatal(err)
	}
	no := map[string]bool{"seccomp": true, "clock": true, "breakpoints": true, "userfaultfd": true, "ptrace": true, "membarrier": true, "memfd": true}
	for _, f := range r.Facts {
		if no[f.ID] && (f.Status != "no" || !strings.Contains(f.Why, "filter")) {
			t.Errorf("%s: %s %q, want no because of the filter", f.ID, f.Status, f.Why)
		}
	}
	for _, f := range r.Features {
		if f.ID == "run" && f.Status != "no" {
			t.Errorf("run: %s without memfd_create", f.Status)
		}
	}
}

// refuseBySeccomp makes the system calls nrs fail with EPERM in every thread of this process, for good.
func refuseBySeccomp(t *testing.T, nrs ...uint32) {
	t.Helper()
	const load, jumpIfEqual, ret = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, unix.BPF_RET | unix.BPF_K
	prog := []unix.SockFilter{{Code: load, K: 0}} // offset of seccomp_data.nr
	for i, nr := range nrs {
		prog = append(prog, unix.SockFilter{Code: jumpIfEqual, Jt: uint8(len(nrs) - i), K: nr})
	}
	prog = append(prog, unix.SockFilter{Code: ret, K: unix.SECCOMP_RET_ALLOW}, unix.SockFilter{Code: ret, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)})
	runtime.LockOSThread() // both calls are of one thread
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	fprog := unix.SockFprog{Len: uint16(len(prog)), Filter: &prog[0]}
	if _, _, e := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&fprog))); e != 0 {
		t.Fatal("seccomp: ", e)
	}
}

// How the report reads: one line each, with its reason or value; what comes later is apart.
func TestText(t *testing.T) {
	r := &Report{
		Facts: []Fact{
			{"kernel", "Linux 5.15 or newer", "system", yes("6.1.0")},
			{"pku", "protection keys (PKU)", "cpu", no("the CPU has none")},
			{"yama", "Yama", "system", unknown("it cannot be read")},
		},
		Features: []Feature{{"run", "deadlocks", false, yes("")}, {"races", "races", true, no("missing: PKU")}},
	}
	var b bytes.Buffer
	if err := r.Text(&b, func(s Status, text string) string { return "<" + text + ">" }); err != nil {
		t.Fatal(err)
	}
	want := `System
  Linux 5.15 or newer    <yes>: 6.1.0
  Yama                   <could not tell> because it cannot be read

Processor
  protection keys (PKU)  <no>, because the CPU has none

What ripstop can do here
  deadlocks              <yes>

What this machine will be able to do in later versions
  races                  <no>, because missing: PKU
`
	if b.String() != want {
		t.Errorf("got:\n%s\nwant:\n%s", b.String(), want)
	}
}
