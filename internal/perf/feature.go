package perf

import (
	"fmt"
	"math/bits"
)

// A Feature is one of the optional parts of the header (tools/perf/util/header.h). Info has what they say.
type Feature uint

// Features.
const (
	FeatTracingData    Feature = 1
	FeatBuildID        Feature = 2
	FeatHostname       Feature = 3
	FeatOSRelease      Feature = 4
	FeatVersion        Feature = 5
	FeatArch           Feature = 6
	FeatNRCPUs         Feature = 7
	FeatCPUDesc        Feature = 8
	FeatCPUID          Feature = 9
	FeatTotalMem       Feature = 10
	FeatCmdline        Feature = 11
	FeatEventDesc      Feature = 12
	FeatCPUTopology    Feature = 13
	FeatNUMATopology   Feature = 14
	FeatBranchStack    Feature = 15
	FeatPMUMappings    Feature = 16
	FeatGroupDesc      Feature = 17
	FeatAuxtrace       Feature = 18
	FeatStat           Feature = 19
	FeatCache          Feature = 20
	FeatSampleTime     Feature = 21
	FeatMemTopology    Feature = 22
	FeatClockID        Feature = 23
	FeatDirFormat      Feature = 24
	FeatBPFProgInfo    Feature = 25
	FeatBPFBTF         Feature = 26
	FeatCompressed     Feature = 27
	FeatCPUPMUCaps     Feature = 28
	FeatClockData      Feature = 29
	FeatHybridTopology Feature = 30
	FeatPMUCaps        Feature = 31

	featureCount = 256
)

// A FeatureSet is a set of features.
type FeatureSet [featureCount / 64]uint64

// Has says whether f is in the set.
func (s *FeatureSet) Has(f Feature) bool { return f < featureCount && s[f/64]>>(f%64)&1 != 0 }

// Add puts f into the set. Features from 256 on do not exist.
func (s *FeatureSet) Add(f Feature) { s[f/64] |= 1 << (f % 64) }

// All gives the features of the set in their order, which is that of their sections in a file.
func (s *FeatureSet) All() (all []Feature) {
	for i, w := range s {
		for ; w != 0; w &= w - 1 {
			all = append(all, Feature(64*i+bits.TrailingZeros64(w)))
		}
	}
	return all
}

// Info is what the features say. A field counts only if its feature is in Has.
type Info struct {
	Has          FeatureSet
	BuildIDs     []BuildID
	Hostname     string
	OSRelease    string
	Version      string // of perf
	Arch         string
	CPUsOnline   uint32
	CPUsAvail    uint32
	CPUDesc      string
	CPUID        string // vendor,family,model,stepping
	TotalMem     uint64 // KiB
	Cmdline      []string
	EventDescs   []Event
	Topology     CPUTopology
	NUMA         []NUMANode
	PMUs         []PMU
	Groups       []Group
	AuxIndex     []AuxIndexEntry
	Caches       []Cache
	FirstSample  uint64 // ns
	LastSample   uint64 // ns
	MemBlock     uint64 // bytes
	MemNodes     []MemNode
	ClockRes     uint64 // ns
	DirVersion   uint64
	Compression  Compression
	CPUPMUCaps   []Cap
	ClockData    ClockData
	Hybrid       []HybridPMU
	PMUCaps      []PMUCaps
	TracingData  []byte
	BPFProgInfo  []byte
	BPFBTF       []byte
	UnknownBytes map[Feature][]byte
}

// CPUTopology is which CPUs share what, as lists like "0-3", and the numbers of each CPU, as far as they are told.
type CPUTopology struct {
	Cores, Threads, Dies []string
	CPUs                 []CPUPlace // CPUsAvail of them, or none
}

// CPUPlace is where a CPU is. Die counts only if there are Dies.
type CPUPlace struct{ Core, Socket, Die uint32 }

// NUMANode is a node of memory; sizes in KiB.
type NUMANode struct {
	Node              uint32
	MemTotal, MemFree uint64
	CPUs              string
}

// PMU is a PMU and the number that attributes have for it.
type PMU struct {
	Type uint32
	Name string
}

// Group is a group of events: Members events from the event numbered Leader on.
type Group struct {
	Name            string
	Leader, Members uint32
}

// AuxIndexEntry is where in the file an AUXTRACE record is, and its size without the data that follows it.
type AuxIndexEntry struct{ Offset, Size uint64 }

// Cache is one of the caches.
type Cache struct {
	Level, LineSize, Sets, Ways uint32
	Kind, Size, CPUs            string
}

// MemNode is which blocks of memory a node has: a bitmap of Bits bits.
type MemNode struct {
	Node, Size uint64
	Bits       uint64
	Blocks     []uint64
}

// Compression is how COMPRESSED records were made. Kind 1 is Zstandard.
type Compression struct{ Version, Kind, Level, Ratio, MmapLen uint32 }

// Cap is a property of a PMU.
type Cap struct{ Name, Value string }

// PMUCaps are the properties of a PMU.
type PMUCaps struct {
	Caps []Cap
	PMU  string
}

// ClockData joins the clock of the events with the time of day, in ns.
type ClockData struct {
	ClockID            uint32
	TimeOfDay, ClockNS uint64
}

// HybridPMU is which CPUs have a PMU.
type HybridPMU struct{ PMU, CPUs string }

// features is each feature's name, as perf prints it, and its layout. One without a layout has no contents, or none that is known.
var features = [featureCount]struct {
	name   string
	layout func(*Info, *codec)
}{
	FeatTracingData:    {"TRACING_DATA", func(i *Info, c *codec) { c.restBytes(&i.TracingData) }},
	FeatBuildID:        {"BUILD_ID", (*Info).buildIDs},
	FeatHostname:       {"HOSTNAME", func(i *Info, c *codec) { c.headerString(&i.Hostname) }},
	FeatOSRelease:      {"OSRELEASE", func(i *Info, c *codec) { c.headerString(&i.OSRelease) }},
	FeatVersion:        {"VERSION", func(i *Info, c *codec) { c.headerString(&i.Version) }},
	FeatArch:           {"ARCH", func(i *Info, c *codec) { c.headerString(&i.Arch) }},
	FeatNRCPUs:         {"NRCPUS", func(i *Info, c *codec) { c.u32(&i.CPUsAvail); c.u32(&i.CPUsOnline) }},
	FeatCPUDesc:        {"CPUDESC", func(i *Info, c *codec) { c.headerString(&i.CPUDesc) }},
	FeatCPUID:          {"CPUID", func(i *Info, c *codec) { c.headerString(&i.CPUID) }},
	FeatTotalMem:       {"TOTAL_MEM", func(i *Info, c *codec) { c.u64(&i.TotalMem) }},
	FeatCmdline:        {"CMDLINE", func(i *Info, c *codec) { c.strings(&i.Cmdline) }},
	FeatEventDesc:      {"EVENT_DESC", (*Info).eventDescs},
	FeatCPUTopology:    {"CPU_TOPOLOGY", (*Info).topology},
	FeatNUMATopology:   {"NUMA_TOPOLOGY", (*Info).numa},
	FeatBranchStack:    {"BRANCH_STACK", nil},
	FeatPMUMappings:    {"PMU_MAPPINGS", (*Info).pmus},
	FeatGroupDesc:      {"GROUP_DESC", (*Info).groups},
	FeatAuxtrace:       {"AUXTRACE", (*Info).auxIndex},
	FeatStat:           {"STAT", nil},
	FeatCache:          {"CACHE", (*Info).caches},
	FeatSampleTime:     {"SAMPLE_TIME", func(i *Info, c *codec) { c.u64(&i.FirstSample); c.u64(&i.LastSample) }},
	FeatMemTopology:    {"MEM_TOPOLOGY", (*Info).memory},
	FeatClockID:        {"CLOCKID", func(i *Info, c *codec) { c.u64(&i.ClockRes) }},
	FeatDirFormat:      {"DIR_FORMAT", func(i *Info, c *codec) { c.u64(&i.DirVersion) }},
	FeatBPFProgInfo:    {"BPF_PROG_INFO", func(i *Info, c *codec) { c.restBytes(&i.BPFProgInfo) }},
	FeatBPFBTF:         {"BPF_BTF", func(i *Info, c *codec) { c.restBytes(&i.BPFBTF) }},
	FeatCompressed:     {"COMPRESSED", (*Info).compression},
	FeatCPUPMUCaps:     {"CPU_PMU_CAPS", func(i *Info, c *codec) { c.caps(&i.CPUPMUCaps) }},
	FeatClockData:      {"CLOCK_DATA", (*Info).clockData},
	FeatHybridTopology: {"HYBRID_TOPOLOGY", (*Info).hybrid},
	FeatPMUCaps:        {"PMU_CAPS", (*Info).pmuCaps},
}

func (f Feature) String() string {
	if f < featureCount && features[f].name != "" {
		return features[f].name
	}
	return fmt.Sprintf("feature %d", uint(f))
}

// feature reads or writes the contents of one feature.
func (i *Info) feature(f Feature, c *codec) {
	switch {
	case features[f].layout != nil:
		features[f].layout(i, c)
	case features[f].name != "":
	case c.write:
		c.b = append(c.b, i.UnknownBytes[f]...)
	default:
		if i.UnknownBytes == nil {
			i.UnknownBytes = map[Feature][]byte{}
		}
		i.UnknownBytes[f] = c.take(c.rest())
	}
}

// buildIDs is records BUILD_ID one after the other. Old versions of perf wrote their type as 0.
func (i *Info) buildIDs(c *codec) {
	if c.write {
		for k := range i.BuildIDs {
			b, err := appendRecord(c.b, c.order, nil, i.BuildIDs[k].Misc, &i.BuildIDs[k], nil)
			if err != nil {
				c.fail(err, "build-id %d", k)
				return
			}
			c.b = b
		}
		return
	}
	i.BuildIDs = nil
	for c.rest() >= headerSize && c.err == nil {
		size := int(c.order.Uint16(c.b[c.pos+6:]))
		if size < headerSize {
			c.fail(ErrSize, "a build-id's record of %d bytes", size)
			return
		}
		whole := c.take(size)
		if c.err != nil {
			return
		}
		sub := codec{order: c.order, b: whole[headerSize:], misc: Misc(c.order.Uint16(whole[4:]))}
		var id BuildID
		if id.fields(&sub); sub.err != nil {
			c.fail(sub.err, "build-id %d", len(i.BuildIDs))
			return
		}
		i.BuildIDs = append(i.BuildIDs, id)
	}
}

func (i *Info) eventDescs(c *codec) {
	n := c.count32(len(i.EventDescs))
	size := attrSize(i.EventDescs)
	c.u32(&size)
	list(c, &i.EventDescs, n, attrSizeMin, func(e *Event) {
		e.Attr.fields(c, int(size))
		ids := c.count32(len(e.IDs))
		c.headerString(&e.Name)
		c.u64s(&e.IDs, ids)
	})
}

func (i *Info) topology(c *codec) {
	t := &i.Topology
	c.strings(&t.Cores)
	c.strings(&t.Threads)
	n := int(i.CPUsAvail)
	if c.write && len(t.CPUs) != 0 && len(t.CPUs) != n {
		c.fail(ErrContents, "places of %d of %d CPUs", len(t.CPUs), n)
		return
	}
	if c.write && len(t.CPUs) == 0 || !c.more(8*max(1, n)) {
		return
	}
	list(c, &t.CPUs, n, 8, func(p *CPUPlace) { c.u32(&p.Core); c.u32(&p.Socket) })
	if c.write && len(t.Dies) == 0 || !c.more(8) { // less than 8 bytes may be padding
		return
	}
	c.strings(&t.Dies)
	for k := range t.CPUs {
		c.u32(&t.CPUs[k].Die)
	}
}

func (i *Info) numa(c *codec) {
	list(c, &i.NUMA, c.count32(len(i.NUMA)), 24, func(n *NUMANode) {
		c.u32(&n.Node)
		c.u64(&n.MemTotal)
		c.u64(&n.MemFree)
		c.headerString(&n.CPUs)
	})
}

func (i *Info) pmus(c *codec) {
	list(c, &i.PMUs, c.count32(len(i.PMUs)), 8, func(p *PMU) { c.u32(&p.Type); c.headerString(&p.Name) })
}

func (i *Info) groups(c *codec) {
	list(c, &i.Groups, c.count32(len(i.Groups)), 12, func(g *Group) {
		c.headerString(&g.Name)
		c.u32(&g.Leader)
		c.u32(&g.Members)
	})
}

func (i *Info) auxIndex(c *codec) {
	list(c, &i.AuxIndex, c.count64(len(i.AuxIndex)), 16, func(e *AuxIndexEntry) { c.u64(&e.Offset); c.u64(&e.Size) })
}

// version is the number 1 in front of a layout.
func (c *codec) version(v uint64) {
	if !c.write && c.err == nil && v != 1 {
		c.fail(ErrContents, "version %d, only 1 is known", v)
	}
}

func (i *Info) caches(c *codec) {
	v := uint32(1)
	c.u32(&v)
	c.version(uint64(v))
	list(c, &i.Caches, c.count32(len(i.Caches)), 28, func(k *Cache) {
		c.u32(&k.Level)
		c.u32(&k.LineSize)
		c.u32(&k.Sets)
		c.u32(&k.Ways)
		c.headerString(&k.Kind)
		c.headerString(&k.Size)
		c.headerString(&k.CPUs)
	})
}

func (i *Info) memory(c *codec) {
	v := uint64(1)
	c.u64(&v)
	c.version(v)
	c.u64(&i.MemBlock)
	list(c, &i.MemNodes, c.count64(len(i.MemNodes)), 24, func(n *MemNode) {
		c.u64(&n.Node)
		c.u64(&n.Size)
		c.u64(&n.Bits)
		words := n.Bits / 64
		if n.Bits%64 != 0 {
			words++
		}
		if c.write && uint64(len(n.Blocks)) != words {
			c.fail(ErrContents, "%d words for %d bits", len(n.Blocks), n.Bits)
			return
		}
		c.u64s(&n.Blocks, int(words))
	})
}

func (i *Info) compression(c *codec) {
	for _, p := range []*uint32{&i.Compression.Version, &i.Compression.Kind, &i.Compression.Level, &i.Compression.Ratio, &i.Compression.MmapLen} {
		c.u32(p)
	}
}

func (c *codec) caps(p *[]Cap) {
	list(c, p, c.count32(len(*p)), 8, func(k *Cap) { c.headerString(&k.Name); c.headerString(&k.Value) })
}

func (i *Info) clockData(c *codec) {
	v := uint32(1)
	c.u32(&v)
	c.version(uint64(v))
	c.u32(&i.ClockData.ClockID)
	c.u64(&i.ClockData.TimeOfDay)
	c.u64(&i.ClockData.ClockNS)
}

func (i *Info) hybrid(c *codec) {
	list(c, &i.Hybrid, c.count32(len(i.Hybrid)), 8, func(h *HybridPMU) { c.headerString(&h.PMU); c.headerString(&h.CPUs) })
}

func (i *Info) pmuCaps(c *codec) {
	list(c, &i.PMUCaps, c.count32(len(i.PMUCaps)), 8, func(p *PMUCaps) { c.caps(&p.Caps); c.headerString(&p.PMU) })
}
