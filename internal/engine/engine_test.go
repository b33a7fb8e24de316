package engine_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/ripstop/ripstop/internal/agent"
	"github.com/ripstop/ripstop/internal/engine"
	"github.com/ripstop/ripstop/internal/patch"
	"github.com/ripstop/ripstop/internal/wire"
	"github.com/ripstop/ripstop/internal/x86"
)

// empty is a recipe that does nothing.
type empty struct{}

func (empty) Size() int      { return 0 }
func (empty) Replaces() bool { return false }
func (empty) Append(dst []byte, at uint64) ([]byte, []patch.State, error) {
	return dst, nil, nil
}

// everywhere patches every memory instruction that is no plain stack traffic.
type everywhere struct {
	t    *testing.T
	libc bool

	mu    sync.Mutex
	procs int
	ends  int
	tiers [patch.Tiers]int
}

func (c *everywhere) Start(p *engine.Process) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.procs++
	return nil
}

// wanted says whether a memory instruction is none of plain stack traffic.
func wanted(in *x86.Inst) bool {
	for _, m := range in.Mems() {
		if m.Kind&x86.MemAddress == 0 && m.Base != x86.RSP && in.Flow == x86.FlowNone {
			return true
		}
	}
	return false
}

func (c *everywhere) Sites(p *engine.Process, m *engine.Module) (list []patch.Site) {
	switch m.Kind {
	case engine.Program, engine.Library:
	case engine.Libc:
		if !c.libc {
			return nil
		}
	default:
		return nil
	}
	m.Instructions(func(in *engine.Insn) bool {
		if wanted(&in.Inst) {
			list = append(list, patch.Site{At: in.At, Recipe: empty{}})
		}
		return true
	})
	return list
}

func (c *everywhere) Patched(p *engine.Process, m *engine.Module, at func(uint64) *patch.Patch) {
	n := 0
	c.mu.Lock()
	defer c.mu.Unlock()
	m.Instructions(func(in *engine.Insn) bool {
		if x := at(in.At); x != nil {
			c.tiers[x.Tier]++
			n++
		}
		return true
	})
	c.t.Logf("process %d: %s: %d sites", p.PID, m.Path, n)
}

func (c *everywhere) Site(*engine.Process, *engine.Module, uint64) (patch.Recipe, bool) {
	return nil, false
}

func (c *everywhere) End(*engine.Process) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ends++
}

type deaf struct{}

func (deaf) Event(uint64, *wire.Event) {}
func (deaf) Batch()                    {}
func (deaf) End(uint64)                {}

var library = sync.OnceValues(func() ([]byte, error) {
	cmd := exec.Command("make", "-s", "-C", "../agent/c")
	if out, err := cmd.CombinedOutput(); err != nil {
		return out, err
	}
	return os.ReadFile("../agent/lib/libripstop.so")
})

// compile builds testdata/name.c (or .cc) with extra flags and returns the program's path.
func compile(t *testing.T, name string, flags ...string) string {
	t.Helper()
	compiler := "gcc"
	if strings.HasSuffix(name, ".cc") {
		compiler = "g++"
	}
	bin := filepath.Join(t.TempDir(), strings.TrimSuffix(name, filepath.Ext(name)))
	args := append([]string{"-g", "-Wall", "-pthread", "-o", bin, filepath.Join("testdata", name)}, flags...)
	if out, err := exec.Command(compiler, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %v: %v\n%s", compiler, args, err, out)
	}
	return bin
}

// result is how a program ended.
type result struct{ stdout, stderr, state string }

const limit = 20 * time.Minute

// ended waits until a child has ended: a wait sees our own stops of it, too (tracee.Stop).
func ended(pid int) {
	for {
		var info struct { // siginfo_t
			signo, errno, code int32
			_                  [128 - 12]byte
		}
		_, _, e := unix.Syscall6(unix.SYS_WAITID, unix.P_PID, uintptr(pid), uintptr(unsafe.Pointer(&info)), unix.WEXITED|unix.WNOWAIT, 0, 0)
		const exited, dumped = 1, 3 // CLD_EXITED, CLD_DUMPED
		switch {
		case e == 0 && info.code >= exited && info.code <= dumped, e != 0 && e != unix.EINTR:
			return
		}
		time.Sleep(time.Millisecond)
	}
}

func run(t *testing.T, cmd *exec.Cmd) result {
	t.Helper()
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Start()
	if err == nil {
		ended(cmd.Process.Pid)
		err = cmd.Wait()
	}
	if _, exit := err.(*exec.ExitError); err != nil && !exit {
		t.Fatal(err)
	}
	return result{out.String(), errs.String(), cmd.ProcessState.String()}
}

func native(t *testing.T, in string, argv ...string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Stdin = strings.NewReader(in)
	return run(t, cmd)
}

// patched runs argv with an engine.
func patched(t *testing.T, o engine.Options, in string, argv ...string) (result, engine.Stats) {
	t.Helper()
	lib, err := library()
	if err != nil {
		t.Fatalf("make: %v\n%s", err, lib)
	}
	if o.Warn == nil {
		o.Warn = func(text string) { t.Errorf("engine: %s", text) }
	}
	eng := engine.New(o)
	s, err := agent.New(agent.Options{Config: wire.Config{Follow: 1}, Handler: deaf{}, Library: lib, Patcher: eng,
		Warn: func(text string) { t.Logf("warning: %s", text) }})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env = s.Environ(os.Environ())
	cmd.Stdin = strings.NewReader(in)
	r := run(t, cmd)
	if _, err = s.Close(); err != nil {
		t.Fatal(err)
	}
	eng.Stop() // figures are told a little later than answers
	st := eng.Stats()
	eng.Close()
	return r, st
}

func same(t *testing.T, o engine.Options, in string, argv ...string) engine.Stats {
	t.Helper()
	want := native(t, in, argv...)
	got, st := patched(t, o, in, argv...)
	if got != want {
		cut := func(r result) result {
			r.stdout, r.stderr = r.stdout[:min(3000, len(r.stdout))], r.stderr[:min(2000, len(r.stderr))]
			return r
		}
		t.Errorf("%v:\nnative:  %+v\npatched: %+v", argv, cut(want), cut(got))
	}
	t.Logf("%v: %+v", argv, st)
	return st
}

func words(n int) string {
	var b strings.Builder
	x := uint64(1)
	for range n {
		x = x*6364136223846793005 + 1442695040888963407
		b.WriteString([]string{"alpha", "beta", "gamma", "delta"}[x>>62])
		b.WriteByte(byte('a' + x>>40%26))
		b.WriteByte('\n')
	}
	return b.String()
}

// Likewise with libc too.
func TestLibc(t *testing.T) {
	text := words(5000)
	for _, argv := range [][]string{
		{"/bin/true"},
		{"gzip", "-c"},
		{"sort"},
		{"pigz", "-c", "-n", "-m", "-p", "4"},
		{"/bin/bash", "-c", "for i in 1 2 3; do echo $i | tr 1 x; done; (sleep 0; echo $$ | wc -w); x=$(seq 100 | sort -rn | head -3); echo $x; kill -USR1 $$ 2>/dev/null || true"},
		{"/usr/bin/python3", "-c", "import threading,subprocess,signal,os\nsignal.signal(signal.SIGUSR1,lambda *a: print('usr1'))\nr=[]\ndef f(n):\n  r.append(sum(i*n for i in range(5000)))\n" +
			"t=[threading.Thread(target=f,args=(i,)) for i in range(4)]\n[x.start() for x in t]\n[x.join() for x in t]\nprint(sorted(r))\n" +
			"os.kill(os.getpid(),signal.SIGUSR1)\nprint(subprocess.run(['/bin/echo','hi'],capture_output=True))\npid=os.fork()\nif pid==0: os._exit(7)\nprint(os.waitpid(pid,0)[1])"},
	} {
		if name := filepath.Base(argv[0]); testing.Short() && name != "gzip" && name != "pigz" {
			continue // under the race detector planning takes minutes
		}
		t.Run(filepath.Base(argv[0]), func(t *testing.T) {
			c := &everywhere{t: t, libc: true}
			same(t, engine.Options{Client: c}, text, argv...)
			t.Logf("tiers %v", c.tiers)
		})
	}
}

// Real programs give native results with an empty recipe at every memory instruction that is no plain stack traffic, in the program and its libraries but libc and ld.so.
func TestPrograms(t *testing.T) {
	text := words(20000)
	for _, argv := range [][]string{
		{"/bin/true"},
		{"gzip", "-c"},
		{"sort"},
		{"xz", "-c", "-T1"},
		{"sqlite3", ":memory:", "create table t(a,b); with recursive c(x) as (select 1 union all select x+1 from c where x<20000) insert into t select x, x*x%997 from c; " +
			"select b, count(*), sum(a) from t group by b order by 2 desc, 1 limit 20;"},
		{"pigz", "-c", "-n", "-m", "-p", "4"},
		{"/usr/bin/python3", "-c", "import threading\nr=[]\ndef f(n):\n  s=0\n  for i in range(20000): s=(s*31+i)%1000003\n  r.append((n,s))\n" +
			"t=[threading.Thread(target=f,args=(i,)) for i in range(4)]\n[x.start() for x in t]\n[x.join() for x in t]\nprint(sorted(r))"},
	} {
		if name := filepath.Base(argv[0]); testing.Short() && name != "gzip" && name != "pigz" {
			continue // under the race detector planning takes minutes
		}
		t.Run(filepath.Base(argv[0]), func(t *testing.T) {
			c := &everywhere{t: t}
			st := same(t, engine.Options{Client: c}, text, argv...)
			t.Logf("tiers %v", c.tiers)
			if c.procs == 0 || c.procs != c.ends {
				t.Errorf("%d processes began, %d ended", c.procs, c.ends)
			}
			if st.Sites == 0 {
				t.Error("no sites")
			}
		})
	}
}

// pushes has all of libc's instructions that access memory patched, the stack too.
type pushes struct{ everywhere }

func (c *pushes) Sites(_ *engine.Process, m *engine.Module) (list []patch.Site) {
	if m.Kind == engine.Libc {
		m.Instructions(func(in *engine.Insn) bool {
			if len(in.Inst.Mems()) > 0 {
				list = append(list, patch.Site{At: in.At, Recipe: padding(40)})
			}
			return true
		})
	}
	return list
}

// Sites of libc that need int3 were left out once; what was planned anew for their neighbours got int3 in turn, and a thread that came there with all signals blocked died of SIGTRAP (`count --libc --stack`, where pthread_create begins a thread).
func TestNoTrapsInLibc(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: planning all of libc, by one goroutine")
	}
	prog := compile(t, "many.c", "-O1")
	c := &pushes{everywhere{t: t, libc: true}}
	st := same(t, engine.Options{Client: c, Calls: x86.PushReturn}, "", prog)
	if n := c.tiers[patch.TierTrap]; n != 0 {
		t.Errorf("%d int3 in libc", n)
	}
	if st.Unpatched[engine.WhyTrap] == 0 {
		t.Error("no site needed int3: nothing is tested")
	}
}

// untrapped looks at libc's text before one in sixteen writes to it, and at the end: for int3 that was none natively.
type untrapped struct {
	pushes
	heads  []uint64 // of its instructions
	native []byte
	writes int
	traps  int
}

func (c *untrapped) Start(p *engine.Process) error {
	mem, err := os.Open(fmt.Sprintf("/proc/%d/mem", p.PID))
	if err != nil {
		return err
	}
	c.t.Cleanup(func() { mem.Close() })
	p.Hook(func(o wire.PatchOp) unix.Errno {
		if len(c.heads) == 0 {
			return 0
		}
		lo, now := c.heads[0], make([]byte, c.heads[len(c.heads)-1]-c.heads[0]+1)
		if o.Address < lo || o.Address >= lo+uint64(len(now)) || wire.PatchDo(o.Kind) != wire.PatchDoWrite {
			return 0
		}
		if c.writes++; c.writes%16 != 1 {
			return 0
		}
		if _, err := mem.ReadAt(now, int64(lo)); err != nil {
			c.t.Error(err)
		}
		if c.native == nil {
			c.native = now
		}
		for _, at := range c.heads {
			if now[at-lo] == 0xcc && c.native[at-lo] != 0xcc {
				c.traps++
			}
		}
		return 0
	})
	return c.pushes.Start(p)
}

func (c *untrapped) Sites(p *engine.Process, m *engine.Module) []patch.Site {
	list := c.pushes.Sites(p, m)
	if m.Kind == engine.Libc {
		m.Instructions(func(in *engine.Insn) bool {
			c.heads = append(c.heads, in.At)
			return true
		})
	}
	return list
}

// While jumps across pages were written there was int3 at them. If ripstop was killed then it stayed, and a thread that pthread_create began met it with all signals blocked: 13 of 1,600 programs whose ripstop was killed in their first tenth of a second
// died of SIGTRAP. So did sites that can have nothing else, which were given int3, and given up a moment later.
func TestNoTrapsMeanwhile(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: TestNoTrapsInLibc runs the same code")
	}
	c := &untrapped{pushes: pushes{everywhere{t: t, libc: true}}}
	same(t, engine.Options{Client: c, Calls: x86.PushReturn}, "", compile(t, "many.c", "-O1"))
	t.Logf("%d writes to %d instructions", c.writes, len(c.heads))
	if c.writes < 1000 || c.traps > 0 {
		t.Errorf("%d writes, %d int3 between them", c.writes, c.traps)
	}
}
