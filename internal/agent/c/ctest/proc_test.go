package ctest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ripstop/ripstop/internal/agent"
	"github.com/ripstop/ripstop/internal/wire"
)

// in runs argv in dir, by a shell that becomes it.
func in(dir string, argv ...string) []string {
	return append([]string{"/bin/sh", "-c", `cd "$0" && exec "$@"`, dir}, argv...)
}

// bothModes runs f under the filtered and the full event stream.
func bothModes(t *testing.T, f func(t *testing.T, config wire.Config)) {
	t.Run("filtered", func(t *testing.T) { f(t, filtered) })
	t.Run("all", func(t *testing.T) { f(t, all) })
}

// What programs do with processes, signals, dlopen and keys has the results, output, errors, statuses and errno that it has natively.
func TestProcessPrograms(t *testing.T) {
	for _, name := range []string{"proc_exec", "proc_spawn", "proc_system", "proc_vfork", "proc_fork", "proc_exit", "proc_sandbox",
		"signal_actions", "key_data"} {
		t.Run(name, func(t *testing.T) {
			prog := compile(t, name+".c", "-O1", "-Wno-nonnull", "-Wno-unused-result")
			bothModes(t, func(t *testing.T, config wire.Config) {
				argv := in(t.TempDir(), prog)
				want := native(t, os.Environ(), argv...)
				got, _, _ := under(t, config, nil, argv...)
				sameText(t, "stdout", want.stdout, got.stdout)
				sameText(t, "stderr", want.stderr, got.stderr)
				if want.state != got.state {
					t.Errorf("ended with %s, natively %s", got.state, want.state)
				}
			})
		})
	}
}

// Children with a sanitizer's runtime run as natively. AddressSanitizer's shared runtime ended them with "ASan runtime does not come first", gcc's
// ThreadSanitizer reported our locks as the program's, and clang's, which is linked statically, crashed.
func TestSanitizedChildren(t *testing.T) {
	argv := []string{compile(t, "proc_sanitized.c")}
	for i, flags := range [][]string{{"-fsanitize=address"}, {"-fsanitize=address", "-static-libasan"}, {"-fsanitize=thread"},
		{"-fsanitize=thread", "-static-libtsan"}, {"-fsanitize=undefined"}} {
		p := filepath.Join(t.TempDir(), fmt.Sprint("p", i))
		if err := os.Rename(compile(t, "proc_sanitized.c", flags...), p); err != nil {
			t.Fatal(err)
		}
		argv = append(argv, p)
	}
	bothModes(t, func(t *testing.T, config wire.Config) {
		want := native(t, os.Environ(), argv...)
		got, _, _ := under(t, config, nil, argv...)
		sameText(t, "stdout", want.stdout, got.stdout)
		sameText(t, "stderr", want.stderr, got.stderr)
	})
}

// sameText names the first line that differs.
func sameText(t *testing.T, what, want, got string) {
	t.Helper()
	w, g := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i := 0; i < max(len(w), len(g)); i++ {
		a, b := "", ""
		if i < len(w) {
			a = w[i]
		}
		if i < len(g) {
			b = g[i]
		}
		if a != b {
			t.Errorf("%s line %d:\nnative: %s\nagent:  %s", what, i+1, a, b)
			return
		}
	}
}

// A clone that runs on its maker's memory and thread storage beside it cannot be watched, nor can who may not read the clock: the agent leaves, and the
// program does not notice.
func TestProcessesThatTheAgentLeaves(t *testing.T) {
	leaves(t, wire.NoticeThreadUnseen, compile(t, "proc_fork.c", "-O1"), "shared")
	leaves(t, wire.NoticeNoTsc, compile(t, "proc_clock.c"))
}

func leaves(t *testing.T, notice wire.Notice, argv ...string) {
	t.Helper()
	want := native(t, os.Environ(), argv...)
	lib, err := library()
	if err != nil {
		t.Fatalf("make: %v\n%s", err, lib)
	}
	l := &log{ended: map[uint64]bool{}}
	s, err := agent.New(agent.Options{Config: all, Handler: l, Library: lib})
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = s.Environ(os.Environ())
	got := finish(t, cmd)
	if _, err = s.Close(); err != nil {
		t.Fatal(err)
	}
	if got != want {
		t.Errorf("%v:\nnative: %+v\nagent:  %+v", argv, want, got)
	}
	if n := s.Stats().DetachedProcesses; n != 1 {
		t.Errorf("%v: %d processes detached, want 1", argv, n)
	}
	said := false
	for _, e := range l.of(wire.TypeNotice) {
		said = said || wire.DecodeNotice(e.Words).What == notice
	}
	if !said {
		t.Errorf("%v: no notice says why", argv)
	}
}

// Without a session the preloaded agent changes nothing.
func TestProcessInert(t *testing.T) {
	for _, name := range []string{"proc_vfork", "proc_fork", "proc_exit", "proc_sandbox", "signal_actions", "key_data"} {
		t.Run(name, func(t *testing.T) { inert(t, compile(t, name+".c", "-O1")) })
	}
	t.Run("old_versions", func(t *testing.T) { inert(t, oldPrograms(t)) })
}

// inert runs prog in a directory of its own, natively and with the agent preloaded but no session.
func inert(t *testing.T, prog string) {
	t.Helper()
	bytes, err := library()
	if err != nil {
		t.Fatalf("make: %v\n%s", err, bytes)
	}
	lib := filepath.Join(t.TempDir(), "libripstop.so")
	if err := os.WriteFile(lib, bytes, 0o755); err != nil {
		t.Fatal(err)
	}
	want := native(t, os.Environ(), in(t.TempDir(), prog)...)
	got := native(t, append(os.Environ(), "LD_PRELOAD="+lib), in(t.TempDir(), prog)...)
	if got != want {
		t.Errorf("native: %+v\ninert:  %+v", want, got)
	}
}

// dlopen by a module with its own search path finds what that module finds natively, and the modules that came are announced.
func TestDlopenSeesItsCaller(t *testing.T) {
	dir := t.TempDir()
	prog := compile(t, "dl_open.c", "-ldl")
	build := func(out string, flags ...string) {
		t.Helper()
		args := append([]string{"-shared", "-fPIC", "-g", "-o", filepath.Join(dir, out), "testdata/dl_open.c"}, flags...)
		if text, err := exec.Command("gcc", args...).CombinedOutput(); err != nil {
			t.Fatalf("gcc %v: %v\n%s", args, err, text)
		}
	}
	for name, tags := range map[string]string{"runpath": "--enable-new-dtags", "rpath": "--disable-new-dtags"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
		build(name+"/libfound.so", "-DFOUND")
		build(name+"/libcaller.so", "-DCALLER", "-Wl,"+tags+",-rpath,$ORIGIN")
	}
	bothModes(t, func(t *testing.T, config wire.Config) {
		l := same(t, config, in(dir, prog)...)
		seen := map[string]bool{}
		for _, e := range l.of(wire.TypeModule) {
			m := wire.DecodeModule(e.Words)
			seen[filepath.Base(string(m.Tail[m.BuildIDLen:]))] = true
		}
		if !seen["libcaller.so"] {
			t.Errorf("modules announced: %v", seen)
		}
	})
}

// Each process of a tree of fork, vfork, exec, posix_spawn, system and popen says who it is, its exec, its end; what cannot load the agent is
// told as unfollowed.
func TestProcessEvents(t *testing.T) {
	script := `
import os, subprocess, sys
pid = os.fork()
if pid == 0:
    os.execv("/bin/true", ["true"])
os.waitpid(pid, 0)
subprocess.run(["/bin/true"])
os.waitpid(os.posix_spawn("/bin/true", ["true"], os.environ), 0)
os.system("exit 3")
subprocess.run(["/sbin/ldconfig", "--version"], stdout=subprocess.DEVNULL)
try:
    os.execv("/nonexistent", ["x"])
except OSError:
    pass
sys.exit(5)
`
	bothModes(t, func(t *testing.T, config wire.Config) {
		r, l, _ := under(t, config, nil, "/usr/bin/python3", "-c", script)
		if r.state != "exit status 5" {
			t.Fatalf("%s: %s", r.state, r.stderr)
		}
		execs, forks := map[string]int{}, 0
		for _, e := range l.of(wire.TypeProcess) {
			p := wire.DecodeProcess(e.Words)
			path, _, _ := strings.Cut(string(p.Tail), "\x00")
			if p.Start == wire.StartExec {
				execs[filepath.Base(path)]++
			} else {
				forks++
				if p.ParentID == 0 && p.Ppid == 0 {
					t.Errorf("forked process %d without a parent", p.ID)
				}
			}
		}
		if execs["true"] != 3 || execs["dash"] != 1 {
			t.Errorf("executed %v, want true three times and dash once", execs)
		}
		var unfollowed []string
		for _, e := range l.of(wire.TypeUnfollowed) {
			u := wire.DecodeUnfollowed(e.Words)
			unfollowed = append(unfollowed, u.Why.String()+" "+string(u.Tail))
		}
		if len(unfollowed) != 1 || !strings.HasPrefix(unfollowed[0], "static") {
			t.Errorf("unfollowed %q, want ldconfig, which is static", unfollowed)
		}
		failed := l.of(wire.TypeExecFailed)
		if len(failed) != 1 || wire.DecodeExecFailed(failed[0].Words).Errno != 2 {
			t.Errorf("exec-failed %v, want one with ENOENT", failed)
		}
		ends := map[int32]int{}
		for _, e := range l.of(wire.TypeProcessEnd) {
			ends[wire.DecodeProcessEnd(e.Words).Status]++
		}
		if ends[5] != 1 || ends[3] != 1 || ends[0] != 3 {
			t.Errorf("ends by status %v", ends)
		}
		if n := len(l.of(wire.TypeFork)); n < 5 {
			t.Errorf("%d fork events, want one for each child", n)
		}
		if config.All == 1 && len(l.of(wire.TypeWait)) < 5 {
			t.Errorf("%d wait events", len(l.of(wire.TypeWait)))
		}
	})
}

// A child is not given our variables when following is turned off. (The directory's own name may have ripstop in it.)
func TestProcessFollowOff(t *testing.T) {
	config := filtered
	config.Follow = 0
	r, l, _ := under(t, config, nil, "/bin/bash", "-c", "env | grep -e ^RIPSTOP -e ^LD_PRELOAD; /usr/bin/perl -e 'system(q(env | grep -e ^RIPSTOP -e ^LD_PRELOAD))'; true")
	if r.stdout+r.stderr != "" {
		t.Errorf("printed %q", r.stdout+r.stderr)
	}
	if n := len(l.of(wire.TypeProcess)); n != 1 {
		t.Errorf("%d processes seen, want the shell alone", n)
	}
	turnedOff := 0
	for _, e := range l.of(wire.TypeUnfollowed) {
		if wire.DecodeUnfollowed(e.Words).Why == wire.UnfollowedTurnedOff {
			turnedOff++
		}
	}
	if turnedOff == 0 {
		t.Error("nothing was told of the children")
	}
}

// Handlers, sends, takes, futex calls, keys and atexit handlers are told in all mode, each in its order.
func TestSignalAndKeyEvents(t *testing.T) {
	prog := compile(t, "signal_actions.c", "-O1")
	l := same(t, all, in(t.TempDir(), prog)...)
	enters, leaves := len(l.of(wire.TypeSignalEnter)), len(l.of(wire.TypeSignalLeave))
	// Five faults leave their handlers by siglongjmp.
	if enters < 4000 || enters-leaves != 5 {
		t.Errorf("%d signal-enter, %d signal-leave, want 5 less", enters, leaves)
	}
	if n := len(l.of(wire.TypeSignalTaken)); n != 4 {
		t.Errorf("%d signal-taken, want 4", n)
	}
	l = same(t, filtered, in(t.TempDir(), prog)...)
	if n := len(l.of(wire.TypeSignalEnter)) + len(l.of(wire.TypeSignalSend)); n != 0 {
		t.Errorf("%d signal events in filtered mode", n)
	}
	if len(l.of(wire.TypeSigaction)) == 0 {
		t.Error("no sigaction in filtered mode")
	}
	l = same(t, all, compile(t, "key_data.c"))
	if c, d := len(l.of(wire.TypeKeyCreate)), len(l.of(wire.TypeKeyDestructor)); c < 3900 || d != 16 {
		t.Errorf("%d key-create, %d key-destructor, want thousands and 16", c, d)
	}
}

// Shells, make and perl work as they do natively, in a tree of many processes.
func TestProcessTools(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "Makefile"), []byte("all: a b c d\n\t@echo done $$(wc -l < log)\na b c d:\n\t@echo $@ >> log; sleep 0.01\n.PHONY: all a b c d\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	same(t, filtered, in(dir, "/bin/sh", "-c", "rm -f log; make -j4; cat log | sort")...)
	same(t, filtered, "/bin/bash", "-c", `for i in $(seq 50); do (exit $i); echo $?; done; trap 'echo usr1' USR1; kill -USR1 $$; cat <(echo a) <(echo b) | wc -l
		x=$(echo $(echo nested)); echo $x; set -o pipefail; false | true; echo $?; sleep 100 & kill %1; wait %1; echo $?`)
	same(t, filtered, "/usr/bin/perl", "-e", `$|=1; for (1..20) { system("exit $_"); print $? >> 8, " "; } print qx(echo q); open(P, "-|", "echo piped; exit 7"); print <P>; close P; print $?>>8, "\n";
		$SIG{ALRM} = sub { die "alarm\n" }; eval { alarm 1; sleep 10 }; print $@; exec "echo last"`)
	same(t, filtered, "/bin/sh", "-c", "ldd /bin/true | sed 's/(.*//'")
}

// A library in a namespace of dlmopen has a libc of its own, whose keys have their values where the program's libc has its. There the agent's
// value was: the library's destructor was called with it. Results are as natively, the namespace is said once, threads of it that call back are
// known; and if no library could be loaded there, nothing is said.
func TestNamespaces(t *testing.T) {
	dir := t.TempDir()
	prog := compile(t, "dl_namespace.c", "-Wl,-rpath,"+dir)
	if out, err := exec.Command("gcc", "-g", "-Wall", "-shared", "-fPIC", "-pthread", "-DLIBRARY", "-o", filepath.Join(dir, "libspace.so"),
		"testdata/dl_namespace.c").CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
	said := func(l *log) (n int) {
		for _, e := range l.of(wire.TypeNotice) {
			if wire.DecodeNotice(e.Words).What == wire.NoticeNamespace {
				n++
			}
		}
		return n
	}
	bothModes(t, func(t *testing.T, config wire.Config) {
		l := same(t, config, in(dir, prog)...)
		if n := said(l); n != 1 {
			t.Errorf("%d notices of a namespace, want 1", n)
		}
		if n := len(l.of(wire.TypeThreadStart)); n < 2+8 {
			t.Errorf("%d threads, want the first, another, and 8 of the namespace's", n)
		}
		if n := len(l.of(wire.TypeMisuse)); n != 0 {
			t.Errorf("%d misuses", n)
		}
		if n := said(same(t, config, in(dir, prog, "none")...)); n != 0 {
			t.Errorf("%d notices of a namespace that could not be made", n)
		}
	})
}

// A library that was loaded with RTLD_DEEPBIND finds libc's malloc before ours. What it handed out where the program had freed a block was told as
// freed twice when the program freed it, and a lock that it gave back for the program stayed in the thread's held list: an inversion was told that was none. So may be what it says of
// threads that it joins for the program. It is said once that its calls are not seen.
func TestDeepbind(t *testing.T) {
	dir := t.TempDir()
	prog := compile(t, "dl_deepbind.c", "-O0", "-Wl,-rpath,"+dir)
	if out, err := exec.Command("gcc", "-g", "-Wall", "-shared", "-fPIC", "-pthread", "-DLIBRARY", "-o", filepath.Join(dir, "libdeep.so"),
		"testdata/dl_deepbind.c").CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
	bothModes(t, func(t *testing.T, config wire.Config) {
		config.Heap, config.AllocDepth = 1, 16
		for how, notices := range map[string]int{"deep": 1, "usual": 0} {
			l := same(t, config, in(dir, prog, how)...)
			said := 0
			for _, e := range l.of(wire.TypeNotice) {
				if wire.DecodeNotice(e.Words).What == wire.NoticeDeepbind {
					said++
				}
			}
			if said != notices {
				t.Errorf("%s: %d notices, want %d", how, said, notices)
			}
			for _, m := range misuses(l) {
				if m.Kind == wire.ObjectHeap {
					t.Errorf("%s: %v", how, m.What)
				}
			}
			if n := len(l.of(wire.TypeOrder)); n > 1 {
				t.Errorf("%s: %d orders of locks, want the one that there was", how, n)
			}
		}
		// Without it, what is wrong is told.
		if list := misuses(same(t, config, in(dir, prog, "wrong")...)); len(list) != 1 || list[0].What != wire.MisuseInvalidFree {
			t.Errorf("%+v, want an invalid free", list)
		}
	})
}

// libc forks in daemon and spawns in wordexp by functions that cannot be interposed: daemon's parent left without a word, and nobody was told of
// wordexp's shells, which are not followed.
func TestChildrenOfLibc(t *testing.T) {
	prog := compile(t, "proc_inside.c", "-O1")
	bothModes(t, func(t *testing.T, config wire.Config) {
		l := same(t, config, in(t.TempDir(), prog)...)
		const daemons, shells = 5, 2
		ends := map[wire.End]int{}
		for _, e := range l.of(wire.TypeProcessEnd) {
			ends[wire.DecodeProcessEnd(e.Words).End]++
		}
		if n := len(l.of(wire.TypeFork)); n != 2*daemons {
			t.Errorf("%d forks, want %d: each daemon's parent and the daemon", n, 2*daemons)
		}
		told := 2 * daemons
		if config.All == 0 {
			told = daemons // the daemons themselves have sent nothing, and end without a word
		}
		if ends[wire.EndRawExit] != told || ends[wire.EndExit] != 1 {
			t.Errorf("ends %v, want %d by _exit and the first process's by exit", ends, told)
		}
		inside := 0
		for _, e := range l.of(wire.TypeUnfollowed) {
			if u := wire.DecodeUnfollowed(e.Words); u.Why == wire.UnfollowedInsideLibc && string(u.Tail) == "/bin/sh" {
				inside++
			} else {
				t.Errorf("unfollowed %v %s", u.Why, u.Tail)
			}
		}
		if inside != shells {
			t.Errorf("%d times shells inside libc, want %d", inside, shells)
		}
	})
}
