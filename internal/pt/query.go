package pt

import (
	"errors"
	"io"
)

// ErrContext says that a packet came where it cannot be.
var ErrContext = errors.New("a packet is where it cannot be")

// A Query makes events of packets: it undoes the compression of addresses, reads PSB+, joins packets that belong together, keeps the time.
type Query struct {
	dec   *Decoder
	last  LastIP
	clock Clock
	exec  uint8

	bound  [maxBound]Packet // packets whose address a FUP will tell
	nBound int
	start  uint64 // offset of the first of them, or of the compound that is being read

	queue  [maxBound + 8]Event // events made and not given yet
	qHead  int
	qTail  int
	stash  Packet // a packet read ahead
	stashd bool
	at     uint64 // offset of the packet last read
	inPSB  bool   // an error happened inside the PSB+
	psbAt  uint64 // at this offset
}

// maxBound is how many packets may wait for one FUP; more than the processor ever makes.
const maxBound = 8

// NewQuery gives a query of a trace, or of a part that lies base bytes behind its beginning. Call Sync first, unless the data begins with a
// PSB.
func NewQuery(data []byte, base uint64, t Timing) *Query {
	return &Query{dec: NewDecoder(data, base), clock: NewClock(t), at: base}
}

// Offset gives the offset of the packet that will be read next.
func (q *Query) Offset() uint64 {
	if q.stashd {
		return q.at
	}
	return q.dec.Offset()
}

// Sync goes to the next PSB, as after an error of Next. The error is io.EOF if there is none.
func (q *Query) Sync() error {
	q.stashd, q.nBound, q.qHead, q.qTail, q.inPSB = false, 0, 0, 0, false
	q.dec.pos = int(q.at - q.dec.base) // a packet that was out of place may be a PSB
	return q.dec.Sync()
}

// read gives the next packet, having told the clock of it.
func (q *Query) read(p *Packet) error {
	if q.stashd {
		*p, q.stashd = q.stash, false
		return nil
	}
	q.at = q.dec.Offset()
	if err := q.dec.Next(p); err != nil {
		return err
	}
	switch p.Kind {
	case TNT8, TIP: // most packets
		q.clock.fresh = false
	default:
		q.clock.Update(p)
	}
	return nil
}

func (q *Query) unread(p *Packet) { q.stash, q.stashd = *p, true }

func (q *Query) fail(err error) error { return &Error{Offset: q.at, Err: err} }

// push gives an event at the end of the queue, to be filled in.
func (q *Query) push(kind EventKind, offset uint64) *Event {
	e := &q.queue[q.qTail]
	q.qTail++
	q.fill(e, kind, offset)
	return e
}

func (q *Query) fill(e *Event, kind EventKind, offset uint64) {
	*e = Event{Kind: kind, Exec: q.exec, Offset: offset, Time: q.clock.now, HasTime: q.clock.known}
}

// Next gives the next event. The error is io.EOF at the end of the trace, also where it ends between packets that belong together; or an
// *Error, after which Sync must be called.
func (q *Query) Next(e *Event) error {
	for {
		if q.qHead < q.qTail {
			*e = q.queue[q.qHead]
			if q.qHead++; q.qHead == q.qTail {
				q.qHead, q.qTail = 0, 0
			}
			return nil
		}
		var p Packet
		if err := q.read(&p); err != nil {
			if err == io.EOF && q.nBound > 0 {
				q.release(0, false)
				continue
			}
			return err
		}
		switch p.Kind {
		case TNT8, TNT64:
			if q.nBound > 0 {
				break
			}
			q.fill(e, EventTNT, q.at)
			e.Count, e.Value = p.Form, p.Value
			return nil
		case TIP:
			if q.nBound > 0 {
				break
			}
			q.fill(e, EventTIP, q.at)
			e.To, e.HasTo = q.last.Update(&p)
			return nil
		case PAD, CYC, MTC, TSC, TMA, CBR:
			continue
		}
		if err := q.compound(&p); err != nil {
			return err
		}
	}
}

// bindsFUP says whether a FUP may follow that tells where the packet happened.
func bindsFUP(p *Packet) bool {
	switch p.Kind {
	case ModeTSX, MWAIT:
		return true
	case ModeExec, PTW, EXSTOP, BEP, CFE, TRIG:
		return p.Flag || p.Kind == ModeExec
	}
	return false
}

// release makes events of the packets that waited for a FUP.
func (q *Query) release(ip uint64, ok bool) {
	for i := range q.bound[:q.nBound] {
		p := &q.bound[i]
		if p.Kind == ModeExec && !ok {
			continue // it belongs to the TIP that follows, whose event has it
		}
		e := q.push(EventOther, q.start)
		e.From, e.HasFrom, e.Value = ip, ok, p.Value
		switch p.Kind {
		case ModeTSX:
			e.Kind = EventTSX
		case ModeExec:
			e.Kind = EventExec
		case PTW:
			e.Kind, e.Count = EventPTWrite, 4<<p.Form
		default:
			e.Packet = *p
		}
	}
	q.nBound = 0
}

// compound reads what begins with a packet that is neither time nor a plain TNT or TIP, and queues its events.
func (q *Query) compound(p *Packet) error {
	if bindsFUP(p) {
		if q.nBound == 0 {
			q.start = q.at
		}
		if q.nBound < maxBound {
			q.bound[q.nBound] = *p
			q.nBound++
		}
		if p.Kind == ModeExec {
			q.exec = uint8(p.Value)
		}
		return nil
	}
	switch p.Kind {
	case FUP:
		return q.fup(p)
	case PTW, PWRE, PWRX, MNT, EVD, BBP, BIP, PIP, VMCS, EXSTOP, BEP, CFE, TRIG: // may come between a packet and its FUP, and stand for themselves
		if q.nBound < maxBound && q.qTail < len(q.queue)-maxBound-4 {
			q.single(p)
			return nil
		}
	}
	if q.nBound > 0 {
		q.release(0, false)
		q.unread(p)
		return nil
	}
	at := q.at
	switch p.Kind {
	case PSB:
		return q.psb(at)
	case OVF:
		return q.overflow(at)
	case TIPPGE:
		e := q.push(EventEnable, at)
		e.To, e.HasTo = q.last.Update(p)
	case TIPPGD:
		e := q.push(EventDisable, at)
		e.To, e.HasTo = q.last.Update(p)
	case TraceStop:
		q.push(EventStop, at)
	case PSBEND:
		return q.fail(ErrContext)
	default:
		q.single(p)
	}
	return nil
}

// single queues the event of a packet that stands for itself.
func (q *Query) single(p *Packet) {
	e := q.push(EventOther, q.at)
	e.Value = p.Value
	switch p.Kind {
	case PIP:
		e.Kind = EventPaging
	case VMCS:
		e.Kind = EventVMCS
	case PTW:
		e.Kind, e.Count = EventPTWrite, 4<<p.Form
	default:
		e.Value, e.Packet = 0, *p
	}
}

// cfeShutdown is the one control flow event with an address that no branch follows.
const cfeShutdown = 0xa

// fup reads on behind a FUP: it says where the packets before it happened, or where a branch came from that follows.
func (q *Query) fup(p *Packet) error {
	from, ok := q.last.Update(p)
	if !ok {
		return q.fail(ErrContext)
	}
	at, branches := q.at, q.nBound == 0
	for _, b := range q.bound[:q.nBound] {
		branches = branches || b.Kind == ModeTSX && b.Value&TSXAbort != 0
		if b.Kind == CFE && b.Form != cfeShutdown {
			branches = true
		}
	}
	if q.nBound > 0 {
		at = q.start
		q.release(from, true)
	}
	if !branches {
		return nil
	}
	var e Event
	q.fill(&e, EventAsync, at)
	e.From, e.HasFrom = from, true
	for {
		var n Packet
		if err := q.read(&n); err != nil {
			return err
		}
		switch n.Kind {
		case PAD, CYC, MTC, TSC, TMA, CBR:
		case ModeExec:
			q.exec = uint8(n.Value)
		case PIP, VMCS:
			if q.qTail < len(q.queue)-2 {
				q.single(&n)
			}
		case FUP: // a software interrupt tells the next instruction, too
			q.last.Update(&n)
		case TIP, TIPPGD:
			if n.Kind == TIPPGD {
				e.Kind = EventDisable
			}
			e.To, e.HasTo = q.last.Update(&n)
			e.Exec = q.exec
			q.queue[q.qTail] = e
			q.qTail++
			return nil
		case OVF:
			return q.overflow(q.at)
		default:
			return q.fail(ErrContext)
		}
	}
}

// psb reads PSB+. Everything starts afresh, so that decoding from here and decoding up to here and on are the same.
func (q *Query) psb(at uint64) error {
	q.last, q.exec = 0, ExecCSL
	q.inPSB, q.psbAt = true, at
	q.clock = NewClock(q.clock.timing)
	var e Event
	e.Kind, e.Offset = EventSync, at
	for {
		var p Packet
		if err := q.read(&p); err != nil {
			return err
		}
		switch p.Kind {
		case PAD, CYC, MTC, TSC, TMA, CBR, MNT, VMCS, PIP, PWRX:
		case ModeExec:
			q.exec = uint8(p.Value)
		case ModeTSX:
			e.Value = p.Value
		case FUP:
			e.To, e.HasTo = q.last.Update(&p)
		case PSBEND, OVF:
			e.Exec, e.Time, e.HasTime = q.exec, q.clock.now, q.clock.known
			q.queue[q.qTail] = e
			q.qTail++
			if p.Kind == OVF {
				q.unread(&p)
			} else if !e.HasTo {
				if err := q.resumed(&q.queue[q.qTail-1]); err != nil {
					return err
				}
			}
			q.inPSB = false
			return nil
		default:
			return q.fail(ErrContext)
		}
	}
}

// resumed looks for a FUP behind a PSB+ without one. There, with tracing off, it can only end an overflow that began before the PSB.
func (q *Query) resumed(e *Event) error {
	for {
		var p Packet
		if err := q.read(&p); err != nil {
			if err == io.EOF {
				return nil
			}
			return err
		}
		switch p.Kind {
		case PAD, CYC, MTC, TSC, TMA, CBR:
		case FUP:
			e.To, e.HasTo = q.last.Update(&p)
			return nil
		default:
			q.unread(&p)
			return nil
		}
	}
}

// overflow reads on behind an OVF to the FUP or TIP.PGE that says where execution stands. Some processors forget it (erratum SKD010): then
// tracing is taken to be off until something gives an address.
func (q *Query) overflow(at uint64) error {
	q.nBound, q.qHead, q.qTail, q.last = 0, 0, 0, 0 // the packet with the last address may have been lost
	e := q.push(EventOverflow, at)
	for {
		var p Packet
		if err := q.read(&p); err != nil {
			if err == io.EOF {
				return nil
			}
			return err
		}
		switch p.Kind {
		case PAD, CYC, MTC, TSC, TMA, CBR, PIP, VMCS, MNT, OVF, PWRX, PWRE:
		case ModeExec:
			q.exec = uint8(p.Value)
		case FUP:
			e.To, e.HasTo = q.last.Update(&p)
			e.Exec = q.exec
			return nil
		default:
			q.unread(&p)
			return nil
		}
	}
}
