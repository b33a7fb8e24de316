package doctor

import "strings"

// Feature is something ripstop does, and whether it can do it here.
type Feature struct {
	ID    string `json:"id"`
	Title string `json:"title"`
	Later bool   `json:"later"` // not in this version: the answer says whether this machine will do
	Answer
}

// need is one row of the table of features: every fact of all must be yes, and one of each list in any.
type need struct {
	id, title string
	later     bool
	all       []string
	otherwise string // what is done instead where it cannot work
}

var needs = []need{
	{"run", "deadlocks, lock order and misuse (run, record)", false,
		[]string{"kernel", "glibc", "agent", "exec-dir", "memfd", "socket"}, ""},
	{"order", "exact order of events between cores", false,
		[]string{"tsc"}, "without it, events of different cores may be taken in the wrong order"},
	{"dumps", "stacks of all threads (SIGQUIT, --hang-timeout)", false,
		[]string{"ptrace", "vm-read"}, "without it, only locks held and waited for are shown"},
	{"full", "data races, by every memory access (run --full)", false,
		[]string{"kernel", "glibc", "agent", "membarrier"}, "without it, code that is loaded later is not looked at"},
	{"sampled", "sampled races, by hardware trace (record --sample=pmu)", false, []string{"pebs", "pt"}, "without it, timer samples are used"},
	{"timer", "sampled races, by timer (record --sample=timer)", false, []string{"clock", "breakpoints"}, ""},
	{"races", "races at the cost of sharing, by protection keys", true,
		[]string{"pku", "gs-base", "membarrier"}, "without it, every memory access is patched, which is slower"},
	{"watchpoints", "root causes, by watchpoints in the replay", true, []string{"breakpoints", "sigtrap"},
		"without it, pages are watched if breakpoints are never hit, which is slower, and debug registers are used where perf is refused"},
	{"replay", "replay with cheap checkpoints", true,
		[]string{"userfaultfd", "wp-async", "pagemap-scan"}, "without it, memory is copied, which takes longer"},
}

// follow answers the features from the facts: no if a needed fact is no, else could not tell if one could not be told.
func follow(facts map[string]Answer) []Feature {
	var out []Feature
	for _, n := range needs {
		var nos, unknowns []string
		for _, id := range n.all {
			a, asked := facts[id]
			if !asked {
				continue
			}
			switch a.Status {
			case No:
				nos = append(nos, titleOf(id))
			case Unknown:
				unknowns = append(unknowns, titleOf(id))
			}
		}
		a := yes("")
		if len(unknowns) > 0 {
			a = unknown("it depends on: " + strings.Join(unknowns, ", "))
		}
		if len(nos) > 0 {
			a = no("missing: " + strings.Join(nos, ", "))
		}
		if a.Status != Yes && n.otherwise != "" {
			a.Why += "; " + n.otherwise
		}
		out = append(out, Feature{n.id, n.title, n.later, a})
	}
	return out
}

func titleOf(id string) string {
	for _, q := range questions {
		if q.id == id {
			return q.title
		}
	}
	panic("BUG: no question " + id)
}
