package race

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/ripstop/ripstop/internal/finding"
	"github.com/ripstop/ripstop/internal/wire"
)

// maxRaces bounds how many different races are remembered.
const maxRaces = 1 << 14

// new reports whether a race of that key is told for the first time.
func (d *Detector) isNew(key string) bool {
	if r := d.races[key]; r != nil {
		r.Finding.Count++
		return false
	}
	if len(d.races) >= maxRaces {
		d.note("more than 16384 different races; the later ones are left out")
		return false
	}
	return true
}

// pairKey is the same for two places of code whichever came first.
func pairKey(process uint64, what string, a, b uint64) string {
	return fmt.Sprintf("%d %s %x %x", process, what, min(a, b), max(a, b))
}

// race is reached when x does not follow q, of which s has bytes in mask. kind is what q did there.
func (d *Detector) race(x *access, q *point, mask uint8, kind Kind, atomic bool) {
	s := &d.sites[q.site]
	mov := x.mov && !atomic && kind&Locked == 0 && (s.kind == Read || s.kind == Write) && s.size == x.Size && q.addr == x.Addr
	if mov {
		d.suspect(x)
	}
	if len(d.racy) < maxRacy {
		for _, a := range []uint64{x.Addr, q.addr} {
			d.racy[Cell{x.p.id, a / 8}] = struct{}{}
		}
	}
	key := pairKey(x.p.id, "race", x.PC, s.pc)
	if !d.isNew(key) {
		if r := d.races[key]; r.Mov && !mov {
			r.Mov = false
		}
		return
	}
	r := &Race{Key: key, Seq: d.seq, Addr: x.Addr, Mov: mov}
	d.races[key] = r
	if d.w == nil {
		return
	}
	at := &site{t: x.t, pc: x.PC, size: x.Size, kind: x.Kind, atomic: atomic, provenance: x.Provenance, stack: x.Stack, held: x.t.heldNow()}
	b := newTeller(d.w, d.held, x.p.id, finding.RuleDataRace)
	b.unordered(at, x.Addr, q, s)
	r.Finding = b.f
}

// unordered says that x, an access at addr, does not follow what s did at q.
func (b *teller) unordered(x *site, addr uint64, q *point, s *site) {
	id := b.location(max(addr, q.addr))
	b.access(accessText(x.kind, x.atomic, false), addr, x)
	b.previous(q, s)
	verb := "accessed"
	if s.t != nil {
		verb = fmt.Sprintf("%s by %s and %s by %s", done(x.kind, addr), b.thread(x.t.number), done(s.kind, addr), b.thread(s.t.number))
	}
	b.f.Message = fmt.Sprintf("%s is %s, and nothing orders the two", id, verb)
}

func (b *teller) previous(q *point, s *site) {
	if s.t == nil {
		b.f.Parts = append(b.f.Parts, finding.Part{Text: fmt.Sprintf("Previous access, including byte 0x%x", q.addr)})
		b.f.Notes = append(b.f.Notes, "where the earlier access was is not remembered")
		return
	}
	b.access(accessText(s.kind, s.atomic, true), q.addr, s)
}

// freeRace is reached when a free does not follow q.
func (d *Detector) freeRace(x *access, q *point, blk *block, ev wire.EvFree, kind Kind) {
	s := &d.sites[q.site]
	key := fmt.Sprintf("%d free %x S%d", x.p.id, s.pc, ev.Stack)
	if !d.isNew(key) {
		return
	}
	r := &Race{Key: key, Seq: d.seq, Addr: blk.addr}
	d.races[key] = r
	if d.w == nil {
		return
	}
	at := &site{t: x.t, stack: ev.Stack, size: blk.size, held: x.t.heldNow()}
	b := newTeller(d.w, d.held, x.p.id, finding.RuleDataRace)
	b.freed(freeWord(ev.Kind), at, blk.addr, q, s)
	r.Finding, r.inner = b.f, b.inner(freedBy)
}

// freed says that x, the free of a block at addr, does not follow what s did at q.
func (b *teller) freed(how string, x *site, addr uint64, q *point, s *site) {
	id := b.object(addr, wire.ObjectHeap, finding.KindWords("heap"))
	b.access("Free ("+how+") of a block", addr, x)
	b.previous(q, s)
	b.f.Message = fmt.Sprintf("%s is freed by %s, and nothing orders that after the access by %s", id, b.thread(x.t.number), b.threadOf(s))
}

// Where the access is among the parts of a finding about a free.
const usedBy, freedBy = 0, 1

// synchronisers are internal/access's.
var synchronisers = []string{"libgomp.so", "libomp.so", "libiomp5.so"}

// inner says whether the access is one by a library of which nothing but what it orders is told: what it does to blocks of its own is its own affair.
func (b *teller) inner(part int) bool {
	stack := b.f.Parts[part].Stack
	return len(stack) > 0 && slices.ContainsFunc(synchronisers, func(s string) bool { return strings.HasPrefix(path.Base(stack[0].Module), s) })
}

func (b *teller) threadOf(s *site) string {
	if s.t == nil {
		return "another thread"
	}
	return b.thread(s.t.number)
}

// freedAccess is reached when x touches a block that was freed.
func (d *Detector) freedAccess(x *access, cell uint64, mask uint8) {
	var blk *block
	for _, o := range x.p.mem.within(cell*8, cell*8+8) {
		if o.freed && maskOf(cell, o.addr, o.end())&mask != 0 {
			blk = o
			break
		}
	}
	if blk == nil {
		return
	}
	key := fmt.Sprintf("%d freed %x S%d", x.p.id, x.PC, blk.freeStack)
	if !d.isNew(key) {
		return
	}
	r := &Race{Key: key, Seq: d.seq, Addr: x.Addr}
	d.races[key] = r
	if d.w == nil {
		return
	}
	at := &site{t: x.t, pc: x.PC, size: x.Size, kind: x.Kind, atomic: x.Kind&Locked != 0, provenance: x.Provenance, stack: x.Stack, held: x.t.heldNow()}
	b := newTeller(d.w, d.held, x.p.id, finding.RuleUseAfterFree)
	b.usedAfter(at, x.Addr, blk.addr, freeWord(blk.freeKind), blk.freeThread, blk.freeStack)
	r.Finding, r.inner = b.f, b.inner(usedBy)
}

// usedAfter says that x, an access at addr, is to a block that was freed.
func (b *teller) usedAfter(x *site, addr, block uint64, how string, by, stack uint32) {
	id := b.object(block, wire.ObjectHeap, finding.KindWords("heap"))
	b.access(accessText(x.kind, x.atomic, false), addr, x)
	b.part(finding.Part{Text: fmt.Sprintf("Block %s freed (%s)", id, how), Thread: by, Stack: b.w.Stack(b.p, stack)})
	b.f.Message = fmt.Sprintf("%s was freed before %s accessed it", id, b.thread(x.t.number))
}

func freeWord(kind wire.Alloc) string {
	switch kind {
	case wire.AllocDelete:
		return "operator delete"
	case wire.AllocDeleteArray:
		return "operator delete[]"
	case wire.AllocRealloc, wire.AllocReallocarray:
		return "realloc"
	}
	return "free"
}

func accessText(kind Kind, atomic, previous bool) string {
	if kind&Object != 0 {
		what := "use"
		if kind&Write != 0 {
			what = "initialisation or destruction"
		}
		if previous {
			what = "previous " + what
		}
		return upper(what) + " of an object of synchronisation"
	}
	what := map[Kind]string{Read: "read", Write: "write", Read | Write: "read and write"}[kind&(Read|Write)]
	if atomic {
		what = "atomic " + what
	}
	if previous {
		what = "previous " + what
	}
	return upper(what)
}

func done(kind Kind, addr uint64) string {
	_, isFd := wire.FdAt(addr)
	switch {
	case isFd && kind&Write != 0:
		return "closed"
	case isFd:
		return "used"
	case kind&(Object|Write) == Object|Write:
		return "initialised or destroyed"
	case kind&Object != 0:
		return "used"
	}
	if kind&Write != 0 {
		return "written"
	}
	return "read"
}

func upper(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

// teller puts a finding together.
type teller struct {
	w    Names
	held [][]heldLock // by site.held
	p    uint64
	f    finding.Finding
	ids  map[uint64]string // of locks
	last map[string]int    // by prefix
}

func newTeller(w Names, held [][]heldLock, process uint64, rule finding.Rule) *teller {
	b := &teller{w: w, held: held, p: process, ids: map[uint64]string{}, last: map[string]int{}}
	b.f.Rule, b.f.Count = rule, 1
	b.f.PID, b.f.Exe, _ = w.Process(process)
	return b
}

// object adds an object and gives its ID.
func (b *teller) object(addr uint64, kind wire.Object, words string) string {
	o := b.w.Object(b.p, addr, kind)
	prefix := finding.KindPrefix(words)
	if kind != 0 {
		prefix = finding.KindPrefix(kind.String())
	}
	b.last[prefix]++
	o.Kind, o.ID = words, fmt.Sprintf("%s%d", prefix, b.last[prefix])
	b.f.Objects = append(b.f.Objects, o)
	if o.OwnerThread != 0 {
		b.thread(o.OwnerThread)
	}
	return o.ID
}

// location adds what lies at addr, where accesses met.
func (b *teller) location(addr uint64) string {
	if _, ok := wire.FdAt(addr); ok {
		return b.object(addr, wire.ObjectFd, finding.KindWords(wire.ObjectFd.String()))
	}
	return b.object(addr, 0, "location")
}

func fdText(kind Kind, fd int32, previous bool) string {
	what := "use"
	if kind&Write != 0 {
		what = "close"
	}
	if previous {
		what = "previous " + what
	}
	return fmt.Sprintf("%s of descriptor %d", upper(what), fd)
}

// thread adds a thread to the finding and gives its name within a sentence.
func (b *teller) thread(number uint32) string {
	if number == 0 {
		return "a thread"
	}
	if !slices.ContainsFunc(b.f.Threads, func(t finding.Thread) bool { return t.Number == number }) {
		b.f.Threads = append(b.f.Threads, b.w.Thread(b.p, number))
	}
	if number == 1 {
		return "the main thread"
	}
	return fmt.Sprintf("T%d", number)
}

func (b *teller) part(p finding.Part) {
	if p.Thread != 0 {
		b.thread(p.Thread)
	}
	b.f.Parts = append(b.f.Parts, p)
}

// stackAt gives the stack of an access by the instruction at pc: all that a call of a function makes may have one, in which theirs is missing.
func stackAt(w Names, process uint64, stack uint32, pc uint64) finding.Stack {
	s := w.Stack(process, stack)
	if len(s) > 0 && s[0].PC == 0 {
		s = append(finding.Stack{w.Frame(process, pc, false)}, s[1:]...)
	}
	return s
}

// access adds what a thread did at addr.
func (b *teller) access(what string, addr uint64, s *site) {
	text := fmt.Sprintf("%s of size %d at 0x%x", what, s.size, addr)
	if fd, ok := wire.FdAt(addr); ok {
		text = fdText(s.kind, fd, strings.HasPrefix(what, "Previous"))
	} else if s.kind&Object != 0 {
		text = fmt.Sprintf("%s at 0x%x", what, addr)
	}
	p := finding.Part{Text: text, Thread: s.t.number, Callee: s.kind&(Called|Object) == Called && s.stack != 0}
	switch {
	case s.stack != 0:
		p.Stack = stackAt(b.w, b.p, s.stack, s.pc)
	case s.pc != 0 && s.kind&Object == 0:
		p.Stack = finding.Stack{b.w.Frame(b.p, s.pc, false)}
	}
	for _, h := range b.held[s.held] {
		id := b.ids[h.obj]
		if id == "" {
			id = b.object(h.obj, h.kind, finding.KindWords(h.kind.String()))
			b.ids[h.obj] = id
		}
		p.Held = append(p.Held, finding.Held{Object: id, Shared: h.mode == wire.ModeShared, Stack: b.w.Stack(b.p, h.stack)})
	}
	if s.provenance != "" {
		b.f.Notes = append(b.f.Notes, fmt.Sprintf("the %s: %s", strings.ToLower(what[:1])+what[1:], cmp.Or(provenances[s.provenance], s.provenance)))
		p.Provenance = s.provenance
	}
	b.part(p)
}

// provenances are the words for how recovered accesses are known (recover.How); others stand for themselves.
var provenances = map[string]string{
	"sampled": "a sample told it", "path": "recovered, its address is part of the instruction", "forward": "recovered by running on from a sample",
	"backward": "recovered by running back from a sample", "combined": "recovered by running both ways from samples",
}

func sortRaces(races []Race) {
	slices.SortFunc(races, func(a, b Race) int {
		return cmp.Or(cmp.Compare(a.Seq, b.Seq), strings.Compare(a.Key, b.Key))
	})
}
