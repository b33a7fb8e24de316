package pmu

import (
	"errors"
	"fmt"
	"math/bits"
	"os"
	"strings"

	"github.com/ripstop/ripstop/internal/perf"
	"github.com/ripstop/ripstop/internal/pt"
)

// ErrNoPMU says that a machine has not what mode pmu needs; the text says what is missing.
var ErrNoPMU = errors.New("sampling by the processor (--sample=pmu) is not possible here")

// A Range is code that control flow is to be traced in: an executable segment of a file.
type Range struct {
	Path         string
	Offset, Size uint64 // in the file, bytes
}

// A Plan is what is asked of the kernel for each thread.
type Plan struct {
	Events []perf.Event // Intel PT, then loads and stores of each kind of core
	PMUs   []perf.PMU
	Timing pt.Timing
	Filter string  // for PERF_EVENT_IOC_SET_FILTER of the first event; "": everywhere
	Left   []Range // that the hardware has no filters for
}

// memoryEvents are the events that count retired loads and stores with the address of their data (Intel SDM volume 3, 'Data Address Profiling'), by
// processor (perf's pmu-events/arch/x86/*/memory.json). On all of them their codes are the same; the names changed with Skylake.
var memoryEvents = []struct {
	names  string // with %s for loads or stores
	models []int  // of family 6
}{
	{"mem_uops_retired.all_%s", []int{
		0x3c, 0x3f, 0x45, 0x46, // Haswell: before it, not all loads had addresses
		0x3d, 0x47, 0x4f, 0x56, // Broadwell
		0x5c, 0x5f, 0x7a, 0x86, 0x96, 0x9c, 0xaf, 0xb6, 0xbe, // Goldmont, Goldmont Plus, Tremont, Gracemont, Crestmont
	}},
	{"mem_inst_retired.all_%s", []int{
		0x4e, 0x5e, 0x8e, 0x9e, 0xa5, 0xa6, 0x55, // Skylake to Comet Lake, Skylake-SP to Cooper Lake
		0x7d, 0x7e, 0x6a, 0x6c, 0x9d, 0xa7, 0x8c, 0x8d, // Ice Lake, Rocket Lake, Tiger Lake
		0x8f, 0xcf, 0xad, 0xae, // Sapphire, Emerald and Granite Rapids
		0x97, 0x9a, 0xb7, 0xba, 0xbf, 0xaa, 0xac, 0xb5, 0xbd, 0xc5, 0xc6, // Alder Lake to Arrow Lake
	}},
}

// Of other processors the kernel's own mem-loads and mem-stores are taken, which see some of the loads only.
const allLoads, allStores = 0x81d0, 0x82d0

// largePEBS are the parts of a sample that the processor's own buffer gives, so that several records come with one interrupt (arch/x86/events/perf_event.h,
// LARGE_PEBS_FLAGS; time since PEBS format 3). Any other part, a frequency instead of a period, or another clock make it one interrupt a record.
const largePEBS = perf.SampleIP | perf.SampleTID | perf.SampleAddr | perf.SampleID | perf.SampleCPU | perf.SampleStreamID | perf.SampleDataSrc |
	perf.SampleIdentifier | perf.SampleTransaction | perf.SamplePhysAddr | perf.SampleRegsIntr | perf.SampleRegsUser | perf.SamplePeriod | perf.SampleTime

// MakePlan says what to ask of a machine: loads and stores at a period, and Intel PT in some code (none: everywhere). It looks at nothing but its
// arguments. The error is ErrNoPMU, wrapped, with what is missing.
func MakePlan(p Processor, d Devices, period uint64, code []Range) (*Plan, error) {
	no := func(format string, args ...any) (*Plan, error) {
		return nil, fmt.Errorf("%w: %s", ErrNoPMU, fmt.Sprintf(format, args...))
	}
	cores := []*Device{}
	for _, name := range []string{"cpu", "cpu_core", "cpu_atom"} {
		if d[name] != nil {
			cores = append(cores, d[name])
		}
	}
	switch {
	case len(cores) == 0:
		return no("the kernel knows no PMU of the processor (no cpu in /sys/bus/event_source/devices); the hypervisor may not pass it on")
	case p.Vendor != "GenuineIntel":
		hint := ""
		if d["ibs_op"] != nil {
			hint = "; IBS, which this one has, samples operations but traces no control flow"
		}
		return no("it needs PEBS and Intel PT, and the processor is %s's%s", p.Vendor, hint)
	case d["intel_pt"] == nil:
		return no("there is no Intel PT (no intel_pt in /sys/bus/event_source/devices); processors before Broadwell and most virtual machines have none")
	}
	names := ""
	for _, e := range memoryEvents {
		for _, m := range e.models {
			if p.Family == 6 && m == p.Model {
				names = e.names
			}
		}
	}
	plan := &Plan{}
	flow, err := plan.flow(d["intel_pt"], code)
	if err != nil {
		return no("%v", err)
	}
	plan.Events, plan.PMUs = []perf.Event{flow}, []perf.PMU{{Type: flow.Attr.Type, Name: "intel_pt"}}
	for _, core := range cores {
		precise := min(int(number(core.Caps["max_precise"], 10)), 3)
		if precise < 2 {
			return no("%s has no precise events (caps/max_precise is %q): PEBS is off, or the hypervisor does not pass it on", core.Name, core.Caps["max_precise"])
		}
		plan.PMUs = append(plan.PMUs, perf.PMU{Type: core.Type, Name: core.Name})
		for _, e := range []struct {
			kind string
			code uint64
		}{{"loads", allLoads}, {"stores", allStores}} {
			name, config1 := fmt.Sprintf(names, e.kind), uint64(0)
			switch {
			case names == "":
				if name = "mem-" + e.kind; core.Events["mem-loads-aux"] == "" { // loads would need it for their group's leader
					if config, more, ok := core.named(name); ok {
						e.code, config1 = config, more
						break
					}
				}
				return no("it is not known which events of this processor (family %d, model %#x) count loads and stores with their addresses, and the kernel has no %s of %s", p.Family, p.Model, name, core.Name)
			case core.Name == "cpu_atom":
				name = fmt.Sprintf(memoryEvents[0].names, e.kind)
			}
			a := perf.Attr{
				Type: core.Type, Config: e.code, Config1: config1, SamplePeriod: period, SampleType: identity | perf.SampleAddr | perf.SampleRegsIntr, SampleRegsIntr: userRegisters,
				Flags: (perf.FlagDisabled | perf.FlagExcludeKernel | perf.FlagExcludeHV | perf.FlagSampleIDAll).WithPreciseIP(precise),
			}
			plan.Events = append(plan.Events, perf.Event{Attr: a, Name: fmt.Sprintf("%s/%s/u%s", core.Name, name, strings.Repeat("p", precise))})
		}
	}
	for i := range plan.Events {
		plan.Events[i].IDs = []uint64{uint64(i + 1)}
	}
	return plan, nil
}

// flow plans the Intel PT event.
func (plan *Plan) flow(d *Device, code []Range) (e perf.Event, err error) {
	e.Name = "intel_pt//u"
	e.Attr = perf.Attr{
		Type: d.Type, SamplePeriod: 1, SampleType: identity,
		Flags: perf.FlagDisabled | perf.FlagExcludeKernel | perf.FlagExcludeHV | perf.FlagSampleIDAll,
	}
	config := &e.Attr.Config
	if d.Format["pt"] != "" {
		d.set(config, "pt", 1)
	}
	if !d.set(config, "tsc", 1) {
		return e, errors.New("no time stamps in Intel PT here (no format/tsc)")
	}
	if d.Format["branch"] != "" {
		d.set(config, "branch", 1)
	}
	mul, div, _ := strings.Cut(d.Attrs["tsc_art_ratio"], ":")
	plan.Timing = pt.Timing{CrystalMul: uint32(number(mul, 10)), CrystalDiv: uint32(number(div, 10)), Nominal: uint8(number(d.Attrs["max_nonturbo_ratio"], 10))}
	if number(d.Caps["mtc"], 10) == 1 && plan.Timing.CrystalMul != 0 && plan.Timing.CrystalDiv != 0 {
		// A period of 2^3 ticks of the crystal, or the next longer one: a third of a microsecond.
		const wish = 3
		if periods := number(d.Caps["mtc_periods"], 16) >> wish << wish; periods != 0 {
			period := uint64(bits.TrailingZeros64(periods))
			if d.set(config, "mtc_period", period) && d.set(config, "mtc", 1) {
				plan.Timing.MTCFreq = uint8(period)
			}
		}
	}
	most := int(number(d.Attrs["nr_addr_filters"], 10))
	if len(code) == 0 || most == 0 {
		plan.Left = code
		return e, nil
	}
	n := min(most, len(code))
	plan.Left = code[n:]
	var filters []string
	for _, r := range code[:n] {
		if strings.ContainsAny(r.Path, ", \t\n") {
			return e, fmt.Errorf("a filter cannot name the file %q, because of the comma or space in it; use --filter=all", r.Path)
		}
		filters = append(filters, fmt.Sprintf("filter %#x/%#x@%s", r.Offset, r.Size, r.Path))
	}
	plan.Filter = strings.Join(filters, ",")
	return e, nil
}

// Here plans for this machine. The error is ErrNoPMU, wrapped, if it has not what mode pmu needs.
func Here(period uint64, code []Range) (*Plan, error) {
	devices, err := ReadDevices(os.DirFS("/sys/bus/event_source/devices"))
	if err != nil {
		return nil, fmt.Errorf("/sys/bus/event_source/devices: %w", err)
	}
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return nil, err
	}
	cpu, err := ParseCPUInfo(string(text))
	if err != nil {
		return nil, err
	}
	return MakePlan(cpu, devices, period, code)
}
