package pt

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// A perfFile is a perf.data file in the making (tools/perf/Documentation/perf.data-file-format.txt): one Intel PT event of one thread.
type perfFile struct{ data []byte }

const perfPMU, perfThread, perfID = 8, 4242, 77

func u32s(b []byte, values ...uint32) []byte {
	for _, v := range values {
		b = binary.LittleEndian.AppendUint32(b, v)
	}
	return b
}

func u64s(b []byte, values ...uint64) []byte {
	for _, v := range values {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	return b
}

// record adds a record; body ends with who, when and by which event if perf wants it.
func (f *perfFile) record(kind uint32, misc uint16, body []byte) {
	f.data = u32s(f.data, kind)
	f.data = binary.LittleEndian.AppendUint16(f.data, misc)
	f.data = binary.LittleEndian.AppendUint16(f.data, uint16(8+len(body)))
	f.data = append(f.data, body...)
}

func (f *perfFile) sampled(kind uint32, misc uint16, body []byte) {
	f.record(kind, misc, u64s(u32s(body, perfThread, perfThread), 1, perfID))
}

// file gives the whole: header, the event's attributes, its id, the records, and the trace as an AUX area, whose length must be in whole words.
func (f *perfFile) file(config uint64, trace []byte, reference uint64) []byte {
	const headSize, attrSize, auxTrace = 104, 128 + 16, 71
	const ipTidTimeIdentifier, userMmapCommSampleIDAllMmap2 = 1<<0 | 1<<1 | 1<<2 | 1<<16, 1<<5 | 1<<6 | 1<<8 | 1<<9 | 1<<18 | 1<<23
	f.record(auxTrace, 0, u32s(u64s(nil, uint64(len(trace)), 0, reference), 0, perfThread, 0xffffffff, 0))
	f.data = append(f.data, trace...)

	attr := u64s(u32s(nil, perfPMU, 128), config, 1, ipTidTimeIdentifier, 0, userMmapCommSampleIDAllMmap2)
	attr = append(attr, make([]byte, attrSize-16-len(attr))...)
	attr = u64s(attr, headSize+attrSize, 8, perfID)
	head := u64s([]byte("PERFILE2"), headSize, attrSize, headSize, attrSize, headSize+attrSize+8, uint64(len(f.data)), 0, 0, 0, 0, 0, 0)
	return append(append(head, attr...), f.data...)
}

// perfPackets is a file for perf to show the packets of.
func perfPackets(trace []byte) []byte {
	var f perfFile
	f.auxInfo(Timing{})
	return f.file(0, trace, 0)
}

// Bits of the event's config (/sys/bus/event_source/devices/intel_pt/format).
const perfCYC, perfMTC, perfTSC, perfNoRet, perfBranch, perfMTCFreqs = 1 << 1, 1 << 9, 1 << 10, 1 << 11, 1 << 13, 0xf << 14

func (f *perfFile) auxInfo(t Timing) {
	const kind, intelPT = 70, 1
	f.record(kind, 0, u64s(u32s(nil, intelPT, 0), perfPMU, 0, 1, 0, 1, perfTSC, perfNoRet, 0, 0, 0, perfMTC, perfMTCFreqs,
		uint64(t.CrystalMul), uint64(t.CrystalDiv), perfCYC, uint64(t.Nominal), 0))
}

// perfFlow is a file for perf to decode the instructions of: a program without libraries is mapped where its ELF file says.
func perfFlow(trace []byte, program string, t Timing) []byte {
	const comm, mmap2, itraceStart, user, readExec, private = 3, 10, 12, 2, 5, 2
	str := func(b []byte, s string) []byte { return append(append(b, s...), make([]byte, 8-len(s)%8)...) }
	var f perfFile
	f.auxInfo(t)
	f.sampled(comm, 0, str(u32s(nil, perfThread, perfThread), "walk"))
	where := u64s(u32s(nil, perfThread, perfThread), 0x400000, 0x100000, 0)
	f.sampled(mmap2, user, str(u32s(u64s(u32s(where, 8, 1), 1234, 0), readExec, private), program))
	f.sampled(itraceStart, 0, u32s(nil, perfThread, perfThread))
	return f.file(perfCYC|perfMTC|perfTSC|perfBranch|1|uint64(t.MTCFreq)<<14, trace, tsc(0))
}

// perfScript gives what perf script prints of a file.
func perfScript(t *testing.T, data []byte, args ...string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "perf.data")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("perf", append([]string{"script", "-f", "-i", file}, args...)...)
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("perf: %v\n%s", err, &stderr)
	}
	return string(out)
}

// perf, a third decoder, finds the same instructions in our traces, through signals and system calls.
func TestFlowAgainstPerf(t *testing.T) {
	exe := filepath.Join(t.TempDir(), "walk")
	if out, err := exec.Command("gcc", "-O2", "-static", "-no-pie", "-Wall", "-Wextra", "-Werror", "-o", exe, "testdata/walk.c").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	r := step(t, 400_000, exe)[0]
	for _, how := range []string{"timed", "all"} {
		trace := encode(t, r, encodings[how], tsc)
		for len(trace)%8 != 0 {
			trace = append(trace, layouts[PAD].header[0])
		}
		var ips []uint64
		for _, f := range strings.Fields(perfScript(t, perfFlow(trace, exe, testTiming), "--itrace=i1ie", "-F", "ip")) {
			ip, err := strconv.ParseUint(f, 16, 64)
			if err != nil {
				t.Fatalf("%s: perf printed %q", how, f)
			}
			ips = append(ips, ip)
		}
		if i, what := firstDifference(ips, r.ips); i >= 0 {
			t.Errorf("%s: perf: %s", how, what)
		}
		t.Logf("%s: %d instructions agree", how, len(ips))
	}
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
	out := perfScript(t, perfPackets(data), "-D")
	_, dump, ok := strings.Cut(out, "Intel Processor Trace data: size")
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
