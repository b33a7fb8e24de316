package pmu

import (
	"errors"
	"io/fs"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/ripstop/ripstop/internal/perf"
)

// iceLake is /sys/bus/event_source/devices of an Ice Lake server, as far as it matters.
var iceLake = map[string]string{
	"cpu/type": "4", "cpu/caps/max_precise": "3", "cpu/caps/pmu_name": "icelake", "cpu/format/event": "config:0-7", "cpu/format/umask": "config:8-15",
	"intel_pt/type": "8", "intel_pt/nr_addr_filters": "2", "intel_pt/max_nonturbo_ratio": "24", "intel_pt/tsc_art_ratio": "96:1",
	"intel_pt/caps/mtc": "1", "intel_pt/caps/mtc_periods": "249", "intel_pt/caps/psb_cyc": "1", "intel_pt/caps/num_address_ranges": "2", "intel_pt/caps/ip_filtering": "1",
	"intel_pt/format/pt": "config:0", "intel_pt/format/cyc": "config:1", "intel_pt/format/mtc": "config:9", "intel_pt/format/tsc": "config:10",
	"intel_pt/format/noretcomp": "config:11", "intel_pt/format/branch": "config:13", "intel_pt/format/mtc_period": "config:14-17",
	"uncore_imc_0/type": "17",
}

var server = Processor{Vendor: "GenuineIntel", Family: 6, Model: 0x6a}

// devices makes a tree with changes; an empty value removes a file.
func devices(t *testing.T, changes map[string]string) Devices {
	t.Helper()
	files := maps.Clone(iceLake)
	maps.Copy(files, changes)
	tree := fstest.MapFS{}
	for name, text := range files {
		if text != "" {
			tree[name] = &fstest.MapFile{Data: []byte(text + "\n")}
		}
	}
	d, err := ReadDevices(tree)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// A plan asks for what the machine has, in a form that the processor buffers many records of.
func TestPlan(t *testing.T) {
	code := []Range{{"/bin/prog", 0x1000, 0x5000}}
	p, err := MakePlan(server, devices(t, nil), 10_000, code)
	if err != nil {
		t.Fatal(err)
	}
	flow := p.Events[0]
	if flow.Attr.Type != 8 || flow.Attr.Config != 1|1<<9|1<<10|1<<13|3<<14 || p.Timing.MTCFreq != 3 || p.Timing.CrystalMul != 96 || p.Timing.Nominal != 24 {
		t.Errorf("Intel PT: %+v, %+v", flow.Attr, p.Timing)
	}
	if p.Filter != "filter 0x1000/0x5000@/bin/prog" || len(p.Left) != 0 {
		t.Errorf("filter %q, left %v", p.Filter, p.Left)
	}
	if len(p.Events) != 3 || p.Events[1].Name != "cpu/mem_inst_retired.all_loads/uppp" || p.Events[2].Name != "cpu/mem_inst_retired.all_stores/uppp" {
		t.Fatalf("%+v", p.Events)
	}
	for i, e := range p.Events[1:] {
		a := e.Attr
		if a.Type != 4 || a.Config != []uint64{0x81d0, 0x82d0}[i] || a.SamplePeriod != 10_000 || a.Flags.PreciseIP() != 3 {
			t.Errorf("%s: %+v", e.Name, a)
		}
		if a.SampleType&^largePEBS != 0 || a.Flags&(perf.FlagFreq|perf.FlagUseClockID|perf.FlagInherit) != 0 || a.WakeupEvents != 0 {
			t.Errorf("%s: one interrupt a record: sample type %#x, flags %#x", e.Name, a.SampleType, a.Flags)
		}
		if a.SampleType&(perf.SampleAddr|perf.SampleRegsIntr|perf.SampleTime) != perf.SampleAddr|perf.SampleRegsIntr|perf.SampleTime {
			t.Errorf("%s: sample type %#x", e.Name, a.SampleType)
		}
	}
}

// machines are the trees of other processors, as changes to iceLake's: what the kernel's drivers (arch/x86/events/intel/core.c and pt.c) make of each.
var machines = []struct {
	name    string
	cpu     Processor
	changes map[string]string
	cores   []string // with loads and stores
	events  string   // of the last
	config  uint64   // of Intel PT
	mtc     uint8
	filters int
}{
	{"Broadwell", Processor{"GenuineIntel", 6, 0x4f}, map[string]string{
		"cpu/caps/pmu_name": "broadwell", "cpu/events/mem-loads": "event=0xcd,umask=0x1,ldlat=3", "cpu/events/mem-stores": "event=0xd0,umask=0x82", "cpu/format/ldlat": "config1:0-15",
		"intel_pt/nr_addr_filters": "", "intel_pt/caps/mtc": "0", "intel_pt/caps/mtc_periods": "0", "intel_pt/caps/psb_cyc": "0", "intel_pt/format/cyc": "", "intel_pt/format/mtc": "",
		"intel_pt/format/mtc_period": "", "intel_pt/format/pt": "", "intel_pt/format/branch": "", "intel_pt/tsc_art_ratio": "",
	}, []string{"cpu"}, "mem_uops_retired", 1 << 10, 0, 0},
	{"Skylake client", Processor{"GenuineIntel", 6, 0x5e}, map[string]string{
		"cpu/caps/pmu_name": "skylake", "intel_pt/tsc_art_ratio": "292:2", "intel_pt/max_nonturbo_ratio": "35", "intel_pt/caps/mtc_periods": "249",
	}, []string{"cpu"}, "mem_inst_retired", 1 | 1<<9 | 1<<10 | 1<<13 | 3<<14, 3, 2},
	{"Sapphire Rapids", Processor{"GenuineIntel", 6, 0x8f}, map[string]string{
		"cpu/caps/pmu_name": "sapphire_rapids", "cpu/events/mem-loads": "event=0xcd,umask=0x1,ldlat=3", "cpu/events/mem-loads-aux": "event=0x03,umask=0x82",
		"cpu/events/mem-stores": "event=0xcd,umask=0x2", "cpu/format/ldlat": "config1:0-15", "cpu/caps/branches": "32",
		"intel_pt/format/event": "config:31", "intel_pt/format/notnt": "config:55", "intel_pt/format/fup_on_ptw": "config:5", "intel_pt/caps/tnt_disable": "1",
	}, []string{"cpu"}, "mem_inst_retired", 1 | 1<<9 | 1<<10 | 1<<13 | 3<<14, 3, 2},
	{"Alder Lake", Processor{"GenuineIntel", 6, 0x9a}, map[string]string{
		"cpu/type": "", "cpu/caps/max_precise": "", "cpu/caps/pmu_name": "", "cpu/format/event": "", "cpu/format/umask": "",
		"cpu_core/type": "4", "cpu_core/cpus": "0-11", "cpu_core/caps/max_precise": "3", "cpu_core/caps/pmu_name": "alderlake_hybrid", "cpu_core/events/mem-loads": "event=0xcd,umask=0x1,ldlat=3",
		"cpu_core/events/mem-loads-aux": "event=0x03,umask=0x82", "cpu_core/events/mem-stores": "event=0xcd,umask=0x2",
		"cpu_atom/type": "10", "cpu_atom/cpus": "12-19", "cpu_atom/caps/max_precise": "3", "cpu_atom/caps/pmu_name": "alderlake_hybrid", "cpu_atom/events/mem-loads": "event=0xd0,umask=0x5,ldlat=3",
		"cpu_atom/events/mem-stores": "event=0xd0,umask=0x6",
	}, []string{"cpu_core", "cpu_atom"}, "mem_uops_retired", 1 | 1<<9 | 1<<10 | 1<<13 | 3<<14, 3, 2},
	{"Alder Lake-N, no large cores", Processor{"GenuineIntel", 6, 0xbe}, map[string]string{"cpu/caps/pmu_name": "gracemont"},
		[]string{"cpu"}, "mem_uops_retired", 1 | 1<<9 | 1<<10 | 1<<13 | 3<<14, 3, 2},
	{"one of tomorrow", Processor{"GenuineIntel", 19, 1}, map[string]string{
		"cpu/caps/pmu_name": "tomorrow", "cpu/events/mem-loads": "event=0xcd,umask=0x1,ldlat=3", "cpu/events/mem-stores": "event=0xd0,umask=0x82", "cpu/format/ldlat": "config1:0-15",
		"intel_pt/nr_addr_filters": "4",
	}, []string{"cpu"}, "mem-", 1 | 1<<9 | 1<<10 | 1<<13 | 3<<14, 3, 4},
}

// What is asked of machines of several years, from what their kernels show.
func TestMachines(t *testing.T) {
	var code []Range
	for i := range uint64(5) {
		code = append(code, Range{"/bin/prog", i << 20, 0x1000})
	}
	for _, m := range machines {
		p, err := MakePlan(m.cpu, devices(t, m.changes), 1000, code)
		if err != nil {
			t.Errorf("%s: %v", m.name, err)
			continue
		}
		if got := p.Events[0].Attr.Config; got != m.config || p.Timing.MTCFreq != m.mtc {
			t.Errorf("%s: Intel PT's config is %#x, its MTC period %d", m.name, got, p.Timing.MTCFreq)
		}
		if n := strings.Count(p.Filter, "@"); n != m.filters || len(p.Left) != len(code)-n && n > 0 {
			t.Errorf("%s: filter %q, left %v", m.name, p.Filter, p.Left)
		}
		if len(p.Events) != 1+2*len(m.cores) {
			t.Fatalf("%s: %d events", m.name, len(p.Events))
		}
		for i, e := range p.Events[1:] {
			if !strings.HasPrefix(e.Name, m.cores[i/2]+"/mem") || i/2 == len(m.cores)-1 && !strings.Contains(e.Name, m.events) || e.Attr.Flags.PreciseIP() != 3 {
				t.Errorf("%s: event %q", m.name, e.Name)
			}
			if strings.Contains(e.Name, "load") != (i%2 == 0) || strings.Contains(e.Name, "store") != (i%2 == 1) { // package sample goes by that
				t.Errorf("%s: event %d is %q", m.name, i, e.Name)
			}
		}
	}
	last := machines[len(machines)-1]
	p, _ := MakePlan(last.cpu, devices(t, last.changes), 1000, nil)
	if a, b := p.Events[1].Attr, p.Events[2].Attr; a.Config != 0x1cd || a.Config1 != 3 || b.Config != 0x82d0 || b.Config1 != 0 {
		t.Errorf("the kernel's own events: %#x, %#x; %#x, %#x", a.Config, a.Config1, b.Config, b.Config1)
	}
}

// What a machine lacks is left out where it can be, and told where it cannot.
func TestPlanOfOtherMachines(t *testing.T) {
	haswell := Processor{"GenuineIntel", 6, 0x3c}
	for _, c := range []struct {
		name    string
		cpu     Processor
		changes map[string]string
		check   func(*Plan) bool
	}{
		{"old names", haswell, nil, func(p *Plan) bool { return p.Events[1].Name == "cpu/mem_uops_retired.all_loads/uppp" }},
		{"a longer period of MTC alone", server, map[string]string{"intel_pt/caps/mtc_periods": "241"}, func(p *Plan) bool { return p.Timing.MTCFreq == 6 }},
		{"no MTC", server, map[string]string{"intel_pt/caps/mtc": "0"}, func(p *Plan) bool { return p.Events[0].Attr.Config == 1|1<<10|1<<13 && p.Timing.MTCFreq == 0 }},
		{"no crystal ratio", server, map[string]string{"intel_pt/tsc_art_ratio": ""}, func(p *Plan) bool { return p.Events[0].Attr.Config&(1<<9) == 0 }},
		{"Broadwell's format", server, map[string]string{"intel_pt/format/pt": "", "intel_pt/format/branch": ""}, func(p *Plan) bool { return p.Events[0].Attr.Config&(1|1<<13) == 0 }},
		{"no filters", server, map[string]string{"intel_pt/nr_addr_filters": "0"}, func(p *Plan) bool { return p.Filter == "" && len(p.Left) == 3 }},
		{"one filter", server, map[string]string{"intel_pt/nr_addr_filters": "1"}, func(p *Plan) bool {
			return p.Filter == "filter 0x1000/0x10@/a" && len(p.Left) == 2 && p.Left[0].Path == "/b"
		}},
		{"less precise", server, map[string]string{"cpu/caps/max_precise": "2"}, func(p *Plan) bool { return p.Events[1].Attr.Flags.PreciseIP() == 2 }},
		{"two kinds of cores", Processor{"GenuineIntel", 6, 0x97}, map[string]string{
			"cpu/type": "", "cpu_core/type": "4", "cpu_core/caps/max_precise": "3", "cpu_atom/type": "10", "cpu_atom/caps/max_precise": "3",
		}, func(p *Plan) bool {
			return len(p.Events) == 5 && p.Events[3].Attr.Type == 10 && p.Events[3].Name == "cpu_atom/mem_uops_retired.all_loads/uppp"
		}},
	} {
		p, err := MakePlan(c.cpu, devices(t, c.changes), 1000, []Range{{"/a", 0x1000, 0x10}, {"/b", 0x2000, 0x20}, {"/c", 0, 0x30}})
		if err != nil || !c.check(p) {
			t.Errorf("%s: %v, %+v", c.name, err, p)
		}
	}
	for _, c := range []struct {
		name, want string
		cpu        Processor
		changes    map[string]string
	}{
		{"a virtual machine", "hypervisor", server, map[string]string{"cpu/type": "", "intel_pt/type": ""}},
		{"AMD", "IBS", Processor{"AuthenticAMD", 25, 1}, map[string]string{"ibs_op/type": "11"}},
		{"no PT", "intel_pt", server, map[string]string{"intel_pt/type": ""}},
		{"no PEBS", "max_precise", server, map[string]string{"cpu/caps/max_precise": "0"}},
		{"no caps", "max_precise", server, map[string]string{"cpu/caps/max_precise": ""}},
		{"Ivy Bridge", "model 0x3a", Processor{"GenuineIntel", 6, 0x3a}, nil},
		{"unknown, and the kernel's loads need a leader", "model 0x1)", Processor{"GenuineIntel", 19, 1}, map[string]string{
			"cpu/events/mem-loads": "event=0xcd,umask=0x1,ldlat=3", "cpu/events/mem-loads-aux": "event=0x03,umask=0x82", "cpu/events/mem-stores": "event=0xcd,umask=0x2", "cpu/format/ldlat": "config1:0-15"}},
		{"unknown, and the kernel's loads have a setting that is none", "mem-loads", Processor{"GenuineIntel", 19, 1}, map[string]string{"cpu/events/mem-loads": "event=0xcd,umask=0x1,ldlat=3"}},
		{"no time", "time stamps", server, map[string]string{"intel_pt/format/tsc": ""}},
	} {
		if _, err := MakePlan(c.cpu, devices(t, c.changes), 1000, nil); !errors.Is(err, ErrNoPMU) || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	if _, err := MakePlan(server, devices(t, nil), 1000, []Range{{"/a b", 0, 1}}); err == nil || !strings.Contains(err.Error(), "/a b") {
		t.Errorf("a name with a space: %v", err)
	}
}

// Trees that are not as they should be give errors or lack what they lack, whatever is in them.
func FuzzDevices(f *testing.F) {
	for name, text := range iceLake {
		f.Add(name, text)
		f.Add(name, "x")
	}
	f.Add("intel_pt/format/mtc_period", "config:60-99")
	f.Add("cpu/events/mem-loads", "event=0xcd,umask=0x1,ldlat=3")
	f.Add("intel_pt/format/tsc", "config:-1")
	f.Fuzz(func(t *testing.T, name, text string) {
		if !fs.ValidPath(name) {
			return
		}
		tree := fstest.MapFS{}
		for n, s := range iceLake {
			tree[n] = &fstest.MapFile{Data: []byte(s)}
		}
		tree[name] = &fstest.MapFile{Data: []byte(text)}
		d, err := ReadDevices(tree)
		if err != nil {
			return
		}
		if p, err := MakePlan(server, d, 1000, []Range{{"/a", 0, 1}}); err == nil && len(p.Events) < 3 {
			t.Errorf("%+v", p)
		}
	})
}

// This machine's processor can be told.
func TestCPUInfo(t *testing.T) {
	b, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		t.Fatal(err)
	}
	p, err := ParseCPUInfo(string(b))
	if err != nil || p.Vendor == "" || p.Family == 0 {
		t.Errorf("%+v, %v", p, err)
	}
	if _, err := ParseCPUInfo("cpu family\t: many\n"); err == nil {
		t.Error("many")
	}
}

func TestParseCPUs(t *testing.T) {
	for text, want := range map[string][]int{"0": {0}, "0-3": {0, 1, 2, 3}, "0-1,4,6-7": {0, 1, 4, 6, 7}} {
		if got, err := parseCPUs(text); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "x", "3-1", "0-", "-1", "0,,1", "70000"} {
		if _, err := parseCPUs(text); err == nil {
			t.Errorf("%q is taken", text)
		}
	}
}

// The purse lets no more be spent than was earned, and keeps no more than a second's. Who has stopped begins again with a little in it.
func TestPurse(t *testing.T) {
	p := purse{share: 0.02}
	p.earn(10)
	if p.left != 0.02 {
		t.Errorf("after a long time %v is left", p.left)
	}
	p.spend(0.019)
	if !p.full(false) {
		t.Error("the limit is not where it should be")
	}
	p.spend(0.002)
	if p.full(false) || p.full(true) {
		t.Error("there is no limit")
	}
	p.earn(0.04)
	if p.full(false) {
		t.Error("too early")
	}
	p.earn(0.02)
	if !p.full(false) || p.full(true) || p.cost() != 0.0021 {
		t.Errorf("left %v, cost %v", p.left, p.cost())
	}
	p.earn(0.05)
	if !p.full(true) {
		t.Errorf("left %v, and it does not go on", p.left)
	}
	free := purse{}
	if free.spend(100); !free.full(false) || !free.full(true) {
		t.Error("without a limit something is refused")
	}
}

// What was taken before the program began is paid by half of what is earned, and counts as spent.
func TestDebt(t *testing.T) {
	p := purse{share: 0.02}
	p.owe(0.005)
	p.earn(0.25)
	if math.Abs(p.left-0.0025) > 1e-9 || math.Abs(p.debt-0.0025) > 1e-9 {
		t.Errorf("left %v, debt %v", p.left, p.debt)
	}
	p.spend(p.left)
	p.earn(0.75)
	p.spend(p.left)
	if p.debt != 0 || p.cost() != 0.02 {
		t.Errorf("debt %v, cost %v of 0.02", p.debt, p.cost())
	}
}
