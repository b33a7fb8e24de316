package wire

import "fmt"

// Type is the id of an event, the low byte of its word 0.
type Type uint8

// Event is one decoded record. Words aliases the reader's buffer and is valid until the reader moves on; word 0 is included.
type Event struct {
	TS     uint64 // TSC ticks
	Type   Type
	Thread uint32 // number the agent gave the thread in its process: 1 is the first; 0 where none is known
	Words  []uint64
}

// Kind says what a field means, so that the text twin can print and parse it.
type Kind uint8

const (
	Uint    Kind = iota // decimal
	Int                 // decimal, sign-extended from Width
	Addr                // hexadecimal address in the target
	Thread              // thread number in its process, printed T7
	Stack               // id of a stack, defined by a `stack` event of the same process, printed S12; 0 is "none was taken"
	Enum                // a named value of the enum Field.Enum; an unknown value prints as its number
	Flags               // a |-joined set of bits of the enum Field.Enum
	Signals             // hexadecimal set of signals: bit N-1 is signal N
)

// Tail says what follows the fixed fields.
type Tail uint8

const (
	NoTail Tail = iota
	Bytes       // n bytes, padded with zeros to whole words
	PCs         // n words: code addresses, innermost frame first
	Helds       // n entries of HeldWords words: the locks a thread holds, oldest first
)

// HeldWords is the size in words of one entry of a Helds tail:
// word 0 the object's address, word 1 = stack id | mode<<32 | kind<<40.
const HeldWords = 2

// Held is one lock held by a thread.
type Held struct {
	Obj   uint64
	Stack uint32 // where it was acquired
	Mode  uint8  // enum Mode
	Kind  uint8  // enum Object
}

// PackHeld returns the two words of h.
func PackHeld(h Held) [HeldWords]uint64 {
	return [HeldWords]uint64{h.Obj, uint64(h.Stack) | uint64(h.Mode)<<32 | uint64(h.Kind)<<40}
}

// UnpackHeld reads one entry of a Helds tail.
func UnpackHeld(w []uint64) Held {
	return Held{Obj: w[0], Stack: uint32(w[1]), Mode: uint8(w[1] >> 32), Kind: uint8(w[1] >> 40)}
}

// Field is one fixed field of an event.
type Field struct {
	Name  string
	Width int // bits: 8, 16, 32 or 64
	Kind  Kind
	Enum  string // for Enum and Flags: the name in Enums
}

// Spec is one row of the event table.
type Spec struct {
	ID     Type
	Name   string // lower case with '-'; the text twin's word for it
	Fields []Field
	Tail   Tail
	Doc    string // what it means, and for synchronisation its happens-before reading
}

// Place is where a fixed field lies: word index (0 is the header) and shift in bits.
type Place struct{ Word, Shift int }

// Places gives the place of every fixed field and the number of fixed words including the header and, with a tail, the count.
func (s *Spec) Places() (places []Place, words int) {
	word, bit := 0, 64
	for _, f := range s.Fields {
		if bit+f.Width > 64 {
			word, bit = word+1, 0
		}
		places = append(places, Place{word, bit})
		bit += f.Width
	}
	words = word + 1
	if s.Tail != NoTail {
		words++
	}
	return places, words
}

// TailWords is the number of words that n entries of tail t take.
func TailWords(t Tail, n uint64) uint64 {
	switch t {
	case Bytes:
		return (n + 7) / 8
	case PCs:
		return n
	case Helds:
		return n * HeldWords
	}
	return 0
}

// MaxRecordWords bounds any record; an agent never writes a longer one and a reader refuses it.
const MaxRecordWords = 2048

var specs = func() (t [256]*Spec) {
	for i := range Events {
		s := &Events[i]
		if t[s.ID] != nil {
			panic(fmt.Sprintf("BUG: event id %d twice", s.ID))
		}
		t[s.ID] = s
	}
	return t
}()

// SpecOf returns the table's row for t, or nil for an id it does not have.
func SpecOf(t Type) *Spec { return specs[t] }

func (t Type) String() string {
	if s := specs[t]; s != nil {
		return s.Name
	}
	return fmt.Sprintf("event-%d", uint8(t))
}

// RecordWords returns the length in words of the record that starts at w[0], from as much of it as w holds.
// It fails on an unknown id, a record over MaxRecordWords, or (need > len(w)) when w is too short to tell.
func RecordWords(w []uint64) (int, error) {
	if len(w) == 0 {
		return 1, ErrShort
	}
	s := specs[uint8(w[0])]
	if s == nil {
		return 0, fmt.Errorf("unknown event id %d", uint8(w[0]))
	}
	n := fixedWords[s.ID]
	if s.Tail == NoTail {
		return n, nil
	}
	if len(w) < n {
		return n, ErrShort
	}
	if w[n-1] > MaxRecordWords*8 {
		return 0, fmt.Errorf("event %s: tail of %d entries", s.Name, w[n-1])
	}
	total := n + int(TailWords(s.Tail, w[n-1]))
	if total > MaxRecordWords {
		return 0, fmt.Errorf("event %s: %d words, at most %d", s.Name, total, MaxRecordWords)
	}
	return total, nil
}

// ErrShort says that more words are needed to tell a record's length.
var ErrShort = fmt.Errorf("record cut short")

var fixedWords = func() (t [256]int) {
	for i := range Events {
		_, t[Events[i].ID] = Events[i].Places()
	}
	return t
}()
