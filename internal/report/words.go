package report

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/ripstop/ripstop/internal/finding"
)

// upper is s with its first letter, if that is one of ASCII, in upper case.
func upper(s string) string {
	if s != "" && s[0] >= 'a' && s[0] <= 'z' {
		return string(s[0]-'a'+'A') + s[1:]
	}
	return s
}

func threadOf(f *finding.Finding, number uint32) *finding.Thread {
	for i := range f.Threads {
		if f.Threads[i].Number == number {
			return &f.Threads[i]
		}
	}
	return nil
}

func objectOf(f *finding.Finding, id string) *finding.Object {
	for i := range f.Objects {
		if f.Objects[i].ID == id {
			return &f.Objects[i]
		}
	}
	return nil
}

// threadName is how a sentence names a thread: "main thread", "thread T2 'worker' (tid=17)".
func threadName(f *finding.Finding, number uint32) string {
	if number == 1 {
		return "main thread"
	}
	t := threadOf(f, number)
	if t == nil {
		return fmt.Sprintf("thread T%d", number)
	}
	return "thread " + threadLabel(t)
}

func threadLabel(t *finding.Thread) string {
	s := fmt.Sprintf("T%d", t.Number)
	if t.Name != "" {
		s += " '" + clean(t.Name) + "'"
	}
	if t.Tid != 0 {
		s += fmt.Sprintf(" (tid=%d)", t.Tid)
	}
	return s
}

// declaration is the part of a variable that is meant, with its type in front, in brackets; "" if that is not known, or nothing new: the type of a lock is.
func declaration(o *finding.Object) string {
	if o.Type == "" || o.Path == "" && o.Kind != "location" {
		return ""
	}
	space := " "
	if strings.HasSuffix(o.Type, "*") {
		space = ""
	}
	return " (" + clean(o.Type+space+o.Symbol+o.Path) + ")"
}

// objectName is the short name of an object behind its id: (lock_a), (in a block of make_account), "" if there is none.
func objectName(o *finding.Object) string {
	switch o.Where {
	case finding.Global, finding.TLS:
		if o.Symbol == "" {
			return ""
		}
		switch {
		case o.Path != "":
			return clean(o.Symbol + o.Path)
		case o.SymOffset != 0:
			return fmt.Sprintf("%s+0x%x", clean(o.Symbol), o.SymOffset)
		}
		return clean(o.Symbol)
	case finding.Heap:
		if len(o.Allocated) > 0 {
			if fr := o.Allocated[telling(o.Allocated)]; fr.Func != "" {
				return "allocated in " + clean(fr.Func)
			}
		}
	case finding.OnStack:
		if o.Symbol != "" {
			return clean(o.Symbol + o.Path + " of " + o.Func)
		}
		if o.Func != "" {
			return "on the stack of " + clean(o.Func)
		}
	}
	return ""
}

// message is f.Message with the name of each object behind the first mention of its id, and what the program said of its crash.
func message(f *finding.Finding) string {
	msg := named(f.Objects, clean(f.Message))
	if c := f.Crash; c != nil {
		msg += crashText(c)
	}
	return msg
}

// named is text with the names of objects behind their ids.
func named(objects []finding.Object, text string) string {
	for i := range objects {
		o := &objects[i]
		name := objectName(o)
		if name == "" || o.ID == "" {
			continue
		}
		if at := wordIndex(text, o.ID); at >= 0 {
			end := at + len(o.ID)
			if !strings.HasPrefix(text[end:], " (") {
				text = text[:end] + " (" + name + ")" + text[end:]
			}
		}
	}
	return text
}

// crashText is what goes behind the message of a crash.
func crashText(c *finding.Crash) (s string) {
	if c.Exception != "" {
		s = ": std::terminate was called after an exception of type " + escaped(c.Exception) + " was thrown"
		if c.What != "" {
			s += ": " + escaped(c.What)
		}
	}
	if c.Said != "" {
		s += ": " + escaped(c.Said)
	}
	return s
}

// escaped is text of the program's on one line: what is no printable character is written as in C.
func escaped(text string) string {
	var b strings.Builder
	for i, c := range text {
		switch {
		case c == utf8.RuneError && strings.HasPrefix(text[i:], string(utf8.RuneError)):
			b.WriteRune(c)
		case c == utf8.RuneError:
			fmt.Fprintf(&b, `\x%02x`, text[i])
		case c == '\n':
			b.WriteString(`\n`)
		case c == '\t':
			b.WriteString(`\t`)
		case isControl(c) && c < 0x80:
			fmt.Fprintf(&b, `\x%02x`, c)
		case isControl(c):
			fmt.Fprintf(&b, `\u%04x`, c)
		default:
			b.WriteRune(c)
		}
	}
	return b.String()
}

// wordIndex finds word in s where no letter or digit touches it.
func wordIndex(s, word string) int {
	for from := 0; ; {
		i := strings.Index(s[from:], word)
		if i < 0 {
			return -1
		}
		i += from
		end := i + len(word)
		if (i == 0 || !isWord(s[i-1])) && (end == len(s) || !isWord(s[end])) {
			return i
		}
		from = i + 1
	}
}

func isWord(c byte) bool {
	return c == '_' || c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' || c >= 0x80
}

// partText is the sentence of a part, with its thread; of accesses to memory as ThreadSanitizer words it.
func partText(f *finding.Finding, p *finding.Part) string {
	s := clean(p.Text)
	if ruleOf(f.Rule).Class == finding.ClassCrash {
		// Of all others the message has said it.
		s = named(slices.DeleteFunc(slices.Clone(f.Objects), func(o finding.Object) bool { return o.Kind != "location" }), s)
	}
	if p.Thread == 0 {
		return s
	}
	if ruleOf(f.Rule).Class != finding.ClassRace && f.Rule != finding.RuleUseAfterFree {
		return s + " in " + threadName(f, p.Thread)
	}
	s += " by " + threadName(f, p.Thread)
	if len(p.Held) > 0 {
		var held []string
		for _, h := range p.Held {
			how := "write "
			if h.Shared {
				how = "read "
			}
			held = append(held, how+clean(h.Object))
		}
		s += " (mutexes: " + strings.Join(held, ", ") + ")"
	}
	if len(p.Before) > 0 {
		s += ", before which there was " + valueText(p.Before)
	}
	return s
}

// valueText is bytes of memory as a number where a number has as many, or each.
func valueText(b []byte) string {
	switch len(b) {
	case 1, 2, 4, 8:
		v := uint64(0)
		for i, x := range b {
			v |= uint64(x) << (8 * i)
		}
		if v < 10 {
			return fmt.Sprint(v)
		}
		return fmt.Sprintf("%d (0x%x)", v, v)
	}
	return fmt.Sprintf("% x", b)
}

// heldText says where a lock that the part's thread holds was taken.
func heldText(f *finding.Finding, h *finding.Held) string {
	kind := "object"
	if o := objectOf(f, h.Object); o != nil && o.Kind != "" {
		kind = o.Kind
	}
	how := "acquired"
	if h.Shared {
		how = "acquired for reading"
	}
	return fmt.Sprintf("%s %s previously %s by the same thread here", upper(clean(kind)), clean(h.Object), how)
}

// begunText says how an object came to be what it is, for Initialised.
func begunText(o *finding.Object) string {
	how := "initialised"
	if o.Where == finding.Descriptor {
		how = "opened"
	}
	return fmt.Sprintf("%s %s %s here", upper(clean(o.Kind)), clean(o.ID), how)
}

// objectText says what and where an object is; a stack follows if the text ends with "by" or "here".
func objectText(f *finding.Finding, o *finding.Object) (text string, stack finding.Stack) {
	head := fmt.Sprintf("%s %s (0x%x) ", upper(clean(o.Kind)), clean(o.ID), o.Addr)
	if strings.TrimSpace(o.Kind) == "" {
		head = fmt.Sprintf("Object %s (0x%x) ", clean(o.ID), o.Addr)
	}
	if f.Rule == finding.RuleInvalidFree { // what was freed is no block
		head = fmt.Sprintf("Address %s (0x%x) ", clean(o.ID), o.Addr)
	}
	if o.Kind == finding.KindWords("heap") && o.Where == finding.Heap && o.Addr == o.Block {
		s := strings.TrimSuffix(head, " ") + fmt.Sprintf(" of size %d", o.Size)
		if len(o.Allocated) > 0 {
			by := ""
			if o.OwnerThread != 0 {
				by = " " + threadName(f, o.OwnerThread)
			}
			return s + " was allocated by" + by, o.Allocated
		}
		return s, nil
	}
	switch o.Where {
	case finding.Global:
		place := ""
		if o.Module != "" {
			place = " in " + clean(filepath.Base(o.Module))
		}
		if o.Symbol == "" {
			return head + "is global data" + place, nil
		}
		size := ""
		if o.Size > 0 {
			size = fmt.Sprintf(" of size %d", o.Size)
		}
		if o.SymOffset > 0 {
			return head + fmt.Sprintf("is located %d bytes inside of global '%s'%s%s", o.SymOffset, clean(o.Symbol), size, place) + declaration(o), nil
		}
		return head + fmt.Sprintf("is global '%s'%s%s", clean(o.Symbol), size, place) + declaration(o), nil
	case finding.Heap:
		s := head + fmt.Sprintf("is located %d bytes inside of heap block of size %d at 0x%x", o.Addr-o.Block, o.Size, o.Block)
		switch {
		case len(o.Allocated) > 1 && o.Reused:
			return s + " allocated (frames behind the first are of an earlier block from the same call, which may have had another caller) by", o.Allocated
		case len(o.Allocated) > 0:
			return s + " allocated by", o.Allocated
		}
		return s, nil
	case finding.OnStack:
		s := head + "is located on the stack of " + threadName(f, o.OwnerThread)
		if o.OwnerThread == 0 {
			s = head + "is located on the stack of a thread"
		}
		if o.Func != "" {
			s += ", in the frame of " + clean(o.Func)
		}
		if o.Symbol != "" {
			s += ": '" + clean(o.Symbol) + "'" + declaration(o)
		}
		return s, nil
	case finding.TLS:
		name := ""
		if o.Symbol != "" {
			name = " '" + clean(o.Symbol) + "'"
		}
		is := "is thread-local data"
		if o.SymOffset > 0 && name != "" {
			is = fmt.Sprintf("is located %d bytes inside of thread-local data", o.SymOffset)
		}
		if o.OwnerThread == 0 {
			return head + is + name + declaration(o), nil
		}
		return head + is + name + " of " + threadName(f, o.OwnerThread) + declaration(o), nil
	case finding.Mapping:
		return head + "is located in mapped memory", nil
	case finding.Descriptor:
		return fmt.Sprintf("%s %s is descriptor %d", upper(clean(o.Kind)), clean(o.ID), o.Addr), nil
	}
	return head + "lies where nothing is known of", nil
}
