package run

import (
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/ripstop/ripstop/internal/agent"
	"github.com/ripstop/ripstop/internal/finding"
	"github.com/ripstop/ripstop/internal/target"
	"github.com/ripstop/ripstop/internal/tracee"
	"github.com/ripstop/ripstop/internal/unwind"
	"github.com/ripstop/ripstop/internal/wire"
)

// showThreads writes for every traced process where each of its threads is, what it waits for and which locks it holds.
func (w *watch) showThreads(why string) {
	processes := w.sess.Processes()
	for _, p := range processes {
		f := w.threadsOf(p, nil)
		w.set.Symbolize(&f)
		w.rep.Show(fmt.Sprintf("ripstop: threads of process %d (%s): %s", p.PID, filepath.Base(p.Exe), why), f)
	}
	if len(processes) == 0 {
		w.say("%s: no process is being watched", why)
	}
}

// lookout puts together what is seen of a process's threads.
type lookout struct {
	set     *target.Set
	process uint64
	f       finding.Finding
	ids     map[uint64]string // of objects, by address and kind
	count   map[string]int    // by prefix
	words   map[int]uint64    // by tid: where the threads sleep that are looked at, if not all are
}

// object is the short name of an object, which is added to what is shown.
func (l *lookout) object(addr uint64, kind wire.Object) string {
	key := addr<<8 ^ uint64(kind)
	if id := l.ids[key]; id != "" {
		return id
	}
	o := l.set.Object(l.process, addr, kind)
	o.Kind = finding.KindWords(kind.String())
	prefix := finding.KindPrefix(kind.String())
	l.count[prefix]++
	o.ID = fmt.Sprintf("%s%d", prefix, l.count[prefix])
	l.ids[key] = o.ID
	l.f.Objects = append(l.f.Objects, o)
	return o.ID
}

// threadsOf looks at one process: at its agent's shared memory, and at each thread itself, which is stopped for that moment. With words, which are those that threads of a process that hangs sleep at, by tid, at these threads alone.
func (w *watch) threadsOf(p agent.Info, words map[int]uint64) finding.Finding {
	l := &lookout{set: w.set, process: p.Process, ids: map[uint64]string{}, count: map[string]int{}, words: words}
	l.f.PID, l.f.Exe, l.f.Count = uint32(p.PID), p.Exe, 1
	states := map[int]agent.ThreadState{}
	for _, t := range w.sess.Threads(p.Process) {
		states[int(t.TID)] = t
	}
	tids, err := tracee.Threads(p.PID)
	if err != nil {
		l.f.Notes = append(l.f.Notes, fmt.Sprintf("its threads cannot be listed: %v", err))
	}
	modules := w.modulesOf(p)
	runs := w.runsOf(p, modules)
	seen := map[string]bool{}
	for _, tid := range tids {
		t, known := states[agent.OwnTID(p.PID, tid)]
		if _, asked := words[tid]; words != nil && (!asked || !known && w.opts.Epochs.On) {
			continue // it was not asked for, or has ended and is kept for the time that its epoch is executed again
		}
		var pcs []uint64
		held := map[int][]uint64{}
		err := tracee.Stop(tid, func(s *tracee.Stopped) error {
			mem := tracee.Memory(tid) // the first thread may have ended, and has no memory then
			regs := unwind.Program(unwind.Regs(s.Regs), runs, mem)
			pcs = unwind.Walk(regs, mem, modules, 64)
			for i, h := range t.Held {
				if h.Stack == wire.StackLater {
					held[i] = momentStack(mem, t.Moments, i, regs, modules)
				}
			}
			return nil
		})
		if errors.Is(err, tracee.ErrGone) {
			continue
		}
		var stack finding.Stack
		for i, pc := range pcs {
			// The agent's own frames say nothing about the program; the agent leaves them out of the stacks it takes, too.
			if f := w.set.Frame(p.Process, pc, i > 0); filepath.Dir(f.Module) != w.sess.Dir() {
				stack = append(stack, f)
			}
		}
		if err != nil {
			if !seen[err.Error()] {
				seen[err.Error()] = true
				l.f.Notes = append(l.f.Notes, fmt.Sprintf("stacks are those of the last wait, if any: %v", err))
			}
			stack = w.set.Stack(p.Process, t.WaitStack)
		}
		at := func(i int) finding.Stack {
			if id := t.Held[i].Stack; id != wire.StackLater {
				return w.set.Stack(p.Process, id)
			}
			pcs := held[i] // none if the thread could not be stopped
			var stack finding.Stack
			for j, pc := range pcs {
				stack = append(stack, w.set.Frame(p.Process, pc, j > 0))
			}
			return stack
		}
		l.thread(tid, t, known, stack, at)
	}
	return l.f
}

// heldDepth bounds the stacks of held locks.
const heldDepth = 16

// momentStack walks the stack with which a stopped thread took the i-th lock that it holds; moments is the address of its moments. The program counters
// are those of unwind.Walk; none, if the moment cannot be read.
func momentStack(mem io.ReaderAt, moments uint64, i int, now unwind.Regs, modules []unwind.Module) []uint64 {
	var m wire.Moment
	if err := binary.Read(io.NewSectionReader(mem, int64(moments)+int64(i)*wire.SizeMoment, wire.SizeMoment), binary.LittleEndian, &m); moments == 0 || err != nil {
		return nil
	}
	return unwind.WalkPast(&m, now, mem, modules, heldDepth)
}

// What is said of a thread that waits begins with one of these.
const (
	waitText  = "Waits for "
	sleepText = "Sleeps here until it is woken at "
	joinText  = "the end of another thread"
)

func (l *lookout) thread(tid int, t agent.ThreadState, known bool, stack finding.Stack, heldAt func(int) finding.Stack) {
	part := finding.Part{Stack: stack, Thread: t.Number}
	if !known || t.Number == 0 {
		part.Thread = 0
		part.Text = fmt.Sprintf("A thread that the agent does not know (tid=%d) is here", tid)
		if word := l.words[tid]; word != 0 {
			part.Text = fmt.Sprintf("A thread that the agent does not know (tid=%d) sleeps here until it is woken at %s", tid, l.object(word, wire.ObjectFutex))
		}
		l.f.Parts = append(l.f.Parts, part)
		return
	}
	th := l.set.Thread(l.process, t.Number)
	if th.Tid == 0 {
		th.Tid = uint32(tid)
	}
	l.f.Threads = append(l.f.Threads, th)
	switch {
	case t.WaitKind == wire.ObjectThread:
		part.Text = waitText + joinText
	case t.WaitKind != 0:
		part.Text = fmt.Sprintf("%s%s %s", waitText, finding.KindWords(t.WaitKind.String()), l.object(t.WaitObj, t.WaitKind))
	case l.words[tid] != 0:
		part.Text = sleepText + finding.KindWords("futex") + " " + l.object(l.words[tid], wire.ObjectFutex)
	default:
		part.Text = "Is here"
	}
	for i, h := range t.Held {
		part.Held = append(part.Held, finding.Held{
			Object: l.object(h.Obj, wire.Object(h.Kind)), Shared: wire.Mode(h.Mode) == wire.ModeShared, Stack: heldAt(i),
		})
	}
	if n := int(t.HeldCount) - len(t.Held); n > 0 {
		l.f.Notes = append(l.f.Notes, fmt.Sprintf("thread T%d holds %d more locks", t.Number, n))
	}
	l.f.Parts = append(l.f.Parts, part)
}

// modulesOf are the modules of the process with their unwind tables. Where there is none, stacks end.
func (w *watch) modulesOf(p agent.Info) []unwind.Module {
	var out []unwind.Module
	for _, m := range w.set.Modules(p.Process) {
		table, err := w.sess.Table(p.PID, agent.Module{Path: m.Path, BuildID: m.BuildID, Base: m.Base})
		if err != nil {
			continue
		}
		out = append(out, unwind.Module{Start: m.Base, End: m.End, Bias: m.Bias, Table: table})
	}
	return out
}

// runsOf gives where the process's agent has its list of trampolines, 0 if that cannot be told; the agent's module gets the bridge of its hook of system calls.
func (w *watch) runsOf(p agent.Info, modules []unwind.Module) uint64 {
	for _, m := range w.set.Modules(p.Process) {
		if filepath.Dir(m.Path) != w.sess.Dir() {
			continue
		}
		f, err := elf.Open(m.Path)
		if err != nil {
			return 0
		}
		defer f.Close()
		at := map[string]uint64{unwind.RunsSymbol: 0, "rs_hook_framed": 0, "rs_syscall_hook_end": 0, "rs_hook_bridge_frame": 0, "rs_hook_bridge_next": 0}
		list, _ := f.Symbols()
		for i := range list {
			if _, wanted := at[list[i].Name]; wanted {
				at[list[i].Name] = list[i].Value
			}
		}
		for i := range modules {
			if b := (unwind.Bridge{Lo: m.Bias + at["rs_hook_framed"], Hi: m.Bias + at["rs_syscall_hook_end"], Frame: at["rs_hook_bridge_frame"], Next: at["rs_hook_bridge_next"]}); modules[i].Start == m.Base && b.Frame != 0 {
				modules[i].Bridges = []unwind.Bridge{b}
			}
		}
		if runs := at[unwind.RunsSymbol]; runs != 0 {
			return m.Bias + runs
		}
	}
	return 0
}
