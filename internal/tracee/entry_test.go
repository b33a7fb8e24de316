package tracee

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"os"
	"testing"
)

// Of this very process it is where its file says, and of bytes that end too early nothing.
func TestEntry(t *testing.T) {
	at, err := Entry(os.Getpid())
	f, ferr := elf.Open("/proc/self/exe")
	if err != nil || ferr != nil {
		t.Fatal(err, ferr)
	}
	defer f.Close()
	if at&0xfff != f.Entry&0xfff || at == 0 {
		t.Errorf("%#x, the file has %#x", at, f.Entry)
	}
	if _, err := Entry(1 << 30); err == nil {
		t.Error("a process that is not there has an entry")
	}
	var auxv []byte
	for _, v := range []uint64{3, 0x1000, 9, 0x2000, 0, 0} {
		auxv = binary.LittleEndian.AppendUint64(auxv, v)
	}
	for n := range len(auxv) + 1 {
		want := uint64(0)
		if n >= 32 {
			want = 0x2000
		}
		if got := entryOf(bytes.Clone(auxv[:n])); got != want {
			t.Errorf("%d bytes: %#x", n, got)
		}
	}
}

// Any bytes are read; what comes is one of their words.
func FuzzEntry(f *testing.F) {
	f.Add(binary.LittleEndian.AppendUint64([]byte{9, 0, 0, 0, 0, 0, 0, 0}, 0x2000))
	f.Fuzz(func(t *testing.T, b []byte) {
		if at := entryOf(b); at != 0 && !bytes.Contains(b, binary.LittleEndian.AppendUint64(nil, at)) {
			t.Errorf("%#x", at)
		}
	})
}
