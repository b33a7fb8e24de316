package trace

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/ripstop/ripstop/internal/wire"
)

// The text twin: one line per event, all from the event table.
//
//	P1 T2 @1234 acquire obj=0x4050 kind=mutex mode=exclusive how=block stack=S3
//	P1 T2 @1240 want obj=0x4090 kind=mutex mode=exclusive how=block stack=S4 target=T0 value=0 held=[mutex:0x4050:exclusive:S3]
//	P1 T2 @1250 stack id=S4 pcs=[0x401136,0x401200]
//
// P is the process, T the thread, @ the timestamp. Enums print as words, an unknown value as its number, flags joined with '|', a tail
// of bytes as a quoted Go string. Print writes every field; what Parse lets one leave out is said there.

var tailNames = map[wire.Tail]string{wire.Bytes: "tail", wire.PCs: "pcs", wire.Helds: "held"}

// Print writes e of process as one line.
func Print(w io.Writer, process uint64, e *wire.Event) error {
	line, err := AppendText(nil, process, e)
	if err != nil {
		return err
	}
	_, err = w.Write(append(line, '\n'))
	return err
}

// AppendText appends the line of e, without its end, to dst. It fails if e.Words is not one record of the event table.
func AppendText(dst []byte, process uint64, e *wire.Event) ([]byte, error) {
	if n, err := wire.RecordWords(e.Words); err != nil {
		return dst, fmt.Errorf("event of type %v: %w", e.Type, err)
	} else if n != len(e.Words) {
		return dst, fmt.Errorf("event of type %v: %d words, its record has %d", e.Type, len(e.Words), n)
	}
	spec := wire.SpecOf(wire.Type(e.Words[0]))
	dst = fmt.Appendf(dst, "P%d T%d @%d %s", process, e.Thread, e.Words[0]>>8, spec.Name)
	places, words := spec.Places()
	for i, f := range spec.Fields {
		v := e.Words[places[i].Word] >> places[i].Shift
		if f.Width < 64 {
			v &= 1<<f.Width - 1
		}
		dst = append(dst, ' ')
		dst = append(dst, f.Name...)
		dst = append(dst, '=')
		dst = appendValue(dst, f, v)
	}
	if spec.Tail == wire.NoTail {
		return dst, nil
	}
	dst = append(dst, ' ')
	dst = append(dst, tailNames[spec.Tail]...)
	dst = append(dst, '=')
	return appendTail(dst, spec.Tail, e.Words[words-1:]), nil
}

func appendValue(dst []byte, f wire.Field, v uint64) []byte {
	switch f.Kind {
	case wire.Int:
		return strconv.AppendInt(dst, int64(v<<(64-f.Width))>>(64-f.Width), 10)
	case wire.Addr, wire.Signals:
		return appendAddr(dst, v)
	case wire.Thread:
		return strconv.AppendUint(append(dst, 'T'), v, 10)
	case wire.Stack:
		return strconv.AppendUint(append(dst, 'S'), v, 10)
	case wire.Enum:
		return appendEnum(dst, f.Enum, v)
	case wire.Flags:
		return appendFlags(dst, f.Enum, v)
	}
	return strconv.AppendUint(dst, v, 10)
}

func appendAddr(dst []byte, v uint64) []byte {
	return strconv.AppendUint(append(dst, '0', 'x'), v, 16)
}

func enumOf(name string) *wire.EnumSpec {
	for i := range wire.Enums {
		if wire.Enums[i].Name == name {
			return &wire.Enums[i]
		}
	}
	return nil
}

func appendEnum(dst []byte, enum string, v uint64) []byte {
	if s := enumOf(enum); s != nil {
		for _, e := range s.Values {
			if uint64(e.V) == v {
				return append(dst, e.Name...)
			}
		}
	}
	return strconv.AppendUint(dst, v, 10)
}

func appendFlags(dst []byte, enum string, v uint64) []byte {
	at := len(dst)
	if s := enumOf(enum); s != nil {
		for _, e := range s.Values {
			if b := uint64(e.V); b != 0 && v&b == b {
				if len(dst) > at {
					dst = append(dst, '|')
				}
				dst = append(dst, e.Name...)
				v &^= b
			}
		}
	}
	if v != 0 || len(dst) == at {
		if len(dst) > at {
			dst = append(dst, '|')
		}
		dst = appendAddr(dst, v)
	}
	return dst
}

// appendTail prints a tail; w begins with its count.
func appendTail(dst []byte, tail wire.Tail, w []uint64) []byte {
	n := w[0]
	if tail == wire.Bytes {
		return strconv.AppendQuote(dst, string(wordBytes(w[1:])[:n]))
	}
	dst = append(dst, '[')
	for i := range n {
		if i > 0 {
			dst = append(dst, ',')
		}
		if tail == wire.PCs {
			dst = appendAddr(dst, w[1+i])
			continue
		}
		h := wire.UnpackHeld(w[1+i*wire.HeldWords:])
		dst = append(appendEnum(dst, "Object", uint64(h.Kind)), ':')
		dst = append(appendAddr(dst, h.Obj), ':')
		dst = append(appendEnum(dst, "Mode", uint64(h.Mode)), ':', 'S')
		dst = strconv.AppendUint(dst, uint64(h.Stack), 10)
	}
	return append(dst, ']')
}

// Line is an event of the text twin.
type Line struct {
	Process uint64
	Event   wire.Event
}

// Parse reads one line as Print writes it. Left out may be: P (then 1), T (then 1), @ (then 0), any field (then 0; for an enum the
// first value it lists, so kind is mutex and mode exclusive; for `self` the line's own thread), and the tail (then empty). The order
// of fields is free. For hand-written events `$name` is an address: the same for the same name in one Parse or ParseText.
func Parse(line string) (process uint64, e wire.Event, err error) {
	l, err := (&parser{}).line(line)
	return l.Process, l.Event, err
}

// ParseText reads lines as Parse does, skipping empty ones and comments ("# …"). A line without @ is one tick after the line before it,
// the first one at 1.
func ParseText(r io.Reader) ([]Line, error) {
	var out []Line
	p := &parser{}
	sc := bufio.NewScanner(r)
	sc.Buffer(nil, 1<<20)
	for n := 1; sc.Scan(); n++ {
		text := strings.TrimSpace(sc.Text())
		if text == "" || text[0] == '#' {
			continue
		}
		p.next = 1
		if len(out) > 0 {
			p.next = out[len(out)-1].Event.TS + 1
		}
		l, err := p.line(text)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		out = append(out, l)
	}
	return out, sc.Err()
}

// parser holds what the lines of one text share.
type parser struct {
	next  uint64            // timestamp of a line without one
	names map[string]uint64 // addresses of $names
}

// Addresses of $names: far apart, so that objects and their fields do not overlap, and aligned as any object is.
const (
	nameBase = 0x10000
	nameStep = 0x100
)

const maxTS = 1<<56 - 1

// line parses one line. Its words are split at spaces, except within quotes.
func (p *parser) line(s string) (Line, error) {
	l := Line{Process: 1, Event: wire.Event{TS: p.next, Thread: 1}}
	rest := strings.TrimSpace(s)
	var word string
	var err error
	for {
		word, rest, err = nextWord(rest)
		if err != nil {
			return l, err
		}
		if word == "" {
			return l, errors.New("no event: a line is [P1] [T1] [@ts] event field=value …")
		}
		done := false
		switch {
		case word[0] == 'P':
			l.Process, err = number(word[1:], 64)
		case word[0] == 'T':
			var t uint64
			t, err = number(word[1:], 32)
			l.Event.Thread = uint32(t)
		case word[0] == '@':
			l.Event.TS, err = number(word[1:], 56)
		default:
			done = true
		}
		if err != nil {
			return l, fmt.Errorf("%s: %w", word, err)
		}
		if done {
			break
		}
	}
	if l.Event.TS > maxTS {
		return l, fmt.Errorf("timestamp %d does not fit in 56 bits", l.Event.TS)
	}
	spec := specNamed(word)
	if spec == nil {
		return l, fmt.Errorf("unknown event %q", word)
	}
	l.Event.Type = spec.ID
	l.Event.Words, err = p.record(spec, rest, l.Event.Thread)
	if err != nil {
		return l, fmt.Errorf("%s: %w", spec.Name, err)
	}
	l.Event.Words[0] = l.Event.TS<<8 | uint64(spec.ID)
	return l, nil
}

func specNamed(name string) *wire.Spec {
	for i := range wire.Events {
		if wire.Events[i].Name == name {
			return &wire.Events[i]
		}
	}
	return nil
}

// record parses the field=value words of an event; word 0 is left to the caller.
func (p *parser) record(spec *wire.Spec, rest string, thread uint32) ([]uint64, error) {
	places, words := spec.Places()
	w := make([]uint64, words)
	given := map[string]bool{}
	for {
		word, r, err := nextWord(rest)
		if err != nil {
			return nil, err
		}
		if rest = r; word == "" {
			break
		}
		name, value, ok := strings.Cut(word, "=")
		if !ok {
			return nil, fmt.Errorf("%q is not field=value", word)
		}
		if given[name] {
			return nil, fmt.Errorf("field %s twice", name)
		}
		given[name] = true
		if spec.Tail != wire.NoTail && name == tailNames[spec.Tail] {
			w, err = p.tail(w, spec.Tail, value)
		} else {
			err = p.field(w, spec, places, name, value)
		}
		if err != nil {
			return nil, err
		}
	}
	for i, f := range spec.Fields {
		if given[f.Name] {
			continue
		}
		if s := enumOf(f.Enum); s != nil && f.Kind == wire.Enum {
			w[places[i].Word] |= uint64(s.Values[0].V) << places[i].Shift
		} else if f.Name == "self" && f.Kind == wire.Thread {
			w[places[i].Word] |= uint64(thread) << places[i].Shift
		}
	}
	if len(w) > wire.MaxRecordWords {
		return nil, fmt.Errorf("%d words, at most %d", len(w), wire.MaxRecordWords)
	}
	return w, nil
}

func (p *parser) field(w []uint64, spec *wire.Spec, places []wire.Place, name, value string) error {
	for i, f := range spec.Fields {
		if f.Name != name {
			continue
		}
		v, err := p.value(f, value)
		if err != nil {
			return fmt.Errorf("%s=%s: %w", name, value, err)
		}
		w[places[i].Word] |= v << places[i].Shift
		return nil
	}
	return fmt.Errorf("no field %q", name)
}

func (p *parser) value(f wire.Field, s string) (uint64, error) {
	switch f.Kind {
	case wire.Int:
		v, err := strconv.ParseInt(s, 10, f.Width)
		if err != nil {
			return 0, fmt.Errorf("want a whole number of %d bits", f.Width)
		}
		return uint64(v) << (64 - f.Width) >> (64 - f.Width), nil
	case wire.Addr, wire.Signals:
		return p.addr(s)
	case wire.Thread:
		return prefixed(s, 'T')
	case wire.Stack:
		return prefixed(s, 'S')
	case wire.Enum:
		return enumValue(f.Enum, s, f.Width)
	case wire.Flags:
		var v uint64
		for _, part := range strings.Split(s, "|") {
			b, err := enumValue(f.Enum, part, f.Width)
			if err != nil {
				return 0, err
			}
			v |= b
		}
		return v, nil
	}
	return number(s, f.Width)
}

func enumValue(enum, s string, width int) (uint64, error) {
	if v, ok := wire.EnumValueOf(enum, s); ok {
		return uint64(v), nil
	}
	v, err := number(s, width)
	if err != nil {
		return 0, fmt.Errorf("want a word of %s or a number of %d bits", enum, width)
	}
	return v, nil
}

// number reads a decimal or, with 0x, a hexadecimal one.
func number(s string, bits int) (uint64, error) {
	base := 10
	digits := s
	if h, ok := strings.CutPrefix(s, "0x"); ok {
		base, digits = 16, h
	}
	v, err := strconv.ParseUint(digits, base, bits)
	if err != nil {
		return 0, fmt.Errorf("want a number of %d bits", bits)
	}
	return v, nil
}

func prefixed(s string, prefix byte) (uint64, error) {
	if s == "" || s[0] != prefix {
		return 0, fmt.Errorf("want %c and a number", prefix)
	}
	return number(s[1:], 32)
}

func (p *parser) addr(s string) (uint64, error) {
	name, ok := strings.CutPrefix(s, "$")
	if !ok {
		return number(s, 64)
	}
	v, ok := p.names[name]
	if !ok {
		if p.names == nil {
			p.names = map[string]uint64{}
		}
		v = nameBase + uint64(len(p.names))*nameStep
		p.names[name] = v
	}
	return v, nil
}

// tail appends the tail s to the fixed words w and sets its count.
func (p *parser) tail(w []uint64, tail wire.Tail, s string) ([]uint64, error) {
	count := len(w) - 1
	if tail == wire.Bytes {
		b, err := strconv.Unquote(s)
		if err != nil {
			return nil, fmt.Errorf("tail=%s: want a quoted string", s)
		}
		w[count] = uint64(len(b))
		at := len(w)
		w = append(w, make([]uint64, (len(b)+7)/8)...)
		copy(wordBytes(w[at:]), b)
		return w, nil
	}
	if len(s) < 2 || s[0] != '[' || s[len(s)-1] != ']' {
		return nil, fmt.Errorf("%s=%s: want […,…]", tailNames[tail], s)
	}
	list := s[1 : len(s)-1]
	for list != "" {
		var item string
		item, list, _ = strings.Cut(list, ",")
		var entry []uint64
		if tail == wire.PCs {
			pc, err := p.addr(item)
			if err != nil {
				return nil, fmt.Errorf("pcs: %q: %w", item, err)
			}
			entry = []uint64{pc}
		} else {
			h, err := p.held(item)
			if err != nil {
				return nil, fmt.Errorf("held: %q: %w", item, err)
			}
			pair := wire.PackHeld(h)
			entry = pair[:]
		}
		w = append(w, entry...)
		w[count]++
	}
	return w, nil
}

// held parses kind:address:mode:Sstack; kind and mode may be left out with their colons (`$a:S3`, `$a`).
func (p *parser) held(s string) (wire.Held, error) {
	h := wire.Held{Kind: uint8(wire.ObjectMutex)}
	parts := strings.Split(s, ":")
	if len(parts) > 1 {
		if last := parts[len(parts)-1]; strings.HasPrefix(last, "S") {
			v, err := prefixed(last, 'S')
			if err != nil {
				return h, err
			}
			h.Stack = uint32(v)
			parts = parts[:len(parts)-1]
		}
	}
	if len(parts) > 1 {
		last := parts[len(parts)-1]
		if _, ok := wire.EnumValueOf("Mode", last); ok || len(parts) == 3 {
			v, err := enumValue("Mode", last, 8)
			if err != nil {
				return h, err
			}
			h.Mode = uint8(v)
			parts = parts[:len(parts)-1]
		}
	}
	if len(parts) > 1 {
		v, err := enumValue("Object", parts[0], 8)
		if err != nil {
			return h, err
		}
		h.Kind = uint8(v)
		parts = parts[1:]
	}
	if len(parts) != 1 {
		return h, errors.New("want kind:address:mode:Sstack")
	}
	var err error
	h.Obj, err = p.addr(parts[0])
	return h, err
}

// nextWord cuts the first word off s. A quoted string within a word may hold spaces.
func nextWord(s string) (word, rest string, err error) {
	s = strings.TrimLeft(s, " \t")
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case ' ', '\t':
			return s[:i], s[i:], nil
		case '"':
			q, err := strconv.QuotedPrefix(s[i:])
			if err != nil {
				return "", "", errors.New("a quoted string does not end or has a bad escape")
			}
			i += len(q) - 1
		}
	}
	return s, "", nil
}
