package detect

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/ripstop/ripstop/internal/finding"
	"github.com/ripstop/ripstop/internal/wire"
)

// Crashes, which the agent tells before the process dies of them. What is claimed is what the processor and the kernel said, and where.

// si_code values, by signal (sigaction(2)).
var crashCodes = map[uint32]map[int32]string{
	4:  {1: "illegal opcode", 2: "illegal operand", 5: "privileged opcode", 6: "privileged register"},
	7:  {1: "misaligned access", 2: "access behind the end of a mapped file", 3: "hardware error"},
	8:  {1: "integer division by zero, or its result does not fit", 2: "integer overflow", 3: "floating-point division by zero", 4: "floating-point overflow", 5: "floating-point underflow", 6: "inexact floating-point result", 7: "invalid floating-point operation"},
	11: {1: "access where nothing is mapped", 2: "access that the mapping does not permit", 0x80: "access to an address that no memory can have"},
}

// accessWords say how memory was accessed, where that is known.
var accessWords = map[wire.CrashFlag]string{wire.CrashFlagRead: "read", wire.CrashFlagWrite: "write", wire.CrashFlagExecute: "jump to"}

var crashNames = map[uint32]string{4: "SIGILL", 6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE", 11: "SIGSEGV"}

// agentName is the file of the agent, which has functions of the C library's.
const agentName = "libripstop.so"

// nullPages is below what an address is taken for a null pointer, or a member of what one points to.
const nullPages = 1 << 16

func (p *process) crash(t *thread, ev wire.EvCrash) {
	name := crashNames[ev.Sig]
	if name == "" {
		name = fmt.Sprintf("signal %d", ev.Sig)
	}
	b := p.newTeller(finding.RuleCrash)
	b.f.Fatal = true
	what := crashCodes[ev.Sig][ev.Code]
	crash := p.dying
	p.dying, crash.Signal = finding.Crash{}, name
	b.f.Crash = &crash
	switch {
	case ev.Sig == 6:
		what = "the program aborted"
	case what == "":
		what = fmt.Sprintf("code %d", ev.Code)
	}
	b.f.Message = name + ": " + what
	if ev.Flags&wire.CrashFlagAddressed != 0 && (ev.Sig == 11 || ev.Sig == 7) {
		b.f.Message = name + ": " + b.access(ev, what)
	}
	part := finding.Part{Text: "Crashed here", Stack: b.stack(ev.Stack)}
	if ev.Sig == 6 {
		part.Text = "Aborted here"
	}
	if t != nil {
		part.Thread = t.number
	}
	b.part(part)
	if module, _ := p.d.w.Module(p.id, ev.Pc); path.Base(module) == agentName {
		b.f.Notes = append(b.f.Notes, "The instruction is one of ripstop's, in place of the C library's function that was called there.")
	}
	b.sources(ev, p.sources, p.writers[0])
	p.sources = nil
	delete(p.writers, 0)
	if again := againWords(crash.Again); again != "" {
		b.f.Notes = append(b.f.Notes, again)
	}
	p.say(fmt.Sprintf("crash %d %x", ev.Sig, ev.Pc), b.f)
}

// access says what was accessed, how, and what lies there.
func (b *teller) access(ev wire.EvCrash, what string) string {
	if ev.Flags&wire.CrashFlagReserved != 0 && ev.Sig == 11 && ev.Code == 2 {
		what = crashCodes[11][1] // but for our heap
	}
	module, gone := b.p.d.w.Module(b.p.id, ev.Addr)
	module = path.Base(module)
	how := accessWords[ev.Flags&(wire.CrashFlagRead|wire.CrashFlagWrite|wire.CrashFlagExecute)]
	mapped := ev.Sig == 11 && ev.Code == 2 && ev.Flags&wire.CrashFlagReserved == 0
	switch {
	case how == "":
	case mapped && ev.Flags&wire.CrashFlagExecute != 0:
		what = "jump to memory that is no code"
	case mapped && ev.Flags&wire.CrashFlagWrite != 0 && module != "." && !gone:
		what = "write to memory that may only be read"
	case strings.HasPrefix(what, "access where"), strings.HasPrefix(what, "access that"):
		what = how + strings.TrimPrefix(what, "access")
	}
	what += fmt.Sprintf(", at 0x%x", ev.Addr)
	switch {
	case ev.Addr < nullPages:
		what += " (a null pointer, or near it)"
	case ev.Flags&wire.CrashFlagStack != 0:
		what += " (beside the stack pointer: the stack has probably overflowed)"
	case ev.Flags&wire.CrashFlagReserved != 0:
		what += " (among heap blocks, but in none)"
	case module != "." && gone:
		what += fmt.Sprintf(" (where %s was, which has been unloaded)", module)
	case module != ".":
		what += fmt.Sprintf(" (in %s)", module)
	}
	return what
}

// crashText keeps what is known of the crash that comes next.
func (p *process) crashText(ev wire.EvCrashText) {
	text := strings.TrimRight(string(ev.Tail), "\n")
	switch ev.Kind {
	case wire.CrashTextSaid:
		p.dying.Said = text
	case wire.CrashTextException:
		p.dying.Exception = text
	case wire.CrashTextWhat:
		p.dying.What = text
	}
}

var used = map[wire.Used]string{
	wire.UsedPointer:       "The pointer 0x%x that it used",
	wire.UsedPart:          "The value 0x%x that the address it used was computed from",
	wire.UsedReturn:        "The return address 0x%x that it went to",
	wire.UsedDivisor:       "The divisor 0x%x",
	wire.UsedDivisorPart:   "The value 0x%x that the divisor was computed from",
	wire.UsedCondition:     "The value 0x%x that the last condition before the abort looked at",
	wire.UsedConditionPart: "The value 0x%x that what the last condition before the abort looked at was computed from",
	wire.UsedCopied:        "The value 0x%x that was written there",
	wire.UsedCopiedPart:    "The value 0x%x that what was written there was computed from",
}

// maxSources bounds what is kept of one crash.
const maxSources = 8

// crashSource keeps what is known of the crash that comes next.
func (p *process) crashSource(ev wire.EvCrashSource) {
	if len(p.sources) < maxSources {
		p.sources = append(p.sources, ev)
	}
}

// sources says where the value came from that the instruction used, which heap blocks that was in, and who wrote it: the last write first; then the same of what that write had read, and so on.
func (b *teller) sources(ev wire.EvCrash, sources []wire.EvCrashSource, writers []wire.EvGuardWriter) {
	writers = slices.Clone(writers)
	slices.Reverse(writers)
	slices.SortStableFunc(writers, func(a, b wire.EvGuardWriter) int { return int(a.Step) - int(b.Step) })
	flags := ev.Flags
	id := map[uint64]string{}
	for i := range sources {
		s := &sources[i]
		switch {
		case s.State == wire.BlockStateFilled, s.State == wire.BlockStateStale:
			flags &^= wire.CrashFlagFreed
		case s.Addr >= s.Block+s.Size:
			flags &^= wire.CrashFlagBehind
		}
		if s.State == wire.BlockStateNone {
			b.said(s, fmt.Sprintf("%s, where nothing was seen to write in the last epoch", b.location(s.Addr)))
			continue
		}
		known := id[s.Block] != ""
		if !known {
			id[s.Block] = fmt.Sprintf("H%d", len(id)+1)
			b.block(id[s.Block], s.Block, s.Size, s.AllocStack, s.AllocThread)
		}
		if s.Used == wire.UsedRegister {
			if !known {
				b.f.Notes = append(b.f.Notes, fmt.Sprintf("A register points to 0x%x, %s.", s.Addr, inBlock(id[s.Block], s)))
			}
		} else {
			b.said(s, inBlock(id[s.Block], s))
		}
		b.writers(s.Step, writers, false)
		if s.FreeStack != 0 && !known {
			b.part(finding.Part{Text: "Heap block " + id[s.Block] + " was freed here", Thread: s.FreeThread, Stack: b.stack(s.FreeStack)})
		}
	}
	for i, w := range writers {
		if i > 0 && writers[i-1].Step == w.Step || slices.ContainsFunc(sources, func(s wire.EvCrashSource) bool { return s.Step == w.Step }) {
			continue
		}
		b.writers(w.Step, writers, true)
	}
	b.filling(flags)
}

// filling tells that an address is made of bytes of ripstop's.
func (b *teller) filling(flags wire.CrashFlag) {
	if flags&wire.CrashFlagFreed != 0 {
		b.f.Notes = append(b.f.Notes, "The address is made of the bytes that freed blocks are filled with: probably a pointer was read from a freed block.")
	}
	if flags&wire.CrashFlagBehind != 0 {
		b.f.Notes = append(b.f.Notes, "The address is made of the bytes that lie behind heap blocks: probably a pointer was read beyond the end of one.")
	}
}

// said adds where the value of s was read.
func (b *teller) said(s *wire.EvCrashSource, where string) {
	said := fmt.Sprintf(usedWords(s.Used), s.Value) + fmt.Sprintf(" was read from 0x%x, %s", s.Addr, where)
	if s.Step == 0 {
		b.f.Message += ". " + said
	} else {
		b.f.Notes = append(b.f.Notes, said+".")
	}
}

// inBlock says where in its block something was read.
func inBlock(id string, s *wire.EvCrashSource) string {
	text := fmt.Sprintf("at offset %d of heap block %s of size %d", s.Addr-s.Block, id, s.Size)
	if end := s.Block + s.Size; s.Addr >= end {
		text = fmt.Sprintf("%s of size %d", behindBlock(s.Addr-end, id), s.Size)
	}
	switch s.State {
	case wire.BlockStateFilled:
		text += ", after it was freed"
	case wire.BlockStateFreed:
		text += ", which is freed by now"
	case wire.BlockStateStale:
		text += "; nobody wrote there since the block was handed out"
	case wire.BlockStateOut:
		if s.Unwritten != 0 {
			text += "; nothing was seen to write there in the last epoch"
		}
	}
	return text
}

func behindBlock(n uint64, id string) string {
	if n == 0 {
		return "right behind the end of heap block " + id
	}
	return bytesCount(n) + " behind the end of heap block " + id
}

func usedWords(u wire.Used) string {
	if s := used[u]; s != "" {
		return s
	}
	return used[wire.UsedPointer]
}

// writers tells of one step who wrote there; where: nothing was said yet of what lies there.
func (b *teller) writers(step uint8, writers []wire.EvGuardWriter, where bool) {
	for i, w := range writers {
		if w.Step != step {
			continue
		}
		text := fmt.Sprintf(usedWords(w.Used), w.After) + fmt.Sprintf(", read from 0x%x%s, was written here", w.Addr, b.variable(w.Addr, where && w.Used != wire.UsedReturn))
		if i > 0 && writers[i-1].Step == w.Step {
			text = fmt.Sprintf("Before that, 0x%x was written to the same place here", w.After)
		}
		if w.How == wire.WriterKernel {
			text += ", by the kernel,"
		}
		b.part(finding.Part{Text: text, Thread: w.Writer, Stack: b.stack(w.Stack)})
	}
}

// variable names the variable that lies at an address, if one does.
func (b *teller) variable(addr uint64, ask bool) string {
	if !ask {
		return ""
	}
	if o := b.p.d.w.Object(b.p.id, addr, 0); o.Where == finding.Global || o.Where == finding.TLS || (o.Where == finding.OnStack && o.Frame.Module != "") {
		return ", " + b.location(addr)
	}
	return ""
}
