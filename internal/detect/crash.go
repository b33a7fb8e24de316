package detect

import (
	"fmt"
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

var crashNames = map[uint32]string{4: "SIGILL", 6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE", 11: "SIGSEGV"}

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
		b.f.Message += fmt.Sprintf(", at 0x%x", ev.Addr)
		if ev.Addr < nullPages {
			b.f.Message += " (a null pointer, or near it)"
		}
	}
	if ev.Flags&wire.CrashFlagFreed != 0 {
		b.f.Notes = append(b.f.Notes, "A register holds the bytes that freed blocks are filled with: probably a pointer was read from a freed block.")
	}
	if ev.Flags&wire.CrashFlagBehind != 0 {
		b.f.Notes = append(b.f.Notes, "A register holds the bytes that lie behind heap blocks: probably a pointer was read beyond the end of one.")
	}
	part := finding.Part{Text: "Crashed here", Stack: b.stack(ev.Stack)}
	if ev.Sig == 6 {
		part.Text = "Aborted here"
	}
	if t != nil {
		part.Thread = t.number
	}
	b.part(part)
	b.pointer(p.writers[0])
	delete(p.writers, 0)
	p.say(fmt.Sprintf("crash %d %x", ev.Sig, ev.Pc), b.f)
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
	wire.UsedPointer:     "The pointer 0x%x that it used",
	wire.UsedPart:        "The value 0x%x that the address it used was computed from",
	wire.UsedReturn:      "The return address 0x%x that it went to",
	wire.UsedDivisor:     "The divisor 0x%x",
	wire.UsedDivisorPart: "The value 0x%x that the divisor was computed from",
	wire.UsedCopied:      "The value 0x%x that was written there",
	wire.UsedCopiedPart:  "The value 0x%x that what was written there was computed from",
}

// pointer says who wrote the pointer that the instruction used, the last write first, then who wrote what that write had read, and so on.
func (b *teller) pointer(writers []wire.EvGuardWriter) {
	writers = slices.Clone(writers)
	slices.Reverse(writers)
	slices.SortStableFunc(writers, func(a, b wire.EvGuardWriter) int { return int(a.Step) - int(b.Step) })
	for i, w := range writers {
		what := used[w.Used]
		if what == "" {
			what = used[wire.UsedPointer]
		}
		text := fmt.Sprintf(what, w.After) + fmt.Sprintf(", read from 0x%x, was written here", w.Addr)
		if i > 0 && writers[i-1].Step == w.Step {
			text = fmt.Sprintf("Before that, 0x%x was written to the same place here", w.After)
		}
		if w.How == wire.WriterKernel {
			text += ", by the kernel,"
		}
		b.part(finding.Part{Text: text, Thread: w.Writer, Stack: b.stack(w.Stack)})
	}
}
