package trace

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"time"

	"github.com/ripstop/ripstop/internal/wire"
)

// FormatVersion is the version of the trace directory: of the chunks and of meta.json. What is in the chunks is versioned by
// wire.Version.
const FormatVersion = 1

// The files of a trace directory.
const (
	metaName   = "meta.json"
	eventsName = "events.rst"
)

// metaFormat is the word in meta.json by which a trace directory is known.
const metaFormat = "ripstop trace"

// Meta is meta.json: what is true of the whole trace. It holds nothing of the environment, which may contain secrets.
type Meta struct {
	Format        string   `json:"format"` // written by Create
	FormatVersion int      `json:"format_version"`
	WireVersion   int      `json:"wire_version"`
	Ripstop       string   `json:"ripstop"` // version of the program that recorded
	Command       []string `json:"command"`
	Directory     string   `json:"directory,omitempty"` // working directory of the command
	Started       string   `json:"started"`             // RFC 3339
	Clock         Clock    `json:"clock"`
	Host          Host     `json:"host"`
	Config        Config   `json:"config"`
	Result        *Result  `json:"result,omitempty"` // absent while recording, and for ever if the recorder was killed
}

// Clock relates timestamps to time: at UnixNano the TSC read TSC, and it runs at Hz.
type Clock struct {
	Hz       uint64 `json:"hz"`
	TSC      uint64 `json:"tsc"`
	UnixNano int64  `json:"unix_nano"`
}

// Host is the machine that recorded, as far as it matters for reading the trace.
type Host struct {
	Kernel string `json:"kernel,omitempty"`
	CPU    string `json:"cpu,omitempty"`
	CPUs   int    `json:"cpus,omitempty"`
	Glibc  string `json:"glibc,omitempty"`
}

// Config is what the agent was told to do; see wire.Config.
type Config struct {
	All        bool   `json:"all"`
	Follow     bool   `json:"follow"`
	Heap       bool   `json:"heap"`
	Misuse     bool   `json:"misuse"`
	Accesses   bool   `json:"accesses,omitempty"` // memory accesses are among the events
	StackDepth uint32 `json:"stack_depth"`
	AllocDepth uint32 `json:"alloc_depth"`
}

// Result is how the recording ended.
type Result struct {
	Exit   int    `json:"exit"`             // exit status of the command
	Signal int    `json:"signal,omitempty"` // that killed it
	Ended  string `json:"ended,omitempty"`  // RFC 3339
	// NotSeen is what was not recorded, a sentence each, as far as those who judge the trace should say so.
	NotSeen []string `json:"not_seen,omitempty"`
}

// Time is when the event at tick ts was, as far as the clock's calibration goes.
func (c Clock) Time(ts uint64) (t time.Time, ok bool) {
	if c.Hz == 0 {
		return t, false
	}
	d := float64(int64(ts-c.TSC)) / float64(c.Hz)
	return time.Unix(0, c.UnixNano).Add(time.Duration(d * 1e9)), true
}

func readMeta(dir string) (Meta, error) {
	var m Meta
	path := filepath.Join(dir, metaName)
	data, err := os.ReadFile(path)
	if os.IsNotExist(err) {
		return m, fmt.Errorf("%s is not a trace directory: it has no %s", dir, metaName)
	}
	if err != nil {
		return m, err
	}
	if err := json.Unmarshal(data, &m); err != nil {
		return m, fmt.Errorf("%s: %w", path, err)
	}
	switch {
	case m.Format != metaFormat:
		return m, fmt.Errorf("%s is not a trace directory: %s does not say %q", dir, metaName, metaFormat)
	case m.FormatVersion != FormatVersion || m.WireVersion != wire.Version:
		return m, fmt.Errorf("trace %s has format %d.%d, this ripstop reads %d.%d: use ripstop %s, which recorded it",
			dir, m.FormatVersion, m.WireVersion, FormatVersion, wire.Version, m.Ripstop)
	}
	return m, nil
}

// writeMeta replaces meta.json in one step, so that a reader never sees half of it.
func writeMeta(dir string, m Meta) error {
	m.Format, m.FormatVersion, m.WireVersion = metaFormat, FormatVersion, wire.Version
	data, err := json.MarshalIndent(m, "", "\t")
	if err != nil {
		panic("BUG: meta.json: " + err.Error())
	}
	tmp := filepath.Join(dir, metaName+".new")
	if err := os.WriteFile(tmp, append(data, '\n'), 0o666); err != nil {
		return err
	}
	return os.Rename(tmp, filepath.Join(dir, metaName))
}

// events.rst: a file header, then chunks. All numbers are little-endian; every chunk is a multiple of 8 bytes long.
const (
	fileHeaderSize  = 32
	chunkHeaderSize = 40
	chunkMagic      = 0x48435352 // "RSCH"
	crcOffset       = chunkHeaderSize - 4

	// A writer cuts longer runs of words into chunks of at most chunkWords, so that a reader holds little of each lane at a time; a
	// reader takes chunks of up to maxChunkWords.
	chunkWords    = 8192
	maxChunkWords = 1 << 16
)

type chunkKind uint8

const (
	chunkEvents chunkKind = 1 // whole records of one lane
	chunkBound  chunkKind = 2 // all events of process older than value are in the file
	chunkGone   chunkKind = 3 // process has ended and all its events are in the file
	chunkEnd    chunkKind = 4 // the trace is complete; nothing follows
)

// chunk is a chunk's header.
type chunk struct {
	kind    chunkKind
	key     LaneKey
	process uint64
	value   uint64
	words   uint32
	crc     uint32 // CRC-32C of the header up to here and of the words
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// encode writes the header with its checksum; payload is the bytes of its words.
func (c chunk) encode(b *[chunkHeaderSize]byte, payload []byte) {
	le := binary.LittleEndian
	le.PutUint32(b[0:], chunkMagic)
	b[4], b[5], b[6], b[7] = byte(c.kind), c.key.Lane, 0, 0
	le.PutUint32(b[8:], c.key.Region)
	le.PutUint32(b[12:], c.key.Slot)
	le.PutUint64(b[16:], c.process)
	le.PutUint64(b[24:], c.value)
	le.PutUint32(b[32:], uint32(len(payload)/8))
	le.PutUint32(b[crcOffset:], chunkCRC(b[:], payload))
}

func decodeChunk(b []byte) (chunk, error) {
	le := binary.LittleEndian
	if le.Uint32(b) != chunkMagic {
		return chunk{}, fmt.Errorf("no chunk begins here")
	}
	c := chunk{
		kind:    chunkKind(b[4]),
		key:     LaneKey{Region: le.Uint32(b[8:]), Slot: le.Uint32(b[12:]), Lane: b[5]},
		process: le.Uint64(b[16:]),
		value:   le.Uint64(b[24:]),
		words:   le.Uint32(b[32:]),
		crc:     le.Uint32(b[crcOffset:]),
	}
	if c.words > maxChunkWords {
		return c, fmt.Errorf("a chunk of %d words, at most %d", c.words, maxChunkWords)
	}
	return c, nil
}

func chunkCRC(header, payload []byte) uint32 {
	return crc32.Update(crc32.Checksum(header[:crcOffset], castagnoli), castagnoli, payload)
}

func fileHeader() []byte {
	b := make([]byte, fileHeaderSize)
	binary.LittleEndian.PutUint64(b, wire.Magic)
	binary.LittleEndian.PutUint32(b[8:], FormatVersion)
	binary.LittleEndian.PutUint32(b[12:], wire.Version)
	return b
}

func checkFileHeader(b []byte) error {
	le := binary.LittleEndian
	if le.Uint64(b) != wire.Magic {
		return fmt.Errorf("not an event file of ripstop")
	}
	if f, w := le.Uint32(b[8:]), le.Uint32(b[12:]); f != FormatVersion || w != wire.Version {
		return fmt.Errorf("format %d.%d, this ripstop reads %d.%d", f, w, FormatVersion, wire.Version)
	}
	return nil
}
