package target

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/ripstop/ripstop/internal/finding"
	"github.com/ripstop/ripstop/internal/trace"
	"github.com/ripstop/ripstop/internal/wire"
)

// feed gives the events of text to s.
func feed(t testing.TB, s *Set, text string) *Set {
	t.Helper()
	lines, err := trace.ParseText(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	for i := range lines {
		s.Event(lines[i].Process, &lines[i].Event)
	}
	return s
}

// names answers like an image would: `f@<address>` everywhere in /bin/prog, inlined into `g` at 0x1100; table covers 0x4000 to 0x4fff.
type names struct{}

func (names) Frames(module, buildID string, at uint64) []finding.Frame {
	if module != "/bin/prog" {
		return nil
	}
	fs := []finding.Frame{{Func: fmt.Sprintf("f@%x", at), File: "prog.c", Line: int(at)}}
	if at == 0x1100 {
		fs = append(fs, finding.Frame{Func: "g", File: "prog.c", Line: 1})
	}
	return fs
}

func (names) Symbol(module, buildID string, at uint64) (string, uint64, bool) {
	return "table", at - 0x4000, module == "/bin/prog" && buildID == "abcd" && at>>12 == 4
}

func (names) ThreadLocal(module, _ string, below uint64) (string, uint64, uint64, bool) {
	return "mine", 4, 4, module == "/bin/prog" && below == 0x10
}
func (names) Local(_, _ string, at uint64, offset int64) (string, string, string, string, bool) {
	return "f", fmt.Sprintf("local%d", -offset), ".x", "int", at == 0x1100
}

func (names) Variable(_, _ string, at uint64, local bool) (string, string, bool) {
	return ".part", "int", local && at == 4
}

const prog = `
	process pid=77 ppid=3 id=1 tail="/bin/prog\x00prog\x00-x\x00"
	module base=0x401000 end=0x406000 bias=0x400000 id=1 build_id_len=2 tail="\xab\xcd/bin/prog"
	T1 thread-start tid=77 stack_lo=0x7000000 stack_hi=0x7100000
	stack id=S1 pcs=[0x401100,0x401201,0x990000]
	stack id=S2 pcs=[0x401300]
	stack id=S3 pcs=[0x401310]
	T1 thread-create child=T2 stack=S1
	T2 thread-start tid=78 stack_lo=0x6000000 stack_hi=0x6100000
	T2 thread-name target=T2 tail="worker\x00junk"
`

func pcs(st finding.Stack) (out []uint64) {
	for _, f := range st {
		out = append(out, f.PC)
	}
	return out
}

// A server that makes a thread for each connection makes millions in a week: of those that have ended long ago nothing was ever forgotten. The last ones are known, and who lives; in a forked child likewise.
func TestDeadThreadsAreBounded(t *testing.T) {
	s := feed(t, New(nil), prog)
	const first, many = 10, mostDead + 100
	var text strings.Builder
	for n := first; n < first+many; n++ {
		fmt.Fprintf(&text, "T%d thread-name target=T%d tail=\"busy\"\nT%d thread-exit\nT%d thread-exit\n", n, n, n, n)
	}
	feed(t, s, text.String())
	check := func(process uint64, last uint32) {
		t.Helper()
		if n := len(s.procs[process].threads); n > mostDead+2 {
			t.Errorf("%d threads are known", n)
		}
		if len(s.procs[process].dead) != mostDead {
			t.Errorf("%d dead threads", len(s.procs[process].dead))
		}
		if name := s.Thread(process, last).Name; name != "busy" {
			t.Errorf("the last one's name is %q", name)
		}
		if name := s.Thread(process, first).Name; name != "" {
			t.Errorf("of the first one %q is known", name)
		}
		if name := s.Thread(process, 2).Name; name != "worker" {
			t.Errorf("the name of one that lives, or has just died, is %q", name)
		}
	}
	check(1, first+many-1)
	if !s.Alive(1, 1) || !s.Alive(1, 2) {
		t.Error("those that live are dead")
	}
	feed(t, s, "P2 @60 process pid=80 start=fork parent_thread=T2 id=2 parent_id=1")
	check(2, first+many-1)
	if s.Alive(2, 1) || !s.Alive(2, 2) {
		t.Error("the forked child has other threads than the one that forked")
	}
}

// The process, its threads and stacks are what the events said.
func TestProcessAndThreads(t *testing.T) {
	s := feed(t, New(nil), prog)
	pid, exe, argv := s.Process(1)
	if pid != 77 || exe != "/bin/prog" || !slices.Equal(argv, []string{"prog", "-x"}) {
		t.Errorf("process %d %q %q", pid, exe, argv)
	}
	th := s.Thread(1, 2)
	if th.Number != 2 || th.Tid != 78 || th.Name != "worker" || th.Creator != 1 || !slices.Equal(pcs(th.Created), []uint64{0x401100, 0x401201, 0x990000}) {
		t.Errorf("thread 2: %+v", th)
	}
	if th := s.Thread(1, 1); th.Tid != 77 || th.Creator != 0 || th.Created != nil {
		t.Errorf("thread 1: %+v", th)
	}
	if got := s.Threads(1); !slices.Equal(got, []uint32{1, 2}) {
		t.Errorf("alive: %v", got)
	}
	feed(t, s, `T2 thread-exit
		thread-create child=T3
		thread-create-failed child=T3 error=11`)
	if got := s.Threads(1); !slices.Equal(got, []uint32{1}) || s.Alive(1, 2) || !s.Alive(1, 1) {
		t.Errorf("alive after an exit and a failed create: %v", got)
	}
	if th := s.Thread(1, 2); th.Name != "worker" {
		t.Errorf("a dead thread is forgotten: %+v", th)
	}
	feed(t, s, `process-end`)
	if !s.Ended(1) || s.Threads(1) != nil {
		t.Error("ended process has threads")
	}
}

// What nobody said is not made up.
func TestUnknown(t *testing.T) {
	s := feed(t, New(names{}), prog)
	for _, process := range []uint64{1, 9} {
		if th := s.Thread(process, 55); !reflect.DeepEqual(th, finding.Thread{Number: 55}) {
			t.Errorf("unknown thread: %+v", th)
		}
		if st := s.Stack(process, 44); st != nil {
			t.Errorf("unknown stack: %+v", st)
		}
		want := finding.Object{Kind: "mutex", Addr: 0x123}
		if o := s.Object(process, 0x123, wire.ObjectMutex); !reflect.DeepEqual(o, want) {
			t.Errorf("unknown object: %+v", o)
		}
		if f := s.Frame(process, 0x123, false); !reflect.DeepEqual(f, finding.Frame{PC: 0x123}) {
			t.Errorf("unknown address: %+v", f)
		}
	}
	if pid, exe, argv := s.Process(9); pid != 0 || exe != "" || argv != nil {
		t.Errorf("unknown process: %d %q %q", pid, exe, argv)
	}
	if s.Stack(1, 0) != nil {
		t.Error("stack 0 is not none")
	}
}

// Objects are placed as a programmer would: global, heap block, stack of a thread, mapping.
func TestObjectPlaces(t *testing.T) {
	s := feed(t, New(nil), prog+`
		init obj=0x404010 kind=mutex stack=S2
		init obj=0x900020 kind=rwlock stack=S2
		in-block obj=0x900020 block=0x900000 size=100 stack=S1
		in-block obj=0x910020 block=0x910000 size=100 stack=S1 site=1
		alloc addr=0xa00000 size=64 stack=S2
		alloc addr=0xb00000 size=0x20000 stack=S3
		mmap addr=0xc00000 len=0x3000
		munmap addr=0xc01000 len=0x1000
	`)
	for _, c := range []struct {
		addr uint64
		kind wire.Object
		want finding.Object
	}{
		{0x404010, wire.ObjectMutex, finding.Object{Kind: "mutex", Where: finding.Global, Module: "/bin/prog", BuildID: "abcd", SymOffset: 0x4010, Initialised: s.Stack(1, 2)}},
		{0x404010, wire.ObjectCond, finding.Object{Kind: "condition variable", Where: finding.Global, Module: "/bin/prog", BuildID: "abcd", SymOffset: 0x4010}},
		{0x900020, wire.ObjectRwlock, finding.Object{Kind: "rwlock", Where: finding.Heap, Block: 0x900000, Size: 100, Allocated: s.Stack(1, 1), Initialised: s.Stack(1, 2)}},
		{0x910020, wire.ObjectRwlock, finding.Object{Kind: "rwlock", Where: finding.Heap, Block: 0x910000, Size: 100, Allocated: s.Stack(1, 1), Reused: true}},
		{0xa00000, wire.ObjectHeap, finding.Object{Kind: "heap block", Where: finding.Heap, Block: 0xa00000, Size: 64, Allocated: s.Stack(1, 2)}},
		{0xa0003f, wire.ObjectHeap, finding.Object{Kind: "heap block", Where: finding.Heap, Block: 0xa00000, Size: 64, Allocated: s.Stack(1, 2)}},
		{0xa00040, wire.ObjectHeap, finding.Object{Kind: "heap block"}},
		{0xb1ffff, wire.ObjectSem, finding.Object{Kind: "semaphore", Where: finding.Heap, Block: 0xb00000, Size: 0x20000, Allocated: s.Stack(1, 3)}},
		{0xb20000, wire.ObjectSem, finding.Object{Kind: "semaphore"}},
		{0x6000010, wire.ObjectSpin, finding.Object{Kind: "spin lock", Where: finding.OnStack, OwnerThread: 2}},
		{0x70fffff, wire.ObjectBarrier, finding.Object{Kind: "barrier", Where: finding.OnStack, OwnerThread: 1}},
		{0x7100000, wire.ObjectBarrier, finding.Object{Kind: "barrier"}},
		{0xc00fff, wire.ObjectMutex, finding.Object{Kind: "mutex", Where: finding.Mapping}},
		{0xc01000, wire.ObjectMutex, finding.Object{Kind: "mutex"}},
		{0xc02000, wire.ObjectMutex, finding.Object{Kind: "mutex", Where: finding.Mapping}},
	} {
		c.want.Addr = c.addr
		if got := s.Object(1, c.addr, c.kind); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%#x:\ngot  %+v\nwant %+v", c.addr, got, c.want)
		}
	}
}

// An address that is used again is a new object: nothing of the old one sticks to it, in whichever order init and in-block come. Until
// then the old one is still told of.
func TestObjectReuse(t *testing.T) {
	for _, end := range []string{`block-gone block=0x900000 size=100`, `destroy obj=0x900020`} {
		for _, again := range [][]string{
			{`init obj=0x900020 stack=S3`, `in-block obj=0x900020 block=0x900020 size=40 stack=S2`},
			{`in-block obj=0x900020 block=0x900020 size=40 stack=S2`, `init obj=0x900020 stack=S3`},
		} {
			s := feed(t, New(nil), prog+`
				init obj=0x900020 stack=S2
				in-block obj=0x900020 block=0x900000 size=100 stack=S1
				`+end)
			o := s.Object(1, 0x900020, wire.ObjectMutex)
			if o.Where != finding.Heap || o.Size != 100 || !slices.Equal(pcs(o.Initialised), []uint64{0x401300}) {
				t.Errorf("%s: told of as %+v", end, o)
			}
			feed(t, s, `@100 `+again[0])
			if o := s.Object(1, 0x900020, wire.ObjectMutex); (o.Size == 100 || o.Allocated != nil) && len(o.Initialised) > 0 && o.Initialised[0].PC == 0x401300 {
				t.Errorf("%s, %s: old facts on a new object: %+v", end, again[0], o)
			}
			feed(t, s, `@101 `+again[1])
			o = s.Object(1, 0x900020, wire.ObjectMutex)
			if o.Block != 0x900020 || o.Size != 40 || !slices.Equal(pcs(o.Initialised), []uint64{0x401310}) || !slices.Equal(pcs(o.Allocated), []uint64{0x401300}) {
				t.Errorf("%s, then %v: %+v", end, again, o)
			}
		}
	}
	s := feed(t, New(nil), prog+`
		init obj=0x900020 stack=S2
		init obj=0x900020 flags=static
		destroy obj=0x900020 result=16`)
	if o := s.Object(1, 0x900020, wire.ObjectMutex); len(o.Initialised) == 0 {
		t.Error("late news of first use, or a refused destroy, took the initialisation away")
	}
}

// Objects in freed memory do not pile up without end.
func TestGoneObjectsAreBounded(t *testing.T) {
	s := New(nil)
	for i := range uint64(3 * maxGone) {
		addr := 0x100000 + i*64
		w := wire.EvInit{Obj: addr, Kind: wire.ObjectMutex}.Append(nil, i+1)
		s.Event(1, &wire.Event{TS: i, Type: wire.TypeInit, Words: w})
		w = wire.EvBlockGone{Block: addr, Size: 64}.Append(nil, i+1)
		s.Event(1, &wire.Event{TS: i, Type: wire.TypeBlockGone, Words: w})
	}
	if p := s.procs[1]; len(p.objects) > maxGone+1 || len(p.pages) > maxGone+1 {
		t.Errorf("%d objects in %d pages kept", len(p.objects), len(p.pages))
	}
	w := wire.EvBlockGone{Block: 0, Size: ^uint64(0)}.Append(nil, 1)
	s.Event(1, &wire.Event{Type: wire.TypeBlockGone, Words: w}) // ends soon, for all its pages
}

// A stack is placed in the modules of its time: dlclose and another dlopen at the same address do not rename it.
func TestModulesComeAndGo(t *testing.T) {
	s := feed(t, New(nil), `
		module base=0x1000 end=0x2000 bias=0x1000 id=1 tail="/lib/a.so"
		stack id=S1 pcs=[0x1500]
		module-gone id=1
		stack id=S2 pcs=[0x1500]
		module base=0x1000 end=0x3000 bias=0x1000 id=2 tail="/lib/b.so"
		stack id=S3 pcs=[0x1500,0x3000,0x3001]
		module-gone id=2
	`)
	path := func(id uint32, i int) string { return s.Stack(1, id)[i].Module }
	if path(1, 0) != "/lib/a.so" || path(3, 0) != "/lib/b.so" {
		t.Errorf("stacks lie in %q and %q", path(1, 0), path(3, 0))
	}
	if path(2, 0) != "/lib/b.so" { // taken in a constructor, before the module was announced
		t.Errorf("stack of a constructor lies in %q", path(2, 0))
	}
	if path(3, 1) != "/lib/b.so" || path(3, 2) != "" { // the call before a return address, and one byte on
		t.Errorf("return addresses at the end lie in %q, %q", path(3, 1), path(3, 2))
	}
	if m := s.Modules(1); len(m) != 0 {
		t.Errorf("still mapped: %v", m)
	}
	feed(t, s, `@100 module base=0x1000 end=0x3000 bias=0x1000 id=3 tail="/lib/b.so"`)
	if m := s.Modules(1); len(m) != 1 || m[0].ID != 3 || len(s.procs[1].modules) != 2 {
		t.Errorf("loaded again: %+v, %d kept", m, len(s.procs[1].modules))
	}
	feed(t, s, `@101 module base=0x2000 end=0x4000 bias=0x2000 id=4 tail="/lib/c.so"`)
	if m := s.Modules(1); len(m) != 1 || m[0].Path != "/lib/c.so" {
		t.Errorf("mapped over another: %+v", m)
	}
}

// A forked child knows what its parent knew at the fork, and goes its own way from there, even with ids the parent gives later.
func TestForkInherits(t *testing.T) {
	s := feed(t, New(nil), prog+`
		@50 init obj=0x900020 kind=mutex stack=S2
		in-block obj=0x900020 block=0x900000 size=100 stack=S1
		P2 @60 process pid=80 start=fork parent_thread=T2 id=2 parent_id=1
		P2 T2 thread-start tid=80 stack_lo=0x6000000 stack_hi=0x6100000
		P1 @70 stack id=S9 pcs=[0x401999]
		P1 stack id=S10 pcs=[0x401888]
		P2 stack id=S10 pcs=[0x401777]
		P2 thread-create child=T3
		P1 T1 thread-create child=T3 stack=S1
		P1 destroy obj=0x900020
		P1 init obj=0x900020 kind=mutex stack=S3
		P3 @80 process pid=81 start=fork parent_thread=T2 id=3 parent_id=2
	`)
	for _, child := range []uint64{2, 3} {
		if pid, exe, _ := s.Process(child); pid != uint32(78+child) || exe != "/bin/prog" {
			t.Errorf("child: pid %d, %q", pid, exe)
		}
		if st := s.Stack(child, 1); len(st) != 3 || st[0].Module != "/bin/prog" {
			t.Errorf("parent's stack in the child: %v", st)
		}
		if st := s.Stack(child, 9); st != nil {
			t.Errorf("stack the parent took after the fork: %v", st)
		}
		if st := s.Stack(child, 10); !slices.Equal(pcs(st), []uint64{0x401777}) {
			t.Errorf("child's own stack: %v", st)
		}
		o := s.Object(child, 0x900020, wire.ObjectMutex)
		if o.Size != 100 || !slices.Equal(pcs(o.Initialised), []uint64{0x401300}) {
			t.Errorf("parent's object in the child: %+v", o)
		}
	}
	if st := s.Stack(1, 10); !slices.Equal(pcs(st), []uint64{0x401888}) {
		t.Errorf("parent's own stack: %v", st)
	}
	if got := s.Threads(2); !slices.Equal(got, []uint32{2, 3}) {
		t.Errorf("threads of the child: %v", got)
	}
	if th := s.Thread(2, 2); th.Tid != 80 || th.Name != "worker" {
		t.Errorf("the thread that forked: %+v", th)
	}
	if th := s.Thread(2, 3); th.Creator != 1 || th.Created != nil {
		t.Errorf("the child's thread 3 has the parent's facts: %+v", th)
	}
	s.Forget(1)
	if st := s.Stack(2, 1); len(st) != 3 {
		t.Errorf("the parent is forgotten, and with it the child's stack: %v", st)
	}
}

// A trace that says processes are each other's parents does not lead in circles.
func TestForkRing(t *testing.T) {
	s := feed(t, New(nil), `
		P1 process start=fork id=1 parent_id=2
		P2 process start=fork id=2 parent_id=1
		P1 process start=fork id=1 parent_id=2
		P1 process start=fork id=1 parent_id=1
	`)
	if s.Stack(1, 5) != nil {
		t.Error("a stack from nowhere")
	}
}

// Symbolize names frames (the instruction before a return address, inlined calls as frames of their own) and globals, keeps what has no
// name, and does not change stacks that others hold.
func TestSymbolize(t *testing.T) {
	s := feed(t, New(names{}), prog+`init obj=0x404010 stack=S2`)
	st := s.Stack(1, 1)
	f := finding.Finding{
		Parts:   []finding.Part{{Stack: st, Held: []finding.Held{{Stack: s.Stack(1, 2)}}}},
		Objects: []finding.Object{s.Object(1, 0x404010, wire.ObjectMutex), s.Object(1, 0x402000, wire.ObjectMutex)},
		Threads: []finding.Thread{s.Thread(1, 2)},
	}
	s.Symbolize(&f)
	check := func() {
		t.Helper()
		var got []string
		for _, fr := range f.Parts[0].Stack {
			got = append(got, fmt.Sprintf("%x %s %v", fr.PC, fr.Func, fr.Inlined))
		}
		want := []string{"401100 f@1100 true", "401100 g false", "401201 f@1200 false", "990000  false"}
		if !slices.Equal(got, want) {
			t.Errorf("got %q\nwant %q", got, want)
		}
	}
	check()
	if fr := f.Parts[0].Stack[2]; fr.Module != "/bin/prog" || fr.Offset != 0x1201 || fr.BuildID != "abcd" || fr.File != "prog.c" {
		t.Errorf("frame %+v", fr)
	}
	for name, got := range map[string]finding.Stack{"held": f.Parts[0].Held[0].Stack, "created": f.Threads[0].Created, "initialised": f.Objects[0].Initialised} {
		if len(got) == 0 || got[0].Func == "" {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if o := f.Objects[0]; o.Symbol != "table" || o.SymOffset != 0x10 {
		t.Errorf("object %+v", o)
	}
	if o := f.Objects[1]; o.Symbol != "" || o.SymOffset != 0x2000 {
		t.Errorf("object without a symbol %+v", o)
	}
	if st[0].Func != "" || len(st) != 3 {
		t.Errorf("the detector's stack was changed: %+v", st)
	}
	s.Symbolize(&f)
	check()
}

// FuzzEvents: whatever events come in whatever order, nothing panics and every question is answered.
func FuzzEvents(f *testing.F) {
	f.Add(prog)
	f.Add("process start=fork id=1 parent_id=1\nalloc addr=0xffffffffffffffff size=9\nblock-gone block=5 size=0xffffffffffffffff")
	f.Add("module base=9 end=1 build_id_len=99\nmmap addr=0xffffffffffffffff len=9\nmunmap len=1\nmremap old=1 old_len=3 addr=1 len=7\nstack id=S1 pcs=[0]")
	f.Fuzz(func(t *testing.T, text string) {
		lines, err := trace.ParseText(strings.NewReader(text))
		if err != nil {
			return
		}
		s := New(names{})
		for i := range lines {
			s.Event(lines[i].Process, &lines[i].Event)
		}
		for i := range lines {
			e, p := &lines[i].Event, lines[i].Process
			for _, w := range e.Words {
				fd := finding.Finding{Objects: []finding.Object{s.Object(p, w, wire.Object(w))}, Threads: []finding.Thread{s.Thread(p, uint32(w))},
					Parts: []finding.Part{{Stack: s.Stack(p, uint32(w))}}}
				s.Symbolize(&fd)
				s.Frame(p, w, true)
			}
			s.Threads(p)
			s.Modules(p)
			s.Process(p)
		}
	})
}

func BenchmarkAllocFree(b *testing.B) {
	s := New(nil)
	a := wire.EvAlloc{Addr: 0x1000, Size: 64}
	for i := range b.N {
		a.Addr = uint64(i%10000) * 64
		e := wire.Event{Type: wire.TypeAlloc, Words: a.Append(nil, 1)}
		s.Event(1, &e)
		e = wire.Event{Type: wire.TypeFree, Words: wire.EvFree{Addr: a.Addr}.Append(nil, 2)}
		s.Event(1, &e)
	}
}

// A thread-local variable of the executable lies below its thread's pointer: on the stack's mapping of a thread, and of the main thread elsewhere. What else is near a pointer is
// what it was before.
func TestThreadLocal(t *testing.T) {
	s := feed(t, New(names{}), prog+`
		T1 thread-start self=T1 tid=77 pthread=0x8001000 stack_lo=0x7000000 stack_hi=0x7100000
		T2 thread-start self=T2 tid=78 pthread=0x60ff800 stack_lo=0x6000000 stack_hi=0x6100000
	`)
	for _, c := range []struct {
		addr   uint64
		where  finding.Where
		thread uint32
		symbol string
	}{
		{0x8000ff0, finding.TLS, 1, "mine"}, {0x60ff7f0, finding.TLS, 2, "mine"},
		{0x60ff7e0, finding.OnStack, 2, ""}, {0x60ff800, finding.OnStack, 2, ""}, {0x8001000, finding.Unknown, 0, ""}, {0x8000fe0, finding.Unknown, 0, ""},
	} {
		f := finding.Finding{Objects: []finding.Object{s.Object(1, c.addr, 0)}}
		f.Objects[0].Kind = finding.KindWords("location")
		s.Symbolize(&f)
		if o := f.Objects[0]; o.Where != c.where || o.OwnerThread != c.thread || o.Symbol != c.symbol || (o.Path == ".part" && o.Type == "int") != (c.symbol != "") || (o.Module != "") != (c.symbol != "") {
			t.Errorf("%#x: %+v", c.addr, o)
		}
	}
}
