package perf

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
)

// sampleTypeNames are perf's, by bit.
var sampleTypeNames = strings.Fields("IP TID TIME ADDR READ CALLCHAIN ID CPU PERIOD STREAM_ID RAW BRANCH_STACK REGS_USER STACK_USER WEIGHT " +
	"DATA_SRC IDENTIFIER TRANSACTION REGS_INTR PHYS_ADDR AUX CGROUP DATA_PAGE_SIZE CODE_PAGE_SIZE WEIGHT_STRUCT")

var readFormatNames = strings.Fields("TOTAL_TIME_ENABLED TOTAL_TIME_RUNNING ID GROUP LOST")

// flagNames are perf's, by bit.
var flagNames = map[AttrFlags]string{FlagDisabled: "disabled", FlagInherit: "inherit", FlagPinned: "pinned", FlagInheritStat: "inherit_stat", FlagNoUserChain: "exclude_callchain_user",
	FlagExcludeKernel: "exclude_kernel",
	FlagExcludeHV:     "exclude_hv", FlagMmap: "mmap", FlagComm: "comm", FlagFreq: "freq", FlagEnableOnExec: "enable_on_exec", FlagTask: "task",
	FlagMmapData: "mmap_data", FlagSampleIDAll: "sample_id_all", FlagExcludeGuest: "exclude_guest", FlagMmap2: "mmap2", FlagCommExec: "comm_exec",
	FlagContextSwitch: "context_switch", FlagNamespaces: "namespaces", FlagKsymbol: "ksymbol", FlagBPFEvent: "bpf_event", FlagBuildID: "build_id"}

func named(v uint64, names []string) string {
	var all []string
	for i, n := range names {
		if v>>i&1 != 0 {
			all = append(all, n)
		}
	}
	return strings.Join(all, "|")
}

// sampleTypeNamed prints a sample type in perf's order.
func sampleTypeNamed(t SampleType) string {
	const odd = SampleWeight | SampleDataSrc | SampleIdentifier | SampleTransaction | SampleRegsIntr
	var all []string
	for _, part := range []SampleType{(SampleIdentifier - 1) &^ odd, SampleIdentifier, SampleRegsIntr, SampleDataSrc, SampleWeight, ^odd &^ (SampleIdentifier - 1)} {
		if s := named(uint64(t&part), sampleTypeNames); s != "" {
			all = append(all, s)
		}
	}
	return strings.Join(all, "|")
}

// headerLines says what a file's header says, in the words of perf report --header-only -I, a line each.
func headerLines(r *Reader) (lines []string) {
	i := &r.Info
	say := func(f Feature, format string, args ...any) {
		if i.Has.Has(f) {
			lines = append(lines, "# "+strings.TrimRight(fmt.Sprintf(format, args...), " "))
		}
	}
	say(FeatHostname, "hostname : %s", i.Hostname)
	say(FeatOSRelease, "os release : %s", i.OSRelease)
	say(FeatVersion, "perf version : %s", i.Version)
	say(FeatArch, "arch : %s", i.Arch)
	say(FeatNRCPUs, "nrcpus online : %d", i.CPUsOnline)
	say(FeatNRCPUs, "nrcpus avail : %d", i.CPUsAvail)
	say(FeatCPUDesc, "cpudesc : %s", i.CPUDesc)
	say(FeatCPUID, "cpuid : %s", i.CPUID)
	say(FeatTotalMem, "total memory : %d kB", i.TotalMem)
	say(FeatCmdline, "cmdline : %s", strings.Join(i.Cmdline, " "))
	for _, c := range i.Topology.Cores {
		say(FeatCPUTopology, "sibling sockets : %s", c)
	}
	for _, c := range i.Topology.Dies {
		say(FeatCPUTopology, "sibling dies    : %s", c)
	}
	for _, c := range i.Topology.Threads {
		say(FeatCPUTopology, "sibling threads : %s", c)
	}
	for k, c := range i.Topology.CPUs {
		if len(i.Topology.Dies) > 0 {
			say(FeatCPUTopology, "CPU %d: Core ID %d, Die ID %d, Socket ID %d", k, c.Core, c.Die, c.Socket)
		} else {
			say(FeatCPUTopology, "CPU %d: Core ID %d, Socket ID %d", k, c.Core, c.Socket)
		}
	}
	for _, n := range i.NUMA {
		say(FeatNUMATopology, "node%d meminfo  : total = %d kB, free = %d kB", n.Node, n.MemTotal, n.MemFree)
		say(FeatNUMATopology, "node%d cpu list : %s", n.Node, n.CPUs)
	}
	var pmus []string
	for _, p := range i.PMUs {
		pmus = append(pmus, fmt.Sprintf("%s = %d", p.Name, p.Type))
	}
	say(FeatPMUMappings, "pmu mappings: %s", strings.Join(pmus, ", "))
	for _, c := range i.Caches {
		say(FeatCache, " L%d %-15s %8s [%s]", c.Level, c.Kind, c.Size, c.CPUs)
	}
	say(FeatSampleTime, "time of first sample : %d.%06d", i.FirstSample/1e9, i.FirstSample%1e9/1e3)
	say(FeatSampleTime, "time of last sample : %d.%06d", i.LastSample/1e9, i.LastSample%1e9/1e3)
	say(FeatMemTopology, "memory nodes (nr %d, block size %#x):", len(i.MemNodes), i.MemBlock)
	for _, n := range i.MemNodes {
		var blocks []int
		for b := range int(n.Bits) {
			if n.Blocks[b/64]>>(b%64)&1 != 0 {
				blocks = append(blocks, b)
			}
		}
		say(FeatMemTopology, "  %2d [%dG]: %s", n.Node, uint64(len(blocks))*i.MemBlock>>30, list2(blocks))
	}
	say(FeatCompressed, "compressed : Zstd, level = %d, ratio = %d", i.Compression.Level, i.Compression.Ratio)
	caps := func(f Feature, pmu string, all []Cap) {
		var list []string
		for _, c := range all {
			list = append(list, c.Name+"="+c.Value)
		}
		say(f, "%s pmu capabilities: %s", pmu, strings.Join(list, ", "))
	}
	caps(FeatCPUPMUCaps, "cpu", i.CPUPMUCaps)
	for _, p := range i.PMUCaps {
		caps(FeatPMUCaps, p.PMU, p.Caps)
	}
	for _, e := range i.EventDescs {
		lines = append(lines, eventLine(&e))
	}
	return lines
}

func eventLine(e *Event) string {
	a := &e.Attr
	s := fmt.Sprintf("# event : name = %s,", e.Name)
	if len(e.IDs) > 0 {
		s += " , id = {"
		for i, id := range e.IDs {
			s += fmt.Sprintf("%s %d", map[bool]string{true: ","}[i > 0], id)
		}
		s += " }"
	} else {
		s += " " // perf has a second comma here
	}
	field := func(is bool, format string, args ...any) {
		if is {
			s += ", " + fmt.Sprintf(format, args...)
		}
	}
	field(a.Type != 0, "type = %d", a.Type)
	field(true, "size = %d", a.Size)
	field(a.Config != 0, "config = %#x", a.Config)
	field(a.SamplePeriod != 0, "{ sample_period, sample_freq } = %d", a.SamplePeriod)
	field(true, "sample_type = %s", sampleTypeNamed(a.SampleType))
	field(a.ReadFormat != 0, "read_format = %s", named(uint64(a.ReadFormat), readFormatNames))
	for bit := range 64 {
		if bit == preciseShift {
			field(a.Flags.PreciseIP() != 0, "precise_ip = %d", a.Flags.PreciseIP())
		}
		if f := AttrFlags(1) << bit; a.Flags&f != 0 && flagNames[f] != "" {
			field(true, "%s = 1", flagNames[f])
		}
	}
	field(a.Config1 != 0, "{ bp_addr, config1 } = %#x", a.Config1)
	field(a.BranchSampleType&8 != 0, "branch_sample_type = ANY")
	field(a.SampleRegsUser != 0, "sample_regs_user = %#x", a.SampleRegsUser)
	field(a.SampleStackUser != 0, "sample_stack_user = %d", a.SampleStackUser)
	field(a.SampleRegsIntr != 0, "sample_regs_intr = %#x", a.SampleRegsIntr)
	return s
}

// perfHeader gives the lines of perf about the features that headerLines can say.
func perfHeader(t *testing.T, name string) (lines []string) {
	out, err := tryPerf("report", "--header-only", "-I", "-f", "-i", name)
	if err != nil && !strings.Contains(name, "piped.intel_pt") {
		t.Fatal(err)
	}
	for line := range strings.Lines(out) {
		line = strings.TrimRight(line, " \n")
		for _, key := range []string{"hostname", "os release", "perf version", "arch", "nrcpus", "cpudesc", "cpuid", "total memory", "cmdline", "event :",
			"sibling", "CPU ", "node", "pmu mappings", " L", "time of", "memory nodes", "   ", "compressed", "cpu pmu", "intel_pt pmu"} {
			if strings.HasPrefix(line, "# "+key) && line != "# CPU cache info:" {
				lines = append(lines, line)
				break
			}
		}
	}
	return lines
}

var precise = regexp.MustCompile(", precise_ip = [123]")

// compareHeader compares what perf says of a file's header with ours. Of a big-endian file perf 6.1 turns the two bits of precise_ip around:
// it is not compared.
func compareHeader(t *testing.T, name string, r *Reader) {
	t.Helper()
	like := func(l string) string {
		if r.BigEndian {
			return precise.ReplaceAllString(l, "")
		}
		return l
	}
	ours, perfs := map[string]bool{}, map[string]bool{}
	for _, l := range headerLines(r) {
		// perf guesses where the numbers of the CPUs begin from strings padded to 64 bytes; the writer of this file did not pad them so.
		if !strings.HasPrefix(l, "# CPU ") || !strings.HasSuffix(name, "weight_struct") {
			ours[like(l)] = true
		}
	}
	for _, l := range perfHeader(t, name) {
		l = like(l)
		perfs[l] = true
		if !ours[l] {
			t.Errorf("%s: only perf says: %.600s", name, l)
		}
	}
	for l := range ours {
		if !perfs[l] {
			t.Errorf("%s: perf does not say: %.600s", name, l)
		}
	}
	if len(perfs) < 8 {
		t.Errorf("%s: perf says only %d lines of a header", name, len(perfs))
	}
}

// What the headers of the real files say, perf says too.
func TestHeadersAgainstPerf(t *testing.T) {
	for _, name := range captured(t) {
		file, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		r := open(t, file)
		all(t, r)
		compareHeader(t, name, r)
	}
}
