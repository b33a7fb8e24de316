package pt

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// A record is what testdata/oracle.c answers with.
type record struct {
	Offset                 uint64
	Status                 int32
	Kind, Form, Flag, Size uint8
	Extra, Count           uint32
	Value                  uint64
}

const recordBytes = 32

// libipt's error numbers.
const (
	pteBadOpcode = -4
	pteBadPacket = -5
	pteEOS       = -7
)

// An oracle is a running testdata/oracle.c.
type oracle struct {
	in  io.WriteCloser
	out *bufio.Reader
}

func newOracle(t testing.TB) *oracle {
	t.Helper()
	exe := filepath.Join(t.TempDir(), "oracle")
	out, err := exec.Command("gcc", "-O2", "-Wall", "-Wextra", "-Werror", "-o", exe, "testdata/oracle.c", "-lipt").CombinedOutput()
	if err != nil {
		t.Fatalf("the oracle needs gcc and libipt-dev (script/deps test installs them): %v\n%s", err, out)
	}
	cmd := exec.Command(exe)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("oracle: %v", err)
		}
	})
	return &oracle{in, bufio.NewReader(pipe)}
}

// ask sends a request and gives the answer.
func (o *oracle) ask(t testing.TB, what byte, data []byte) []record {
	t.Helper()
	head := binary.LittleEndian.AppendUint32([]byte{what}, uint32(len(data)))
	if _, err := o.in.Write(append(head, data...)); err != nil {
		t.Fatal(err)
	}
	var n uint32
	if err := binary.Read(o.out, binary.LittleEndian, &n); err != nil {
		t.Fatalf("the oracle died: %v", err)
	}
	b := make([]byte, int(n)*recordBytes)
	if _, err := io.ReadFull(o.out, b); err != nil {
		t.Fatal(err)
	}
	records := make([]record, n)
	for i := range records {
		if _, err := binary.Decode(b[i*recordBytes:], binary.LittleEndian, &records[i]); err != nil {
			t.Fatal(err)
		}
	}
	return records
}

// unknown are packets that libipt 2.0.5 does not know; it gives an error there.
var unknown = map[Kind]bool{BBP: true, BIP: true, BEP: true, CFE: true, EVD: true, TRIG: true}

// packetRecords is what the oracle should answer, by our decoder.
func packetRecords(t testing.TB, data []byte) (records []record) {
	d := NewDecoder(data, 0)
	for {
		r := record{Offset: d.Offset()}
		var p Packet
		err := d.Next(&p)
		var e *Error
		switch {
		case err == io.EOF:
			return records
		case errors.As(err, &e):
			r.Status = map[error]int32{ErrTruncated: pteEOS, ErrOpcode: pteBadOpcode, ErrPayload: pteBadPacket}[e.Err]
			if e.Offset != r.Offset || r.Status == 0 {
				t.Fatalf("%v at %#x", err, r.Offset)
			}
			if c := data[e.Offset:]; e.Err == ErrTruncated && (c[0] == layouts[TRIG].header[0] || c[0] == 2 && len(c) > 1 && unknown[extensions[c[1]]]) {
				r.Status = pteBadOpcode
			}
		case err != nil:
			t.Fatal(err)
		case unknown[p.Kind]:
			r.Status = pteBadOpcode
			d.pos, d.item = int(r.Offset), 0
		default:
			r.Status = int32(p.Len)
			r.Kind, r.Form, r.Size, r.Extra, r.Value = uint8(p.Kind), p.Form, p.Len, p.Extra, p.Value
			if p.Flag {
				r.Flag = 1
			}
			switch p.Kind { // bits that libipt 2.0.5 has no place for
			case ModeExec:
				r.Value &^= ExecIF
			case PWRX:
				r.Value &^= 1 << 9
			case PWRE:
				r.Flag = 0
			}
		}
		records = append(records, r)
		if r.Status < 0 && d.Sync() != nil {
			return records
		}
	}
}

func comparePackets(t *testing.T, o *oracle, name string, data []byte) int {
	t.Helper()
	want, got := o.ask(t, 'p', data), packetRecords(t, data)
	for i := range max(len(want), len(got)) {
		if i >= len(want) || i >= len(got) || want[i] != got[i] {
			show := func(list []record) string {
				if i >= len(list) {
					return "the end"
				}
				return fmt.Sprintf("%+v (%v)", list[i], Kind(list[i].Kind))
			}
			at := uint64(0)
			if i < len(got) {
				at = got[i].Offset
			}
			t.Fatalf("%s: packet %d: libipt has %s, we have %s; bytes % x", name, i, show(want), show(got), data[at:min(at+20, uint64(len(data)))])
		}
	}
	return len(want)
}

// Packets, offsets and errors are libipt's: on random packets, on what becomes of them when bits flip, bytes vanish and come, parts are
// repeated, and ends are cut off, and on random bytes.
func TestPacketsAgainstLibipt(t *testing.T) {
	o := newOracle(t)
	r := rand.New(rand.NewPCG(11, 12))
	records := 0
	for i := range rounds(300) {
		_, data := randomStream(t, r, 100, BBP, BIP, BEP, CFE, EVD, TRIG)
		records += comparePackets(t, o, fmt.Sprintf("stream %d", i), data)
		_, data = randomStream(t, r, 100)
		for m := range 20 {
			records += comparePackets(t, o, fmt.Sprintf("stream %d, mutation %d", i, m), mutate(r, data))
		}
		noise := make([]byte, r.IntN(200))
		for j := range noise {
			if noise[j] = byte(r.Uint32()); r.IntN(3) == 0 {
				noise[j] = 0x02
			}
		}
		records += comparePackets(t, o, fmt.Sprintf("noise %d", i), append(noise, psbPattern[:r.IntN(psbLen+1)]...))
	}
	t.Logf("%d packets and errors agree", records)
}

// mutate gives a damaged copy.
func mutate(r *rand.Rand, data []byte) []byte {
	b := append([]byte(nil), data...)
	for range 1 + r.IntN(4) {
		if len(b) < 2 {
			break
		}
		i := r.IntN(len(b))
		j := min(len(b), i+r.IntN(12))
		switch r.IntN(6) {
		case 0:
			b[i] ^= 1 << r.IntN(8)
		case 1:
			b[i] = byte(r.Uint32())
		case 2:
			b = append(b[:i], b[j:]...)
		case 3:
			b = append(b[:j:j], b[i:]...)
		case 4:
			b = append(b[:i:i], append([]byte(psbPattern)[r.IntN(psbLen):], b[i:]...)...)
		case 5:
			b = b[:i+1]
		}
	}
	return b
}

// bestTime gives the shortest of ten passes, in nanoseconds of CPU time.
func bestTime(f func()) uint64 {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	now := func() int64 {
		var ts unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts); err != nil {
			panic(err)
		}
		return ts.Nano()
	}
	best := int64(1 << 62)
	for range 10 {
		start := now()
		f()
		best = min(best, now()-start)
	}
	return uint64(best)
}

// BenchmarkPacketsToLibipt gives our time for packets as a ratio to libipt's on the same trace in the same run, of both the best.
func BenchmarkPacketsToLibipt(b *testing.B) {
	o := newOracle(b)
	data := mixedStream(b)
	for b.Loop() {
		theirs := o.ask(b, 't', data)[0].Value
		ours := bestTime(func() {
			d := NewDecoder(data, 0)
			var p Packet
			for d.Next(&p) == nil {
			}
		})
		b.ReportMetric(float64(ours)/float64(theirs), "ours/libipt")
		b.ReportMetric(float64(len(data))/float64(ours)*1e3, "MB/s")
	}
}
