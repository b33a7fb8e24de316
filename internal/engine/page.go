package engine

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/ripstop/ripstop/internal/wire"
)

// errGone says that the process is no more, or no longer asks.
var errGone = errors.New("the process is gone")

// An opError says which of the operations that the process was told to do failed.
type opError struct {
	op    wire.PatchOp
	errno unix.Errno
}

func (e *opError) Error() string {
	if e.errno == unix.ENOMEM { // of each place the same: said once
		return fmt.Sprintf("the process could not %v memory for patches of its code: %v", wire.PatchDo(e.op.Kind), e.errno)
	}
	return fmt.Sprintf("the process could not %v %#x, %#x: %v", wire.PatchDo(e.op.Kind), e.op.Address, e.op.Value, e.errno)
}

func (e *opError) Unwrap() error { return e.errno }

// look is how often a server that waits looks whether its process is still there.
const look = time.Second

// Both sides look at the page for a moment before they sleep, since to be woken takes longer than most of what is asked. Longer than to see each other's words change they do so only while
// the other one says that it is at work: where both have but one processor each would keep the other from going on.
const (
	polling = 3 * time.Microsecond
	working = 50 * time.Microsecond
	// lost is how often in a row nothing came of it until it is left, and idled how long then.
	lost  = 2
	idled = 64
)

// What the agent's word Waiting and ours, Sleeping, say.
const (
	inKernel = 1
	atWork   = 2
)

// pause is the instruction of that name: the processor's other thread goes faster for it. Intel SDM vol. 2, PAUSE.
func pause()

// poll waits for a moment until something is asked.
func (p *Process) poll() {
	if p.polls++; p.polls < 0 {
		return
	}
	for began := time.Now(); ; {
		for range 8 {
			if atomic.LoadUint32(&p.page.Asked) != p.asked {
				p.polls = 0
				return
			}
			pause()
		}
		if d := time.Since(began); d > working || d > polling && atomic.LoadUint32(&p.page.Waiting) != atWork {
			break
		}
	}
	if p.polls >= lost {
		p.polls = -idled
	}
}

// await waits until something is asked that was not answered yet. soon: it is to be expected at once.
func (p *Process) await(soon bool) (wire.PatchAsk, error) {
	if soon {
		p.poll()
	}
	for {
		if asked := atomic.LoadUint32(&p.page.Asked); asked != p.asked {
			p.asked = asked
			atomic.StoreUint32(&p.page.Sleeping, atWork)
			return wire.PatchAsk(atomic.LoadUint32(&p.page.Request)), nil
		}
		if p.ends() {
			return 0, errGone
		}
		atomic.StoreUint32(&p.page.Sleeping, inKernel)
		if atomic.LoadUint32(&p.page.Asked) == p.asked {
			ts := unix.NsecToTimespec(int64(look))
			unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(&p.page.Asked)), futexWait, uintptr(p.asked), uintptr(unsafe.Pointer(&ts)), 0, 0)
		}
		atomic.StoreUint32(&p.page.Sleeping, 0)
	}
}

// Shared (not private) futex operations: the other side is another process.
const (
	futexWait = 0
	futexWake = 1
)

func wake(word *uint32) {
	unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), futexWake, 1<<30, 0, 0, 0)
}

// Values of the page's word Turn.
const (
	turnOpen  = 0
	turnTaken = 2
)

// take has the asker wait to the end of the request, and do p.last then. Where it has left already it is an error.
func (p *Process) take() error {
	p.page.Count, p.page.More = uint32(copy(p.page.Op[:], p.last)), 0
	if atomic.CompareAndSwapUint32(&p.page.Turn, turnOpen, turnTaken) || atomic.LoadUint32(&p.page.Turn) == turnTaken {
		return nil
	}
	p.last = nil
	return &opError{errno: unix.ECANCELED}
}

// atLast has the thread that asked do operations before it goes on, when the request is answered or we are gone: such as cannot fail, and that nobody else needs before. Texts may be
// changed from now on as if they were done, where that thread is alone.
func (p *Process) atLast(ops ...wire.PatchOp) error {
	if len(p.last)+len(ops) > wire.PatchOps {
		return p.do(ops...)
	}
	p.last = append(p.last, ops...)
	return p.take()
}

// answer answers what was asked last.
func (p *Process) answer() {
	atomic.StoreUint32(&p.page.Sleeping, 0)
	atomic.StoreUint32(&p.page.Answered, p.asked)
	if atomic.LoadUint32(&p.page.Waiting) == inKernel {
		wake(&p.page.Answered)
	}
}

// finish ends the conversation.
func (p *Process) finish(result unix.Errno) {
	p.page.Count, p.page.More, p.page.Result = uint32(copy(p.page.Op[:], p.last)), 0, -int32(result)
	p.last, p.stored = p.last[:0], 0
	p.answer()
}

// do has the thread that asked do operations, in their order up to the first that fails; before them what it was to do at last. The addresses that reserve gives are in ops
// afterwards.
func (p *Process) do(ops ...wire.PatchOp) error {
	if last := p.last; len(last) > 0 {
		p.last = nil
		if err := p.doNow(last); err != nil {
			return err
		}
	}
	for i := range ops {
		if err := p.fails(ops[i]); err != nil {
			return errors.Join(p.doNow(ops[:i]), err)
		}
	}
	return p.doNow(ops)
}

func (p *Process) doNow(ops []wire.PatchOp) error {
	for len(ops) > 0 {
		n := min(len(ops), wire.PatchOps)
		atomic.StoreUint32(&p.page.Count, 0) // if we are gone now, half of an operation is none
		copy(p.page.Op[:], ops[:n])
		p.page.Count, p.page.More = uint32(n), 1
		p.answer()
		ask, err := p.await(true)
		if err != nil {
			return err
		}
		if ask != wire.PatchAskMore {
			return fmt.Errorf("the process asks for %v in the middle of a request", ask)
		}
		done, errno := p.page.Done, unix.Errno(p.page.Error)
		copy(ops[:n], p.page.Op[:n])
		if errno != 0 || done != uint32(n) {
			return &opError{ops[min(done, uint32(n-1))], errno}
		}
		ops = ops[n:]
	}
	p.stored = 0
	return nil
}

// fails says whether an operation is to fail, in tests.
func (p *Process) fails(o wire.PatchOp) error {
	if p.hook == nil {
		return nil
	}
	if errno := p.hook(o); errno != 0 {
		return &opError{o, errno}
	}
	return nil
}

func op(kind wire.PatchDo, address, value uint64) wire.PatchOp {
	return wire.PatchOp{Kind: uint32(kind), Address: address, Value: value}
}
