package engine

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ripstop/ripstop/internal/patch"
	"github.com/ripstop/ripstop/internal/tracee"
	"github.com/ripstop/ripstop/internal/wire"
)

// A change is a transaction of one text.
type change struct {
	t      *text
	m      *Module // where some is set
	add    []patch.Site
	remove []uint64
	some   bool // as many of add as can be, and nothing is to be removed
	tx     *patch.Transaction
	begun  int // how many of its steps were begun; where nobody else runs the text there is one
}

// attempts is how often a change is planned anew because somebody else has mapped memory where trampolines were to lie.
const attempts = 5

// apply plans changes and carries them out: all of them, or none if there is an error other than errGone; or, if what was begun cannot be taken back either, a part of them, and then the text
// concerned is left as it is from then on.
func (p *Process) apply(list []*change) error {
	var err error
	alone := p.alone()
	for range attempts {
		if err = p.plan(list); err != nil {
			return err
		}
		if err = p.prepare(list, alone); err == nil {
			break
		}
		if failed(err, wire.PatchDoTrap) { // the process was told of some
			return p.takeBack(list, alone, err)
		}
		for _, c := range list {
			p.abort(c)
		}
		if !errors.Is(err, unix.EEXIST) {
			return err
		}
		if _, err := p.survey(); err != nil {
			return err
		}
	}
	if err != nil {
		return err
	}
	for _, c := range list {
		if err = p.bareBut(c.t, c.tx); err != nil {
			return p.takeBack(list, alone, err)
		}
		if alone {
			c.begun = 1
			err = p.rewrite(c.t, c.tx.Edits)
		} else {
			err = p.edit(c.t, c.tx, c.tx.Steps(), &c.begun, p.atLast) // nothing follows the last step but the answer
		}
		if err != nil {
			return p.takeBack(list, alone, err)
		}
	}
	// A thread that was alone is the only one that may have seen the old code, and serializes its processor before it goes on (patch.c).
	// Nothing leads to old trampolines, but a thread may yet come back there: reclaim says which not.
	for _, c := range list {
		c.t.planner.Commit(c.tx)
		for _, x := range c.tx.New {
			p.count(x, 1)
		}
		for _, x := range c.tx.Old {
			p.count(x, -1)
			p.inter(c.t, x)
		}
	}
	return nil
}

// inter notes that nothing leads to a trampoline any more.
func (p *Process) inter(t *text, x *patch.Patch) {
	n := x.Trampoline.Len()
	p.old += uint64(n)
	p.buried += uint64(n)
	p.graves = append(p.graves, grave{x.Trampoline.At, n, t})
}

// plan plans all, or none.
func (p *Process) plan(list []*change) error {
	for i, c := range list {
		err := c.t.broken
		switch {
		case err != nil:
		case c.some:
			c.tx, err = c.t.planner.PlanSome(c.add)
		default:
			c.tx, err = c.t.planner.Plan(c.add, c.remove)
		}
		if err != nil {
			for _, c := range list[:i] {
				c.t.planner.Abort(c.tx)
			}
			return err
		}
		c.begun = 0
	}
	return nil
}

// abort takes back what was planned, where no thread can have come to a new trampoline.
func (p *Process) abort(c *change) {
	for _, x := range c.tx.New {
		p.bury(x) // if it is in a run already
	}
	c.t.planner.Abort(c.tx)
}

// prepare puts in place what must be there before the first byte of a text changes.
func (p *Process) prepare(list []*change, alone bool) error {
	var all []*patch.Patch
	for _, c := range list {
		all = append(all, c.tx.New...)
	}
	all = byTrampoline(all)
	mapping, err := p.mapping()
	if err != nil {
		return err
	}
	// What lies in frames is written before they are shown, so that all that the process has to do is done at once; unless the index needs more memory, which would be mapped where
	// trampolines are to lie.
	late := func(x *patch.Patch) bool { return !p.hasFrames(x, mapping.frames) }
	if !p.hasRoom(all) || slices.ContainsFunc(all, late) {
		if err := p.mapNow(mapping); err != nil {
			return err
		}
		mapping.ops, mapping.frames = nil, nil
	}
	if err := p.writeTrampolines(all, mapping.frames); err != nil {
		return err
	}
	runs := len(p.runs)
	ops, err := p.index(all)
	if err != nil {
		return err
	}
	traps := false
	for _, c := range list {
		for _, i := range trapping(c.tx, alone) {
			e := &c.tx.Edits[i]
			traps = true
			c.t.traps.set(e.At-c.t.at, len(c.t.code))
			ops = append(ops, op(wire.PatchDoTrap, e.At, e.To))
		}
	}
	// A run that the process was not told of is none.
	told := func(err error) error {
		if err != nil && len(p.runs) > runs && !failed(err, wire.PatchDoRun) && !failed(err, wire.PatchDoTrap) {
			p.runs[runs].in.runs--
			p.runs = p.runs[:runs]
		}
		return err
	}
	switch {
	case len(mapping.ops) > 0:
	case traps || !alone || p.mem == nil:
		return told(p.do(ops...))
	default:
		return told(p.atLast(ops...))
	}
	done := p.do(append(slices.Clone(mapping.ops), ops...)...)
	if err := p.nowMapped(mapping, done); err != nil || done == nil {
		return told(err)
	}
	if !p.ownPages || !failed(done, wire.PatchDoFrame) {
		return told(done)
	}
	// A page could not show its frame: what is to lie there is written now.
	if err := p.writeTrampolines(all, nil); err != nil {
		return err
	}
	return told(p.do(ops...))
}

// trapping gives the edits at which there is an int3 while they are made or afterwards.
func trapping(tx *patch.Transaction, alone bool) (list []int) {
	for i := range tx.Edits {
		if !alone || tx.Edits[i].New[0] == opTrap {
			list = append(list, i)
		}
	}
	return list
}

// hasFrames says whether a trampoline lies in pages that show frames, or will when soon is mapped.
func (p *Process) hasFrames(x *patch.Patch, soon []patch.Range) bool {
	for page := x.Trampoline.At &^ (patch.PageSize - 1); page < x.Trampoline.End(); page += patch.PageSize {
		if !within(p.framed, page) && !within(soon, page) {
			return false
		}
	}
	return true
}

// failed says whether it was such an operation that failed.
func failed(err error, kind wire.PatchDo) bool {
	var bad *opError
	return errors.As(err, &bad) && bad.op.Kind == uint32(kind)
}

const opTrap = 0xcc

// jumpReach is how far the jump of an edit reaches from its beginning, with prefixes; a short one, before or after, with the one that it leads to, in an instruction behind it.
func jumpReach(e *patch.Edit) (reach uint64) {
	for _, b := range [][]byte{e.Old, e.New} {
		const jump = 15 + 5
		n := uint64(jump)
		if len(b) > 1 && b[0] == opShort && int8(b[1]) > 0 {
			n += 2 + uint64(b[1])
		}
		reach = max(reach, n)
	}
	return reach
}

const opShort = 0xeb

// acrossPages gives the edits whose jumps may lie on two pages, and those whose jumps may be made of their heads or lead into them, in order.
func acrossPages(edits []patch.Edit) (list []*patch.Edit) {
	for i := len(edits) - 1; i >= 0; i-- {
		e := &edits[i]
		reach := jumpReach(e)
		if e.At/patch.PageSize != (e.At+reach)/patch.PageSize || len(list) > 0 && list[len(list)-1].At-e.At <= reach {
			list = append(list, e)
		}
	}
	slices.Reverse(list)
	return list
}

// byTrampoline gives patches by the addresses of their trampolines.
func byTrampoline(list []*patch.Patch) []*patch.Patch {
	type key struct {
		at uint64
		i  int
	}
	keys := make([]key, len(list))
	for i, x := range list {
		keys[i] = key{x.Trampoline.At, i}
	}
	slices.SortFunc(keys, func(a, b key) int { return cmp.Compare(a.at, b.at) })
	out := make([]*patch.Patch, len(list))
	for i, k := range keys {
		out[i] = list[k.i]
	}
	return out
}

// writeTrampolines writes those of patches that byTrampoline gave. soon are pages that will show frames.
func (p *Process) writeTrampolines(list []*patch.Patch, soon []patch.Range) error {
	var w writer
	for _, x := range list {
		at, code := x.Trampoline.At, x.Trampoline.Code
		for len(code) > 0 {
			page := at &^ (patch.PageSize - 1)
			n := min(uint64(len(code)), page+patch.PageSize-at)
			if f := p.frame(page, soon); f != nil {
				copy(f[at-page:], code[:n])
			} else if err := w.add(p, at, code[:n]); err != nil {
				return err
			}
			at, code = at+n, code[n:]
		}
	}
	return w.flush(p)
}

// A writer joins writes that follow each other.
type writer struct {
	at  uint64
	buf []byte
}

func (w *writer) add(p *Process, at uint64, b []byte) error {
	if w.at+uint64(len(w.buf)) != at || len(w.buf) > 1<<16 {
		if err := w.flush(p); err != nil {
			return err
		}
		w.at = at
	}
	w.buf = append(w.buf, b...)
	return nil
}

func (w *writer) flush(p *Process) error {
	if len(w.buf) == 0 {
		return nil
	}
	err := p.write(w.at, w.buf)
	w.buf = w.buf[:0]
	return err
}

// rewrite changes a text while only the thread that asks is there to run it. We may be killed, and the program then runs what is there, perhaps where it has all signals blocked: the text is right at all times, and not by int3. Each page is written
// at once, but for jumps that may lie on two: they come last, written by the thread that asks, which does all that it has been told, whoever lives.
func (p *Process) rewrite(t *text, edits []patch.Edit) error {
	across := acrossPages(edits)
	was := make([][]byte, len(across))
	for i, e := range across {
		was[i] = t.live.Copy(e.At-t.at, e.At-t.at+uint64(len(e.New)))
	}
	for i := range edits {
		t.live.Set(edits[i].At-t.at, edits[i].New)
	}
	var b []byte
	for i := 0; i < len(edits); {
		lo, page := edits[i].At, edits[i].At/patch.PageSize
		hi := lo
		for ; i < len(edits) && edits[i].At/patch.PageSize == page; i++ {
			hi = edits[i].At + uint64(len(edits[i].New))
		}
		b = t.live.Append(b[:0], lo-t.at, hi-t.at)
		for k, e := range across {
			if e.At >= lo && e.At < hi {
				copy(b[e.At-lo:], was[k])
			}
		}
		if err := p.write(lo, b); err != nil {
			return err
		}
	}
	var last []patch.Write
	for i := 0; i < len(across); {
		lo, hi := across[i].At, uint64(0)
		for first := i; i == first || i < len(across) && across[i].At <= hi; i++ {
			hi = across[i].At + uint64(len(across[i].New))
		}
		last = append(last, patch.Write{At: lo, Bytes: t.live.Copy(lo-t.at, hi-t.at)})
	}
	return p.writeThere(last)
}

// writeThere has the thread that asks write. Few enough of them, so that they fit into the page, are all written or none, should we be killed. What it cannot write, as where there is no /proc any more (chroot), we do.
func (p *Process) writeThere(list []patch.Write) error {
	for len(list) > 0 {
		var ops []wire.PatchOp
		used := p.stored // operations that wait for the end have bytes there
		for _, w := range list {
			if len(ops) == wire.PatchOps || used+len(w.Bytes) > len(p.page.Bytes) {
				break
			}
			o := op(wire.PatchDoWrite, w.At, uint64(len(w.Bytes)))
			o.Arg = uint32(used)
			used += copy(p.page.Bytes[used:], w.Bytes)
			ops = append(ops, o)
		}
		if len(ops) == 0 && p.stored == 0 {
			return fmt.Errorf("BUG: a write of %d bytes", len(list[0].Bytes))
		}
		err := p.do(ops...)
		var refused *opError
		if errors.As(err, &refused) && p.mem != nil {
			break
		}
		if err != nil {
			return err
		}
		list = list[len(ops):]
	}
	for _, w := range list {
		if err := p.write(w.At, w.Bytes); err != nil {
			return err
		}
	}
	return nil
}

// edit changes a text while other threads run it, by steps of a transaction: all of them, or the last ones. begun is how many were begun; last is how the last is seen to.
func (p *Process) edit(t *text, tx *patch.Transaction, steps [][]patch.Write, begun *int, last func(ops ...wire.PatchOp) error) error {
	// A jump inside a displaced instruction is made of heads, too: of lower rank than the one that leads to it. So it must be vacant before each step up to the tails.
	standing := len(tx.Vacate) > 0
	for i, step := range steps {
		*begun = i + 1
		standing = standing && step[0].Bytes[0] == opTrap && !tails(step, tx)
		if err := p.step(t, step); err != nil {
			return err
		}
		sync := p.do
		if i+1 == len(steps) {
			sync = last
		}
		if err := sync(op(wire.PatchDoSync, 0, 0)); err != nil {
			return err
		}
		if standing && i+1 < len(steps) {
			if err := p.vacate(tx.Vacate); err != nil {
				return err
			}
		}
	}
	return nil
}

// tails says whether a step writes other bytes than heads.
func tails(step []patch.Write, tx *patch.Transaction) bool {
	_, head := slices.BinarySearchFunc(tx.Edits, step[0].At, func(e patch.Edit, at uint64) int {
		switch {
		case e.At < at:
			return -1
		case e.At > at:
			return 1
		}
		return 0
	})
	return !head
}

// near is how far apart writes of a step may be that are made as one, with what is between them as it is.
const near = 64

func (p *Process) step(t *text, step []patch.Write) error {
	for i := 0; i < len(step); {
		lo, hi := step[i].At, step[i].At
		for ; i < len(step) && step[i].At < hi+near && step[i].At/patch.PageSize == lo/patch.PageSize; i++ {
			hi = step[i].At + uint64(len(step[i].Bytes))
			t.live.Set(step[i].At-t.at, step[i].Bytes)
		}
		if err := p.write(lo, t.live.Copy(lo-t.at, hi-t.at)); err != nil {
			return err
		}
	}
	return nil
}

// --- threads in what changes ---------------------------------------------------------------------------------------------------

// vacateFor and vacateWait bound how long a thread is waited for that stands in a jump inside a displaced instruction, or that a busy machine gives no time to say where it stands.
var vacateFor = 30 * time.Second

const vacateWait = time.Millisecond

// vacate waits until no thread stands at an address, a child's neither that has the memory in common: vfork's.
func (p *Process) vacate(at []uint64) error {
	for end := time.Now().Add(vacateFor); ; time.Sleep(vacateWait) {
		stands := false
		err := p.threads(func(pc uint64) { stands = stands || slices.Contains(at, pc) })
		switch {
		case err == nil && !stands:
			return nil
		case errors.Is(err, tracee.ErrNotAllowed), err != nil && time.Now().After(end):
			return fmt.Errorf("whether a thread stands at %#x: %w", at, err)
		case time.Now().After(end):
			return fmt.Errorf("a thread stands at one of %#x and does not go on", at)
		}
	}
}
