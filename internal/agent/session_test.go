package agent

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/ripstop/ripstop/internal/wire"
)

// The directory lets anybody who knows its name use the library and the socket, whatever the umask, and is gone after Close.
func TestSessionDirectory(t *testing.T) {
	old := unix.Umask(0o077)
	defer unix.Umask(old)
	s := newSession(t, Options{Handler: newCollector()})
	for name, want := range map[string]os.FileMode{"": 0o711, libraryName: 0o755, "sock": 0o666} {
		fi, err := os.Stat(filepath.Join(s.Dir(), name))
		if err != nil {
			t.Fatal(err)
		}
		if fi.Mode().Perm() != want {
			t.Errorf("%s has mode %o, want %o", fi.Name(), fi.Mode().Perm(), want)
		}
	}
	if strings.ContainsAny(s.Dir(), " :") {
		t.Errorf("ld.so would take %q apart", s.Dir())
	}
	if _, err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(s.Dir()); !os.IsNotExist(err) {
		t.Errorf("%s is still there: %v", s.Dir(), err)
	}
}

// A TMPDIR that cannot be used is passed over, and nothing is left in it.
func TestSessionDirectoryElsewhere(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "with space")
	if err := os.Mkdir(bad, 0o777); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", bad)
	s := newSession(t, Options{Handler: newCollector()})
	if strings.HasPrefix(s.Dir(), bad) {
		t.Errorf("the directory is %q", s.Dir())
	}
	if left, _ := os.ReadDir(bad); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

// What a killed session left is removed by the next one; what a living one uses, what is fresh, and what is not ours to judge stays.
func TestStaleDirectories(t *testing.T) {
	parent := t.TempDir()
	old := time.Now().Add(-time.Hour)
	make := func(name string, files ...string) string {
		dir := filepath.Join(parent, name)
		if err := os.Mkdir(dir, 0o711); err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			if err := os.WriteFile(filepath.Join(dir, f), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Chtimes(dir, old, old); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	dead := make("ripstop-1-dead", "lock", "sock", libraryName)
	half := make("ripstop-1-half", libraryName)
	foreign := make("ripstop-1-foreign", "lock", "letter")
	other := make("somebody", "lock")
	fresh := make("ripstop-1-fresh", "lock")
	if err := os.Chtimes(fresh, time.Now(), time.Now()); err != nil {
		t.Fatal(err)
	}
	used := make("ripstop-1-used", "lock")
	f, err := os.OpenFile(filepath.Join(used, "lock"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	cleanStale(parent)
	for dir, want := range map[string]bool{dead: false, half: false, foreign: true, other: true, fresh: true, used: true} {
		if _, err := os.Stat(dir); (err == nil) != want {
			t.Errorf("%s: %v", filepath.Base(dir), err)
		}
	}
	if _, err := os.Stat(filepath.Join(foreign, "letter")); err != nil {
		t.Errorf("a file that is not ours was removed")
	}
}

// The agent finds itself first in the LD_PRELOAD that counts, everything else is passed on string for string, in its order, and the number of
// entries that the agent takes out again is even.
func TestEnviron(t *testing.T) {
	s := &Session{dir: "/d"}
	in := []string{"A=1", "LD_PRELOAD=/x.so", "odd", "A=2", "LD_PRELOAD=/y.so:/z.so", "RIPSTOP_SESSION=/other", "B="}
	want := []string{"A=1", "LD_PRELOAD=/x.so", "odd", "A=2", "LD_PRELOAD=/d/libripstop.so:/y.so:/z.so", "B=", "RIPSTOP_PAD=", "RIPSTOP_SESSION=/d"}
	if got := s.Environ(in); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if got := s.Environ(nil); fmt.Sprint(got) != "[LD_PRELOAD=/d/libripstop.so RIPSTOP_SESSION=/d]" {
		t.Errorf("got %q", got)
	}
}

// hello is answered by the configuration and the control page, on which the heart beats.
func TestHello(t *testing.T) {
	cfg := wire.Config{All: 1, Follow: 1, StackDepth: 7}
	s := newSession(t, Options{Handler: newCollector(), Config: cfg})
	h := helloMsg(s, helloKind, 0)
	answer, fds := dialAgent(t, s).ask(bytesOf(&h))
	if len(answer) != wire.SizeWelcome || len(fds) != 1 {
		t.Fatalf("%d bytes and %d descriptors", len(answer), len(fds))
	}
	w := read[wire.Welcome](answer)
	got := w.Config[0]
	if w.Magic != wire.Magic || w.Version != wire.Version || got.All != 1 || got.StackDepth != 7 || got.LaneBytes != DefaultLaneBytes {
		t.Errorf("welcome %+v", w)
	}
	mem, err := unix.Mmap(fds[0], 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(mem)
	page := (*wire.Ctl)(unsafe.Pointer(&mem[0]))
	if page.Magic != wire.Magic || page.GoPid != int32(os.Getpid()) || page.NextProcess != 1 {
		t.Errorf("control page %+v", page)
	}
	first := atomic.LoadUint32(&page.HeartbeatMs)
	eventually(t, "a heartbeat", func() bool { return atomic.LoadUint32(&page.HeartbeatMs) != first })
	if err := unix.Ftruncate(fds[0], 0); err == nil {
		t.Error("an agent can take the control page away from us")
	}
	s.Close()
	if atomic.LoadUint32(&page.Closing) != 1 {
		t.Error("agents are not told that the session is over")
	}
}

// Messages that make no sense are refused, said once, and do the session no harm.
func TestHostileMessages(t *testing.T) {
	var mu sync.Mutex
	var warned []string
	s := newSession(t, Options{Handler: newCollector(), Config: wire.Config{StackDepth: 7}, Warn: func(w string) {
		mu.Lock()
		defer mu.Unlock()
		warned = append(warned, w)
	}})
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pipe[0])
	defer unix.Close(pipe[1])
	magic, version, kind, count := helloMsg(s, 1, 0), helloMsg(s, 1, 0), helloMsg(s, 99, 0), helloMsg(s, modulesKind, 0)
	magic.Magic++
	version.Version++
	count.Count = 1000
	noFD, aPipe, two := helloMsg(s, regionKind, 1), helloMsg(s, regionKind, 1), helloMsg(s, regionKind, 1)
	s.nextProcess()
	path := helloMsg(s, modulesKind, 0)
	path.Count = 1
	req := wire.ModuleRequest{BuildIDLen: 4000}
	for _, c := range []struct {
		name string
		msg  []byte
		fds  []int
		want string // in the warning; "": refused in the answer
	}{
		{"short", []byte("x"), nil, "1 bytes are no message"},
		{"long", make([]byte, maxMessage+10), nil, "too long"},
		{"magic", bytesOf(&magic), nil, "not from an agent"},
		{"version", bytesOf(&version), nil, "its version is"},
		{"kind", bytesOf(&kind), nil, "its kind is 99"},
		{"count", bytesOf(&count), nil, "1000 modules in 0 bytes"},
		{"region without memory", bytesOf(&noFD), nil, "0 descriptors"},
		{"region that is a pipe", bytesOf(&aPipe), []int{pipe[0]}, "not a memfd"},
		{"two regions", bytesOf(&two), []int{pipe[0], pipe[1]}, "2 descriptors"},
		{"build-id", append(append([]byte{}, bytesOf(&path)...), bytesOf(&req)...), nil, "build-id of 4000 bytes"},
		{"many descriptors", bytesOf(&two), make([]int, 100), "too long"},
	} {
		a := dialAgent(t, s)
		answer, fds := a.ask(c.msg, c.fds...)
		if len(fds) != 0 {
			t.Errorf("%s: was given descriptors", c.name)
		}
		if len(answer) == wire.SizeTables && read[wire.Tables](answer).Has != 0 {
			t.Errorf("%s: was granted", c.name)
		}
		eventually(t, c.name+": "+c.want, func() bool {
			mu.Lock()
			defer mu.Unlock()
			return strings.Contains(strings.Join(warned, "\n"), c.want)
		})
	}
	h := helloMsg(s, helloKind, 0)
	if answer, _ := dialAgent(t, s).ask(bytesOf(&h)); answer == nil {
		t.Error("the session answers no more")
	}
	before := openDescriptors(t)
	for i := 0; i < 50; i++ {
		dialAgent(t, s).ask(bytesOf(&aPipe), pipe[0])
	}
	eventually(t, "descriptors of refused messages are closed", func() bool { return openDescriptors(t) < before+60 })
}

// The socket's twin in the abstract namespace, which anybody on the machine can connect to, gives nothing away and takes nothing but from who
// has the control page. It takes regions from those, and so does the other one.
func TestTwin(t *testing.T) {
	var mu sync.Mutex
	var warned []string
	s := newSession(t, Options{Handler: newCollector(), Warn: func(text string) { mu.Lock(); defer mu.Unlock(); warned = append(warned, text) }})
	twin := func() *fakeAgent { return dialAgentAt(t, s, "@"+filepath.Join(s.Dir(), "sock")) }
	h := helloMsg(s, helloKind, 0)
	if answer, _ := twin().ask(bytesOf(&h)); answer != nil {
		t.Errorf("the twin answers a hello with %d bytes", len(answer))
	}
	eventually(t, "it is said that the hello was refused", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return strings.Contains(strings.Join(warned, "\n"), "it is not from a process of this session")
	})
	for _, dial := range []func() *fakeAgent{twin, func() *fakeAgent { return dialAgent(t, s) }} {
		r := newFakeRegion(t, s.nextProcess(), 1, 4096)
		forged := helloMsg(s, regionKind, r.head.Process)
		forged.Token++
		if answer, _ := dial().ask(bytesOf(&forged), r.fd); answer != nil {
			t.Errorf("a region with a wrong token is answered with %d bytes", len(answer))
		}
	}
	r := newFakeRegion(t, s.nextProcess(), 1, 4096)
	if !r.send(twin()) {
		t.Error("the twin refuses a region")
	}
}

// Which forked processes could not join is said of the first few one by one, and then their number; what the program may have written over the page
// does no harm.
func TestLost(t *testing.T) {
	c, err := newCtl()
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	var said []string
	tell := func() string {
		said = nil
		c.tellLost(func(text string) { said = append(said, text) })
		return strings.Join(said, "\n")
	}
	if got := tell(); got != "" {
		t.Errorf("of nothing: %s", got)
	}
	for i, why := range []unix.Errno{unix.ENOENT, unix.EPERM, unix.EMFILE, unix.EIO} {
		c.page.LostPid[i], c.page.LostWhy[i] = uint32(100+i), uint32(why)+1
	}
	c.page.Lost = 4
	got := tell()
	for _, want := range []string{"process 100, a child made by fork, was not watched: from its chroot", "101", "seccomp", "102", "too many open files", "103", "input/output error"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not said in\n%s", want, got)
		}
	}
	c.page.Lost = 1000
	for i := range c.page.LostWhy {
		c.page.LostWhy[i] = ^uint32(0)
	}
	if tell(); len(said) != wire.MaxLost+1 || !strings.Contains(said[wire.MaxLost], "992 more") {
		t.Errorf("of 1000: %q", said)
	}
}

func openDescriptors(t testing.TB) int {
	ents, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(ents)
}

// Anybody may connect and say nothing; agents are served all the same, and Close does not hang.
func TestSilentConnections(t *testing.T) {
	s := newSession(t, Options{Handler: newCollector()})
	for i := 0; i < 50; i++ {
		dialAgent(t, s)
	}
	h := helloMsg(s, helloKind, 0)
	if answer, _ := dialAgent(t, s).ask(bytesOf(&h)); answer == nil {
		t.Error("no answer")
	}
	begin := time.Now()
	s.Close()
	if d := time.Since(begin); d > 3*settleTime {
		t.Errorf("Close took %v", d)
	}
	if _, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: filepath.Join(s.Dir(), "sock"), Net: "unixpacket"}); err == nil {
		t.Error("the socket is still there")
	}
}

// More agents than threads wait at the door, none of which says anything: the next ones are answered all the same, before and after some of them have gone, and Close takes with it in what was sent last.
func TestManyConnections(t *testing.T) {
	s := newSession(t, Options{Handler: newCollector()})
	hello := func() {
		t.Helper()
		h := helloMsg(s, helloKind, 0)
		if answer, fds := dialAgent(t, s).ask(bytesOf(&h)); len(answer) != wire.SizeWelcome || len(fds) != 1 {
			t.Fatalf("an answer of %d bytes with %d descriptors", len(answer), len(fds))
		}
	}
	var silent []*fakeAgent
	for range 6 * spareThreads {
		silent = append(silent, dialAgent(t, s))
		hello()
	}
	for _, a := range silent[:5*spareThreads] {
		a.conn.Close()
	}
	for range 3 * spareThreads {
		hello()
	}
	// In the backlog, or being answered, when the service ends.
	last := newFakeRegion(t, s.nextProcess(), 1, 4096)
	a := dialAgent(t, s)
	h := helloMsg(s, regionKind, last.head.Process)
	if _, _, err := a.conn.WriteMsgUnix(bytesOf(&h), unix.UnixRights(last.fd), nil); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if st := s.Stats(); st.Processes != 1 {
		t.Errorf("%d processes were taken in, want 1", st.Processes)
	}
}

// A library without its file is a clear error, not a run without the agent.
func TestNoAgentBuiltIn(t *testing.T) {
	if _, err := Library(); err != nil && !strings.Contains(err.Error(), "make") {
		t.Errorf("%v", err)
	}
}

// A session's processes are asked for by their own pid: exec.Command keeps its child's status.
func TestForeignChildren(t *testing.T) {
	newSession(t, Options{Handler: newCollector()})
	if err := exec.Command("true").Run(); err != nil {
		t.Error(err)
	}
}

// Modules may be asked for behind a hello, before its answer has brought the token; not without one.
func TestModulesBehindHello(t *testing.T) {
	s := newSession(t, Options{Handler: newCollector(), Config: wire.Config{StackDepth: 7}})
	modules := helloMsg(s, modulesKind, 0)
	modules.Token, modules.Count = 0, 1
	req := wire.ModuleRequest{}
	msg := append(append([]byte{}, bytesOf(&modules)...), bytesOf(&req)...)
	if answer, _ := dialAgent(t, s).ask(msg); len(answer) != 0 {
		t.Errorf("a stranger was answered with %d bytes", len(answer))
	}
	a, hello := dialAgent(t, s), helloMsg(s, helloKind, 0)
	if answer, _ := a.ask(bytesOf(&hello)); len(answer) != wire.SizeWelcome {
		t.Fatalf("welcome of %d bytes", len(answer))
	}
	if answer, _ := a.ask(msg); len(answer) != wire.SizeTables {
		t.Errorf("behind a hello: %d bytes", len(answer))
	}
}
