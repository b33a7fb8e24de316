package pt

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// perfData wraps a trace into the smallest perf.data file in which perf finds it (tools/perf/Documentation/perf.data-file-format.txt).
func perfData(trace []byte) []byte {
	le := binary.LittleEndian
	u64 := func(b []byte, values ...uint64) []byte {
		for _, v := range values {
			b = le.AppendUint64(b, v)
		}
		return b
	}
	const headSize, attrSize, pmuType, sampleIDAll = 104, 128 + 16, 8, 1 << 18
	attr := le.AppendUint32(nil, pmuType)
	attr = le.AppendUint32(attr, 128)
	attr = u64(attr, 0, 1, 1, 0, sampleIDAll)
	attr = append(attr, make([]byte, attrSize-len(attr))...)

	record := func(b []byte, kind uint32, body []byte) []byte {
		b = le.AppendUint32(b, kind)
		b = le.AppendUint16(b, 0)
		b = le.AppendUint16(b, uint16(8+len(body)))
		return append(b, body...)
	}
	const auxInfo, auxTrace, intelPT, privs = 70, 71, 1, 17
	info := append(le.AppendUint32(le.AppendUint32(nil, intelPT), 0), u64(nil, make([]uint64, privs)...)...)
	le.PutUint64(info[8:], pmuType)
	data := record(nil, auxInfo, info)
	data = record(data, auxTrace, u64(nil, uint64(len(trace)), 0, 0, 1<<32, 0xffffffff))
	data = append(data, trace...)

	head := u64([]byte("PERFILE2"), headSize, attrSize, headSize, attrSize, headSize+attrSize, uint64(len(data)), 0, 0, 0, 0, 0, 0)
	return append(append(head, attr...), data...)
}

// perfLine is what perf says of a packet.
func perfLine(p *Packet) string {
	flag := 0
	if p.Flag {
		flag = 1
	}
	name := p.Kind.String()
	switch p.Kind {
	case TNT8, TNT64:
		return fmt.Sprintf("%s (%d)", strings.Replace(p.String(), ".64", "", 1), p.Form)
	case TIP, TIPPGE, TIPPGD, FUP:
		if p.Form == IPNone {
			return name + " no ip"
		}
	case ModeExec:
		return fmt.Sprintf("MODE.Exec IF:%d %d", p.Value>>2, [3]int{16, 64, 32}[p.Value&3])
	case ModeTSX:
		return fmt.Sprintf("MODE.TSX TXAbort:%d InTX:%d", p.Value>>1, p.Value&1)
	case PIP:
		return fmt.Sprintf("PIP %#x (NR=%d)", p.Value>>5, flag)
	case VMCS:
		return fmt.Sprintf("VMCS %#x", p.Value>>12)
	case TMA:
		return fmt.Sprintf("TMA CTC %#x FC %#x", p.Value, p.Extra)
	case PTW:
		return fmt.Sprintf("PTWRITE %#x IP:%d", p.Value, flag)
	case EXSTOP, BEP:
		return fmt.Sprintf("%s IP:%d", name, flag)
	case MWAIT:
		return fmt.Sprintf("MWAIT %#x Hints %#x Extensions %#x", uint64(p.Extra)<<32|p.Value, p.Value&0xff, p.Extra&3)
	case PWRE:
		return fmt.Sprintf("PWRE %#x HW:%d CState:%d Sub-CState:%d", p.Value<<8|uint64(flag)<<7, flag, p.Value>>4, p.Value&15)
	case PWRX:
		return fmt.Sprintf("PWRX %#x Last CState:%d Deepest CState:%d Wake Reason %#x", p.Value, p.Value>>4&15, p.Value&15, p.Value>>8)
	case BBP:
		return fmt.Sprintf("BBP SZ %d-byte Type %#x", 8-4*flag, p.Form)
	case BIP:
		return fmt.Sprintf("BIP ID 0x%02x Value %#x", p.Form, p.Value)
	case CFE:
		return fmt.Sprintf("CFE IP:%d Type 0x%02x Vector %#x", flag, p.Form, p.Value)
	case EVD:
		return fmt.Sprintf("EVD Type 0x%02x Payload %#x", p.Form, p.Value)
	case TraceStop:
		return "TraceSTOP"
	case PSB, PSBEND, OVF, PAD:
		return name
	}
	return fmt.Sprintf("%s %#x", name, p.Value)
}

// Linux's perf, which knows packets that libipt does not, prints what we decode: block items, control flow events, event data and all others
// but triggers. Modes that perf refuses are left out, and PADs, which it joins to what comes before.
func TestPacketsAgainstPerf(t *testing.T) {
	r := rand.New(rand.NewPCG(61, 62))
	_, data := randomStream(t, r, 6000, PAD, TRIG)
	packets, _ := decodeAll(data)
	var want []string
	data = data[:0]
	for i := range packets {
		p := &packets[i]
		if p.Kind == PAD || (p.Kind == ModeExec || p.Kind == ModeTSX) && p.Value&3 == 3 {
			continue
		}
		if p.Kind == CYC && p.Value>>32 != 0 {
			p.Value >>= 32
		}
		at := len(data)
		var err error
		if data, err = Append(data, p); err != nil {
			t.Fatal(err)
		}
		want = append(want, fmt.Sprintf("%x: % x: %s", at, data[at:], perfLine(p)))
	}
	for len(data)%8 != 0 { // an AUX area is whole words
		data = append(data, layouts[OVF].header...)
		data = append(data, layouts[TNT8].header[0]|0x06)
	}
	file := filepath.Join(t.TempDir(), "perf.data")
	if err := os.WriteFile(file, perfData(data), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("perf", "script", "-D", "-f", "-i", file)
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("perf: %v", err)
	}
	_, dump, ok := strings.Cut(string(out), "Intel Processor Trace data: size")
	if !ok {
		t.Fatalf("perf did not find the trace:\n%s", out)
	}
	var got []string
	for _, line := range strings.Split(dump, "\n")[1:] {
		if len(line) < 62 || line[0] != '.' {
			continue
		}
		offset, rest, _ := strings.Cut(line[3:], ":")
		if offset = strings.TrimLeft(offset, "0"); offset == "" {
			offset = "0"
		}
		got = append(got, fmt.Sprintf("%s: %s: %s", offset, strings.TrimSpace(rest[:49]), strings.TrimSpace(rest[49:])))
	}
	for i := range want {
		if i >= len(got) || got[i] != want[i] {
			t.Fatalf("packet %d: perf has %q, we have %q", i, got[min(i, len(got)-1)], want[i])
		}
	}
	t.Logf("%d packets agree", len(want))
}
