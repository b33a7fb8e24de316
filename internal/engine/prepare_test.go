package engine

import (
	"bytes"
	"errors"
	"os"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/ripstop/ripstop/internal/patch"
	"github.com/ripstop/ripstop/internal/tracee"
	"github.com/ripstop/ripstop/internal/wire"
)

// bare is a recipe of one nop.
type bare struct{}

func (bare) Size() int      { return 1 }
func (bare) Replaces() bool { return false }
func (bare) Append(dst []byte, _ uint64) ([]byte, []patch.State, error) {
	return append(dst, 0x90), []patch.State{{Resume: patch.Restart}}, nil
}

// An asker does in this process what the engine says, as the agent does (patch.c), but that the operation refuse fails.
type asker struct {
	p      *Process
	refuse int
	done   int
	kinds  []wire.PatchDo
	errno  unix.Errno
}

func (a *asker) serve(answered uint32, stop *atomic.Bool) {
	page := a.p.page
	for ; !stop.Load(); runtime.Gosched() {
		now := atomic.LoadUint32(&page.Answered)
		if now == answered {
			continue
		}
		answered = now
		page.Done, page.Error = 0, 0
		for i := range page.Count {
			o := &page.Op[i]
			a.kinds = append(a.kinds, wire.PatchDo(o.Kind))
			var errno unix.Errno
			switch at := uintptr(o.Address); wire.PatchDo(o.Kind) {
			case wire.PatchDoMap:
				_, _, errno = unix.Syscall6(unix.SYS_MMAP, at, uintptr(o.Value), unix.PROT_READ|unix.PROT_EXEC, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE|unix.MAP_FIXED_NOREPLACE, ^uintptr(0), 0)
			case wire.PatchDoFrame:
				_, _, errno = unix.Syscall6(unix.SYS_MMAP, at, uintptr(o.Arg)*patch.PageSize, unix.PROT_READ|unix.PROT_EXEC, unix.MAP_SHARED|unix.MAP_FIXED, uintptr(a.p.fds[0]),
					uintptr(wire.SizePatchPage)+uintptr(o.Value)*patch.PageSize)
			case wire.PatchDoUnmap:
				if a.done+1 != a.refuse {
					_, _, errno = unix.Syscall(unix.SYS_MUNMAP, at, uintptr(o.Value), 0)
				}
			case wire.PatchDoReserve:
				var got uintptr
				got, _, errno = unix.Syscall6(unix.SYS_MMAP, 0, uintptr(o.Value), unix.PROT_READ, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS, ^uintptr(0), 0)
				o.Address = uint64(got)
			}
			if a.done++; a.done == a.refuse {
				errno = a.errno
			}
			if errno != 0 {
				page.Error = int32(errno)
				break
			}
			page.Done++
		}
		page.Request = uint32(wire.PatchAskMore)
		atomic.AddUint32(&page.Asked, 1)
		wake(&page.Asked)
	}
}

// while serves as long as f runs.
func (a *asker) while(f func()) {
	stop, ended := new(atomic.Bool), make(chan struct{})
	answered := atomic.LoadUint32(&a.p.page.Answered)
	go func() { a.serve(answered, stop); close(ended) }()
	f()
	stop.Store(true)
	<-ended
}

// unmapped has what is idle unmapped, all of it but where somebody else has mapped a page in the middle, and sees whether the engine knows what is mapped when one piece cannot go.
func unmapped(t *testing.T, p *Process, refuse int) {
	t.Helper()
	was := slices.Clone(p.blocks)
	theirs := (was[0].Lo + was[0].Hi) / 2 &^ (patch.PageSize - 1)
	if _, _, errno := unix.Syscall6(unix.SYS_MMAP, uintptr(theirs), patch.PageSize, unix.PROT_READ, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_FIXED, ^uintptr(0), 0); errno != 0 {
		t.Fatal(errno)
	}
	for _, refuse := range []int{refuse, 0} {
		a := &asker{p: p, refuse: refuse, errno: unix.ENOMEM}
		maps, err := tracee.Maps(p.PID)
		if err != nil {
			t.Fatal(err)
		}
		if a.while(func() { _, err = p.clear([]*Module{{}}, maps) }); err != nil && !failed(err, wire.PatchDoRun) {
			t.Fatalf("operation %d refused: %v", refuse, err)
		}
		if maps, err = tracee.Maps(p.PID); err != nil {
			t.Fatal(err)
		}
		still, known := intersect(was, p.ours(maps)), p.blocks
		if err != nil { // nothing has been tried
			known = subtract(known, []patch.Range{{Lo: theirs, Hi: theirs + patch.PageSize}})
		}
		if !slices.Equal(still, known) || !slices.Equal(p.space.Idle(), p.blocks) {
			t.Fatalf("operation %d refused: %x are mapped, %x are idle; of %x these are known: %x", refuse, still, p.space.Idle(), was, p.blocks)
		}
		if !slices.ContainsFunc(maps, func(m tracee.Mapping) bool { return uint64(m.Start) == theirs && !m.Exec }) {
			t.Fatalf("operation %d refused: somebody else's page is unmapped", refuse)
		}
		if refuse == 0 && len(p.blocks)+len(p.framed) > 0 {
			t.Fatalf("%x, %x stay", p.blocks, p.framed)
		}
	}
	unix.Syscall(unix.SYS_MUNMAP, uintptr(theirs), patch.PageSize, 0)
}

// far is the last place that TestPrepare used.
var far = uintptr(0x100000000000)

// A thread that had waited too long for an answer gave its request up while pages of trampolines were being mapped. That was taken for a limit of mappings that had been met: no page had a frame from then on, and thousands of places of sqlite's were not patched, as "the file of
// trampolines" was said to be full.
//
// Whichever operation the process cannot do, to put in place and to unmap again: when prepare says that all is in place, each trampoline's code lies where it is to lie; when not, nothing that the process was not told of counts as told.
func TestPrepare(t *testing.T) {
	text := make([]byte, 0, 400)
	for len(text) < cap(text)-8 {
		text = append(text, 0x48, 0x8b, 0x47, byte(len(text)), 0x90, 0x89, 0x07, 0x90)
	}
	most := 0 // operations of one go
	for refuse := 0; refuse <= most+2; refuse++ {
		for _, errno := range []unix.Errno{unix.ENOMEM, unix.EEXIST, unix.ECANCELED} {
			page := wire.SizePatchPage
			fd, mem, err := sharedMemory(memoryName, page+leastFrames)
			if err != nil {
				t.Fatal(err)
			}
			self, err := os.OpenFile("/proc/self/mem", os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			// A place far from where the kernel puts what names no address: the runtime's own mappings came to lie in a hole there.
			far += 64 << 20
			hole, _, no := unix.Syscall6(unix.SYS_MMAP, far, 64<<20, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE, ^uintptr(0), 0)
			if no != 0 || hole != far {
				t.Fatalf("%#x: %v", hole, no)
			}
			lo := uint64(hole)
			unix.Syscall(unix.SYS_MUNMAP, hole, 64<<20, 0)
			p := &Process{PID: os.Getpid(), e: New(Options{Client: &nobody{}, NoCache: true}), pageMem: mem, page: (*wire.PatchPage)(unsafe.Pointer(&mem[0])), mem: self, dead: map[uint64]int{}}
			p.fds[0], p.page.Frames = fd, leastFrames/patch.PageSize
			p.asked, p.page.Asked = 1, 1 // a request is under way
			p.space = patch.NewSpace([]patch.Range{{Lo: lo + 16<<20, Hi: lo + 48<<20}})
			plan := patch.NewText(lo, text)
			end := plan.AddFunction(lo, lo+uint64(len(text)))
			c := &change{t: &text1(lo, text, plan, p.space).text}
			for a := plan.Next(lo, end); a < end; a = plan.Next(a+1, end) {
				if plan.Len(a) > 1 && (len(c.add) < 8 || refuse%3 == 0) { // a few, or many
					c.add = append(c.add, patch.Site{At: a, Recipe: bare{}})
				}
			}
			c.some = true
			if err := p.plan([]*change{c}); err != nil {
				t.Fatal(err)
			}
			if refuse%2 == 1 { // the index has room
				at, err := unix.Mmap(-1, 0, arenaBytes, unix.PROT_READ, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
				if err != nil {
					t.Fatal(err)
				}
				p.arenas = []*arena{{at: uint64(uintptr(unsafe.Pointer(&at[0]))), bytes: arenaBytes}}
			}
			a := &asker{p: p, refuse: refuse, errno: errno}
			a.while(func() { err = p.prepare([]*change{c}, true) })
			most = max(most, min(a.done, 60))
			if a.done < refuse || refuse == 0 {
				if err != nil || p.ownPages {
					t.Fatalf("nothing was refused: %v", err)
				}
			}
			if errno == unix.ECANCELED && p.ownPages {
				t.Fatalf("operation %d was given up by who asked: pages of trampolines share no frames any more", refuse)
			}
			if err == nil {
				for _, x := range c.tx.New {
					got := make([]byte, len(x.Trampoline.Code))
					if _, err := self.ReadAt(got, int64(x.Trampoline.At)); err != nil || !bytes.Equal(got, x.Trampoline.Code) {
						t.Fatalf("operation %d refused (%v): the trampoline of %#x is % x, not % x: %v", refuse, errno, x.At, got, x.Trampoline.Code, err)
					}
				}
				if x := p.arenas[0]; refuse%2 == 0 && len(subtract([]patch.Range{{Lo: x.at, Hi: x.at + x.bytes}}, p.others)) > 0 {
					t.Error("the next plan may take the place of the index")
				}
				c.t.planner.Commit(c.tx)
				c.t.planner.Close()
				unmapped(t, p, refuse)
			}
			told := 0
			for _, k := range a.kinds {
				if k == wire.PatchDoRun {
					told++
				}
			}
			if len(p.runs) > told {
				t.Errorf("operation %d refused (%v): %d runs, of which the process was told %d times", refuse, errno, len(p.runs), told)
			}
			for _, r := range p.blocks {
				unix.Syscall(unix.SYS_MUNMAP, uintptr(r.Lo), uintptr(r.Hi-r.Lo), 0)
			}
			for _, r := range p.arenas {
				unix.Syscall(unix.SYS_MUNMAP, uintptr(r.at), uintptr(r.bytes), 0)
			}
			self.Close()
			unix.Munmap(mem)
			unix.Close(fd)
		}
	}
	t.Logf("up to %d operations", most)
}

// Nothing is changed for an asker that has left; one that has not waits for what it is to do.
func TestTake(t *testing.T) {
	page := &wire.PatchPage{}
	p := &Process{page: page}
	run := op(wire.PatchDoRun, 0x1000, 0)
	page.Turn = 1
	if err := p.atLast(run); !errors.Is(err, unix.ECANCELED) || len(p.last) > 0 || page.Turn != 1 {
		t.Errorf("it has left: %v, %v", err, p.last)
	}
	page.Turn = turnOpen
	for i := range uint32(2) {
		if err := p.atLast(run); err != nil || page.Turn != turnTaken || page.Count != i+1 || page.Op[i] != run || page.More != 0 {
			t.Errorf("it has not left: %v, turn %d, %d operations", err, page.Turn, page.Count)
		}
	}
	if p.finish(0); page.Count != 2 || len(p.last) > 0 {
		t.Errorf("%d operations with the answer, %d left", page.Count, len(p.last))
	}
	if p.finish(0); page.Count != 0 {
		t.Errorf("%d operations with the next answer", page.Count)
	}
}

type nobody struct{ Client }

type textOf struct{ text text }

func text1(at uint64, code []byte, plan *patch.Text, space *patch.Space) *textOf {
	return &textOf{text{at: at, size: uint64(len(code)), code: code, plan: plan, planner: patch.NewPlanner(plan, space), live: patch.NewOverlay(code)}}
}
