package detect

import (
	"fmt"
	"slices"

	"github.com/ripstop/ripstop/internal/finding"
	"github.com/ripstop/ripstop/internal/wire"
)

// What `guard` finds in the heap. The agent states which bytes are wrong, of which block, and when that was noticed; that nobody may write there makes each of it an
// error. Who wrote is claimed only if a re-execution saw it (events guard-writer, which come before the evidence they belong to).

// maxWriters bounds the writes that are kept for one evidence: the last ones.
const maxWriters = 8

// maxEvidence bounds the evidence whose writers are kept.
const maxEvidence = 64

func (p *process) guardWriter(ev wire.EvGuardWriter) {
	if p.writers == nil {
		p.writers = map[uint32][]wire.EvGuardWriter{}
	}
	list := append(p.writers[ev.Evidence], ev)
	if len(list) > maxWriters {
		list = list[1:]
	}
	if len(list) > 1 || len(p.writers) < maxEvidence {
		p.writers[ev.Evidence] = list
	}
}

var evidenceRules = map[wire.Evidence]finding.Rule{
	wire.EvidenceOverflow: finding.RuleHeapOverflow, wire.EvidenceUnderflow: finding.RuleHeapUnderflow, wire.EvidenceFreedWrite: finding.RuleFreedWrite,
}

// noticedBy is how a part begins whose stack is that of the call that noticed.
var noticedBy = map[wire.Noticed]string{
	wire.NoticedFree: "Noticed when the block was freed here", wire.NoticedRealloc: "Noticed when the block was reallocated here",
}

// noticedAt says when it was noticed, where no call of the program's did.
var noticedAt = map[wire.Noticed]string{
	wire.NoticedFree: "when the block was freed", wire.NoticedRealloc: "when the block was reallocated", wire.NoticedQuarantine: "when the block left quarantine, to be used again", wire.NoticedExit: "at the end of the process",
	wire.NoticedExec: "when the process executed another program", wire.NoticedSignal: "when the process died", wire.NoticedEpoch: "at the end of an epoch",
}

func (p *process) evidence(t *thread, ev wire.EvEvidence) {
	rule, ok := evidenceRules[ev.Kind]
	if !ok {
		return // of a newer agent
	}
	writers := p.writers[ev.Number]
	delete(p.writers, ev.Number)
	at := ev.AllocStack
	if ev.Kind == wire.EvidenceUnderflow {
		at = ev.NextStack
	}
	key := fmt.Sprintf("evidence %d %d %d %d", ev.Kind, at, ev.FreeStack, ev.Stack)
	if at == 0 && ev.FreeStack == 0 && ev.Stack == 0 {
		key += fmt.Sprintf(" %x", ev.Block)
	}
	if len(writers) > 0 {
		key += fmt.Sprintf(" by %d %x", writers[len(writers)-1].Stack, writers[len(writers)-1].Pc)
	}
	if s := p.said[key]; s != nil {
		s.again++
		return
	}
	b := p.newTeller(rule)
	b.guardMessage(ev)
	for i := len(writers) - 1; i >= 0; i-- {
		w := writers[i]
		// Several stores of one call, such as strcpy's last ones, are one write to who reads it.
		if slices.ContainsFunc(writers[i+1:], func(later wire.EvGuardWriter) bool {
			return later.How == w.How && later.Writer == w.Writer && later.Stack == w.Stack
		}) {
			continue
		}
		text := "Written here"
		if w.How == wire.WriterKernel {
			text = "Written by the kernel in a call here"
		}
		b.part(finding.Part{Text: text, Thread: w.Writer, Stack: b.stack(w.Stack), Piece: w.Addr})
	}
	if ev.FreeStack != 0 {
		b.part(finding.Part{Text: "Heap block H1 was freed here", Thread: ev.FreeThread, Stack: b.stack(ev.FreeStack)})
	}
	by := noticedBy[ev.Noticed]
	if ev.Stack != 0 && by != "" && t != nil {
		b.part(finding.Part{Text: by, Thread: t.number, Stack: b.stack(ev.Stack)})
	} else if when := noticedAt[ev.Noticed]; when != "" {
		b.f.Notes = append(b.f.Notes, "It was noticed "+when+".")
	}
	b.guardNotes(ev, len(writers) > 0)
	if half := len(ev.Tail) / 2; half > 0 {
		b.f.Memory = &finding.Memory{Addr: ev.Bad, Was: append([]byte(nil), ev.Tail[:half]...), Is: append([]byte(nil), ev.Tail[half:2*half]...)}
	}
	p.say(key, b.f)
}

// block adds a heap block to the finding.
func (b *teller) block(id string, addr, size uint64, stack, by uint32) {
	if by != 0 {
		b.thread(by)
	}
	b.f.Objects = append(b.f.Objects, finding.Object{ID: id, Kind: finding.KindWords(wire.ObjectHeap.String()), Addr: addr, Where: finding.Heap, Block: addr, Size: size, Allocated: b.stack(stack), OwnerThread: by})
}

// guardMessage names the blocks: H1 is the one that the finding is about.
func (b *teller) guardMessage(ev wire.EvEvidence) {
	end := ev.Block + ev.Size
	wrong := wrongBytes(ev)
	if ev.Kind == wire.EvidenceUnderflow {
		b.block("H1", ev.Next, ev.NextSize, ev.NextStack, 0)
		b.block("H2", ev.Block, ev.Size, ev.AllocStack, ev.AllocThread)
		b.f.Message = fmt.Sprintf("Heap block H1 of size %d was written in front of its beginning, less than %d bytes away", ev.NextSize, farBehind+1)
		b.f.Notes = append(b.f.Notes, "Heap block H2 is the one in front of the bytes: what lies next to its end is as it was, so it is less likely that the write was one behind H2.")
		return
	}
	b.block("H1", ev.Block, ev.Size, ev.AllocStack, ev.AllocThread)
	switch {
	case ev.Kind == wire.EvidenceFreedWrite && ev.Bad < end:
		b.f.Message = fmt.Sprintf("Heap block H1 of size %d was written after it was freed: %s overwritten, the first at offset %d", ev.Size, wrong, ev.Bad-ev.Block)
	case ev.Kind == wire.EvidenceFreedWrite:
		b.f.Message = fmt.Sprintf("Heap block H1 of size %d was written behind its end after it was freed: %s overwritten, the first %s", ev.Size, wrong, behind(ev.Bad-end))
	case ev.Known&1 == 0:
		b.f.Message = fmt.Sprintf("Heap block H1 of at most size %d was written behind its end", ev.Size)
	default:
		b.f.Message = fmt.Sprintf("Heap block H1 of size %d was written behind its end: %s overwritten, the first %s", ev.Size, wrong, behind(ev.Bad-end))
	}
	if ev.Next != 0 && ev.Kind == wire.EvidenceOverflow && ev.Bad-end >= farBehind {
		b.block("H2", ev.Next, ev.NextSize, ev.NextStack, 0)
		b.f.Notes = append(b.f.Notes, "Heap block H2 is the one behind the bytes: what lies next to H1's end is as it was, so the write may have been one in front of H2.")
	}
}

// farBehind is from where on bytes that are wrong may as well have been written in front of the next block.
const farBehind = 8

func behind(n uint64) string {
	if n == 0 {
		return "right behind it"
	}
	return bytesCount(n) + " behind it"
}

func bytesCount(n uint64) string {
	if n == 1 {
		return "1 byte"
	}
	return fmt.Sprintf("%d bytes", n)
}

func wrongBytes(ev wire.EvEvidence) string {
	s := bytesCount(uint64(ev.Wrong))
	if ev.Known&2 != 0 {
		s = "at least " + s
	}
	if ev.Wrong == 1 {
		return s + " is"
	}
	return s + " are"
}

// guardNotes says what is not known.
func (b *teller) guardNotes(ev wire.EvEvidence, writer bool) {
	if !writer {
		b.f.Notes = append(b.f.Notes, "The instruction that wrote is not known: only that it ran before this was noticed.")
	}
	if ev.Known&1 == 0 {
		b.f.Notes = append(b.f.Notes, "What says how long the block is was overwritten, too.")
	}
}
