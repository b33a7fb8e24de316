package detect

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ripstop/ripstop/internal/finding"
	"github.com/ripstop/ripstop/internal/wire"
)

// Findings name objects by their short ID only (M1, RW2): symbols and allocation sites are not known before the finding is symbolised,
// and the report puts them behind the first mention of the ID in Message. A part's Text is without its thread, which the report appends.

// teller puts a finding together.
type teller struct {
	p    *process
	f    finding.Finding
	ids  map[objectKey]string
	last map[string]int // by prefix
}

type objectKey struct {
	addr uint64
	kind wire.Object
}

func (p *process) newTeller(rule finding.Rule) *teller {
	b := &teller{p: p, ids: map[objectKey]string{}, last: map[string]int{}}
	b.f.Rule, b.f.Count = rule, 1
	b.f.PID, b.f.Exe, _ = p.d.w.Process(p.id)
	return b
}

// name is how a note names the process.
func (p *process) name() string {
	pid, exe, _ := p.d.w.Process(p.id)
	if i := strings.LastIndexByte(exe, '/'); i >= 0 {
		exe = exe[i+1:]
	}
	if exe == "" {
		return fmt.Sprint(pid)
	}
	return fmt.Sprintf("%d (%s)", pid, exe)
}

// object gives the ID of the object, which it adds to the finding when it is first mentioned.
func (b *teller) object(addr uint64, kind wire.Object) string {
	key := objectKey{addr, kind}
	if id := b.ids[key]; id != "" {
		return id
	}
	o := b.p.d.w.Object(b.p.id, addr, kind)
	o.Kind = finding.KindWords(kind.String())
	prefix := finding.KindPrefix(kind.String())
	b.last[prefix]++
	o.ID = fmt.Sprintf("%s%d", prefix, b.last[prefix])
	b.ids[key] = o.ID
	b.f.Objects = append(b.f.Objects, o)
	if o.OwnerThread != 0 {
		b.thread(o.OwnerThread)
	}
	return o.ID
}

// location likewise, of memory that is no object.
func (b *teller) location(addr uint64) string {
	key := objectKey{addr: addr}
	if id := b.ids[key]; id != "" {
		return id
	}
	o := b.p.d.w.Object(b.p.id, addr, 0)
	b.last["L"]++
	o.Kind, o.ID = "location", fmt.Sprintf("L%d", b.last["L"])
	b.ids[key] = o.ID
	b.f.Objects = append(b.f.Objects, o)
	return o.ID
}

// kind is the object's kind at the beginning of a sentence.
func (b *teller) kind(kind wire.Object) string { return upper(finding.KindWords(kind.String())) }

// named is the object within a sentence: "mutex M1".
func (b *teller) named(addr uint64, kind wire.Object) string {
	return finding.KindWords(kind.String()) + " " + b.object(addr, kind)
}

func upper(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

// thread adds a thread to the finding and gives its name within a sentence.
func (b *teller) thread(number uint32) string {
	if number == 0 {
		return "a thread"
	}
	if !slices.ContainsFunc(b.f.Threads, func(t finding.Thread) bool { return t.Number == number }) {
		b.f.Threads = append(b.f.Threads, b.p.d.w.Thread(b.p.id, number))
	}
	return threadWord(number)
}

func threadWord(number uint32) string {
	if number == 1 {
		return "the main thread"
	}
	return fmt.Sprintf("T%d", number)
}

func (b *teller) stack(id uint32) finding.Stack {
	if id == 0 {
		return nil
	}
	return b.p.d.w.Stack(b.p.id, id)
}

func (b *teller) part(p finding.Part) {
	if p.Thread != 0 {
		b.thread(p.Thread)
	}
	b.f.Parts = append(b.f.Parts, p)
}

// maxSaid bounds how many different findings of one process are remembered, for their counts.
const maxSaid = 1 << 14

// say hands f to the sink, once for each key; later ones are counted.
func (p *process) say(key string, f finding.Finding) {
	if s := p.said[key]; s != nil {
		s.again++
		return
	}
	if !p.tells(f.Rule) {
		return
	}
	if len(p.said) >= maxSaid {
		p.d.note("process " + p.name() + ": more than 16384 different findings; the later ones are left out")
		return
	}
	p.said[key] = &said{f: f}
	p.d.sink(clone(f))
}

// maxLate bounds the findings that wait for the end.
const maxLate = 1024

// sayLater keeps f until it is certain that each of objs was a lock to its end.
func (p *process) sayLater(key string, f finding.Finding, objs []*object) {
	if len(p.late) >= maxLate {
		p.d.note("process " + p.name() + ": more than 1024 lock-order inversions with semaphores; the later ones are left out")
		return
	}
	p.late = append(p.late, lateFinding{key: key, f: f, objs: objs})
}

// sayLate tells or drops the late findings that o, which has ended, takes part in; all of them if o is nil.
func (p *process) sayLate(o *object) {
	if len(p.late) == 0 {
		return
	}
	p.late = slices.DeleteFunc(p.late, func(l lateFinding) bool {
		if o != nil && !slices.Contains(l.objs, o) {
			return false
		}
		if !slices.ContainsFunc(l.objs, func(o *object) bool { return !o.lockLike() || o.doubt }) {
			p.say(l.key, l.f)
		}
		return true
	})
}

// sayAgain tells the sink how often the findings were seen after the first time.
func (p *process) sayAgain() {
	keys := make([]string, 0, len(p.said))
	for k, s := range p.said {
		if s.again > 0 {
			keys = append(keys, k)
		}
	}
	slices.Sort(keys)
	for _, k := range keys {
		s := p.said[k]
		f := clone(s.f)
		f.Count = s.again
		p.d.sink(f)
	}
}

// clone copies what a symboliser writes to.
func clone(f finding.Finding) finding.Finding {
	f.Parts = slices.Clone(f.Parts)
	for i := range f.Parts {
		p := &f.Parts[i]
		p.Stack = slices.Clone(p.Stack)
		p.Held = slices.Clone(p.Held)
		for j := range p.Held {
			p.Held[j].Stack = slices.Clone(p.Held[j].Stack)
		}
	}
	f.Objects = slices.Clone(f.Objects)
	for i := range f.Objects {
		f.Objects[i].Allocated = slices.Clone(f.Objects[i].Allocated)
		f.Objects[i].Initialised = slices.Clone(f.Objects[i].Initialised)
	}
	f.Threads = slices.Clone(f.Threads)
	for i := range f.Threads {
		f.Threads[i].Created = slices.Clone(f.Threads[i].Created)
	}
	f.Notes = slices.Clone(f.Notes)
	return f
}
