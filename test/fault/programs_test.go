package fault

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// What few programs do works under run and record as natively: same output, error output, status; and nothing is reported, since
// all of them use their locks rightly.
func TestOddPrograms(t *testing.T) {
	odd := program("odd")
	names := []string{
		"close-all", "few-descriptors", "look", "small-address-space", "small-stack", "no-files", "not-dumpable", "no-new-privileges", "sandbox",
		"clear-environment", "huge", "many", "forks", "churn", "segv", "alarms", "libraries", "unmapped", "daemon", "full", "input", "plain",
	}
	if os.Geteuid() == 0 {
		names = append(names, "drop", "jail")
	} else {
		t.Log("not root: without the programs that drop privileges and change their root")
	}
	if soak {
		names = append(names, "forks-many", "churn-many")
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			compare(t, []string{odd, name}, func(cmd *exec.Cmd) {})
		})
	}
}

// compare runs argv natively and watched; change is made to each command. The agent may not say anything.
func compare(t *testing.T, argv []string, change func(cmd *exec.Cmd)) {
	t.Helper()
	command := func(m mode) *exec.Cmd {
		if argv[1] == "daemon" && m.name != "" {
			// It ends when it likes to, and what lives on is named.
			m.args = slices.Insert(slices.Clone(m.args), len(m.args)-1, "--wait-for=all")
		}
		cmd := m.command(argv...)
		change(cmd)
		return cmd
	}
	native := start(t, command(mode{}))()
	if native.hung {
		t.Fatal("it hangs natively")
	}
	for _, m := range watched(t) {
		t.Run(m.name, func(t *testing.T) {
			got := start(t, command(m))()
			if argv[1] == "few-descriptors" {
				// A forked process that can have no descriptor at all is not watched, and the report says so.
				rest, ours := oursApart(got.stderr)
				got.stderr = rest
				report := strings.Join(ours, "")
				if m.name == "run" {
					b, _ := os.ReadFile(m.file)
					report = string(b)
				}
				if n := strings.Count(report, "was not watched"); n != 1 {
					t.Errorf("%d processes are said not to have been watched, want 1:\n%s", n, report)
				}
			}
			same(t, native, got)
			if m.name == "run" {
				nothingReported(t, m.file)
				return
			}
			out, err := exec.Command(ripstop, "report", "--format", "json", m.file).CombinedOutput()
			if err != nil {
				t.Errorf("report: %v\n%s", err, out)
			}
			if strings.Contains(string(out), `"type":"finding"`) {
				t.Errorf("a false report: %s", out)
			}
		})
	}
}

// The descriptors that a program is started with, or without, are its own.
func TestStreams(t *testing.T) {
	for name, script := range map[string]string{
		"stdin closed":        `"$@" <&-`,
		"stdout full":         `"$@" >/dev/full`,
		"stdout closed":       `"$@" >&-`,
		"stderr closed":       `"$@" 2>&-`,
		"all closed":          `"$@" <&- >&- 2>&-; echo $?`,
		"stdout broken":       `{ sleep 0.5; exec "$@"; } | true; echo ${PIPESTATUS[0]}`,
		"hardly any open":     `ulimit -Sn 4; "$@"`,
		"small stack":         `ulimit -s 128; "$@"`,
		"other directory":     `cd /proc; "$@"`,
		"session of its own":  `setsid -w "$@"`,
		"empty environment":   `env -i "$@"`,
		"ignored signals":     `trap '' PIPE CHLD INT; "$@"`,
		"everything ignored":  `trap '' 1 2 3 10 11 12 13 14 15 17 27; "$@"`,
		"own preload":         `LD_PRELOAD=libm.so.6 "$@"`,
		"malloc checks":       `MALLOC_PERTURB_=85 GLIBC_TUNABLES=glibc.malloc.tcache_count=0 "$@"`,
		"no randomised space": `setarch -R "$@"`,
		"low priority":        `nice -n 10 "$@"`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, program := range []string{"input", "full", "look"} {
				t.Run(program, func(t *testing.T) { compareScript(t, script, odd(program)...) })
			}
		})
	}
}

func odd(name string) []string { return []string{program("odd"), name} }

// compareScript runs script with "$@" being argv natively and watched.
func compareScript(t *testing.T, script string, argv ...string) {
	t.Helper()
	args := func(m mode) *exec.Cmd {
		cmd := exec.Command("/bin/bash", append(append([]string{"-c", script, "bash"}, m.args...), argv...)...)
		cmd.Env = environment()
		return cmd
	}
	native := start(t, args(mode{}))()
	for _, m := range watched(t) {
		got := start(t, args(m))()
		same(t, native, got)
		if m.name == "run" {
			nothingReported(t, m.file)
		}
	}
}

// What other tools see of a program, and do with it, is the same.
func TestTools(t *testing.T) {
	for name, script := range map[string]string{
		"env":         `"$@" env | grep -v ^_= | sort`,
		"descriptors": `"$@" ls /proc/self/fd`,
		"unshare":     `"$@" unshare -Upf --mount-proc ` + program("odd") + ` plain`,
		"namespaces":  `"$@" unshare -Urmnip --fork ` + program("odd") + ` plain`,
		"strace":      `"$@" strace -f -o /dev/null ` + program("odd") + ` plain`,
		"gdb":         `set -o pipefail; "$@" gdb -q -batch -nx -ex 'set confirm off' -ex 'set debuginfod enabled off' -ex 'set print thread-events off' -ex run --args ` + program("work") + ` single 10 2>&1 | grep -v '^warning\|^Using host\|^\[Thread debugging' | sed 's/process [0-9]*/process N/'`,
		"shell":       `"$@" bash -c '(exec ` + program("odd") + ` plain); ` + program("odd") + ` plain | cat; exit 4'`,
		"xargs":       `seq 30 | "$@" xargs -P 4 -n 1 sh -c 'exec ` + program("work") + ` single 10 >/dev/null; test $? = 7'; echo $?`,
		"timeout":     `"$@" timeout 0.5 sleep 10; echo $?`,
		"perl":        `"$@" perl -e '$SIG{ALRM}=sub{print "alarm\n"; exit 5}; alarm 1; while(1){}'; echo $?`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			compareScript(t, script)
		})
	}
}

// A new session works, or is refused with one clear error, where ripstop itself lacks something.
func TestPoorConditions(t *testing.T) {
	work := program("work")
	native := start(t, mode{}.command(work, "threads", "80", "20"))()
	// Root in most containers may not, and in a chroot whose root is no mount point nobody can.
	noMounts := exec.Command("unshare", "-m", "true").Run()
	// Directories that are not there, full or read-only: /tmp is one of several places for the session, the cache is a help only.
	for name, script := range map[string]string{
		"no home":            `unset HOME XDG_CACHE_HOME; "$@"`,
		"no such cache":      `XDG_CACHE_HOME=/proc/nowhere HOME=/proc/nowhere "$@"`,
		"read-only cache":    `d=$(mktemp -d); chmod 555 $d; XDG_CACHE_HOME=$d "$@"; s=$?; rm -rf $d; exit $s`,
		"cache is a file":    `XDG_CACHE_HOME=/etc/passwd "$@"`,
		"no such TMPDIR":     `TMPDIR=/nowhere "$@"`,
		"TMPDIR is a file":   `TMPDIR=/etc/passwd "$@"`,
		"TMPDIR is full":     `TMPDIR=/proc "$@"`,
		"TMPDIR with spaces": `d="/tmp/rs f$$"; mkdir "$d"; TMPDIR="$d" "$@"; s=$?; rm -rf "$d"; exit $s`,
		"TMPDIR too long":    `d=/tmp/$(printf 'x%.0s' $(seq 120)); mkdir -p $d; TMPDIR=$d "$@"; s=$?; rm -rf $d; exit $s`,
		"few files":          `ulimit -n 20; "$@"`,
		"hardly any files":   `ulimit -n 8; "$@"`,
		"four files":         `ulimit -n 4; "$@"`,
		"small files":        `ulimit -f 1; "$@"`,
		"small space":        `ulimit -v 2000000; "$@"`,
		"empty PATH":         `PATH= "$@"`,
		// The programs and reports are in /tmp; what is full is where TMPDIR says.
		"full TMPDIR": `d=$(mktemp -d); unshare -m bash -c 'd=$1; shift; mount -t tmpfs -o size=64k none $d; TMPDIR=$d "$@"' sh $d "$@"; s=$?; rmdir $d; exit $s`,
	} {
		if name == "full TMPDIR" && noMounts != nil {
			t.Log("nothing can be mounted here: without a full file system:", noMounts)
			continue
		}
		for i, modeName := range []string{"run", "record"} {
			t.Run(name+" "+modeName, func(t *testing.T) {
				t.Parallel()
				m := watched(t)[i]
				cmd := exec.Command("/bin/bash", append(append([]string{"-c", script, "bash"}, m.args...), work, "threads", "80", "20")...)
				cmd.Env = environment()
				got := start(t, cmd)()
				if got.hung {
					t.Fatal("it hangs")
				}
				_, ours := oursApart(got.stderr)
				if strings.Contains(got.stderr, "goroutine ") || strings.Contains(got.stderr, "panic") || strings.Contains(got.stderr, "fatal error") {
					t.Fatalf("it crashes:\n%s", got.stderr)
				}
				if got.stdout == "" && got.status == "exit status 125" && len(ours) == 1 {
					t.Logf("refused: %s", ours)
					return
				}
				if got.stdout != native.stdout || got.status != native.status || strings.Count(got.stderr, "\n") > 3 {
					t.Errorf("%s\n%s%s", got.status, got.stdout, got.stderr)
				}
				if got.stderr != "" {
					t.Logf("said: %s", got.stderr)
				}
				nothingReported(t, m.file)
			})
		}
	}
}

// A child whose parent cleared its environment is followed: its threads are in the trace.
func TestClearedEnvironmentIsFollowed(t *testing.T) {
	m := watched(t)[1]
	r := start(t, m.command(odd("clear-environment")...))()
	if r.status != "exit status 7" {
		t.Fatalf("%s\n%s%s", r.status, r.stdout, r.stderr)
	}
	out, err := exec.Command(ripstop, "dump", m.file).Output()
	if err != nil {
		t.Fatal(err)
	}
	execs := map[string]bool{}
	for line := range strings.Lines(string(out)) {
		var p, th string
		if strings.Contains(line, " process pid=") && strings.Contains(line, "start=exec") {
			fmt.Sscan(line, &p, &th)
			execs[p] = true
		}
	}
	if len(execs) != 4 {
		t.Errorf("%d programs in the trace, of 4: %v", len(execs), execs)
	}
}
