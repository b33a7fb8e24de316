package count

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/ripstop/ripstop/internal/finding"
	"github.com/ripstop/ripstop/internal/patch"
)

// JSONVersion is the version of the JSON form, described in docs/formats.md. Added members do not raise it; a member that goes or changes its meaning does.
const JSONVersion = 1

type (
	jsonProfile struct {
		Type       string            `json:"type"`
		Version    int               `json:"version"`
		Ripstop    string            `json:"ripstop"`
		Command    []string          `json:"command"`
		Ended      string            `json:"ended"`
		Counts     map[string]uint64 `json:"counts"`
		Tiers      []jsonTier        `json:"tiers"`
		Processes  []jsonProcess     `json:"processes"`
		Modules    []jsonModule      `json:"modules"`
		Places     []jsonPlace       `json:"places"`
		NotCounted []string          `json:"not_counted"`
	}
	jsonProcess struct {
		PID        int    `json:"pid"`
		Executable string `json:"executable"`
	}
	jsonTier struct {
		Tier     string `json:"tier"`
		Sites    uint64 `json:"sites"`
		Executed uint64 `json:"executed"`
	}
	jsonModule struct {
		Path         string            `json:"path"`
		BuildID      string            `json:"build_id"`
		NotCounted   string            `json:"not_counted,omitempty"`
		Undecoded    uint64            `json:"undecoded_bytes"`
		Counts       map[string]uint64 `json:"counts"`
		Instructions []jsonInst        `json:"instructions"`
		Missed       []jsonMissed      `json:"missed"`
	}
	jsonInst struct {
		Address string `json:"address"`
		Op      string `json:"op"`
		Kind    string `json:"kind"`
		Size    uint16 `json:"size"`
		Tier    string `json:"tier"`
		Count   uint64 `json:"count"`
		Place   int    `json:"place"` // -1: never ran
	}
	jsonMissed struct {
		Address string `json:"address"`
		Op      string `json:"op"`
		Kind    string `json:"kind"`
		Size    uint16 `json:"size"`
		Why     string `json:"why"`
	}
	jsonPlace struct {
		Module int               `json:"module"`
		Stack  []jsonFrame       `json:"stack"`
		Counts map[string]uint64 `json:"counts"`
	}
	jsonFrame struct {
		Function string `json:"function,omitempty"`
		Symbol   string `json:"symbol,omitempty"`
		File     string `json:"file,omitempty"`
		Line     int    `json:"line,omitempty"`
	}
)

// byKind are the counts that are not 0, by name.
func (c *Counts) byKind() map[string]uint64 {
	m := map[string]uint64{}
	for k := range Kinds {
		if c[k] > 0 {
			m[k.String()] = c[k]
		}
	}
	return m
}

func jsonFrames(frames []finding.Frame) (out []jsonFrame) {
	for _, f := range frames {
		out = append(out, jsonFrame{f.Func, f.Symbol, f.File, f.Line})
	}
	return out
}

// WriteJSON writes the whole profile, instruction by instruction.
func (p *Profile) WriteJSON(w io.Writer, n Namer) error {
	total := p.Counts()
	out := jsonProfile{Type: "count", Version: JSONVersion, Ripstop: p.Version, Command: p.Command, Ended: p.Ended, Counts: total.byKind(),
		Processes: []jsonProcess{}, Modules: []jsonModule{}, Places: []jsonPlace{}, NotCounted: append([]string{}, p.NotCounted...)}
	sites, executed := p.Tiers()
	for t := range patch.Tiers {
		out.Tiers = append(out.Tiers, jsonTier{t.String(), sites[t], executed[t]})
	}
	for _, x := range p.Processes {
		out.Processes = append(out.Processes, jsonProcess(x))
	}
	for i, m := range p.Modules {
		c := m.Counts()
		j := jsonModule{Path: m.Path, BuildID: m.BuildID, NotCounted: m.Why, Undecoded: m.Undecoded, Counts: c.byKind(), Instructions: []jsonInst{}, Missed: []jsonMissed{}}
		places := map[string]int{} // by frames, in out.Places
		sums := map[int]*Counts{}
		for k := range m.Insts {
			in := &m.Insts[k]
			place := -1
			if in.Count > 0 {
				frames := jsonFrames(n.Frames(m.Path, m.BuildID, in.Addr))
				key := fmt.Sprint(frames)
				var known bool
				if place, known = places[key]; !known {
					place = len(out.Places)
					places[key], sums[place] = place, &Counts{}
					out.Places = append(out.Places, jsonPlace{Module: i, Stack: frames})
				}
				sums[place][in.Access.Kind] += in.Count
			}
			j.Instructions = append(j.Instructions, jsonInst{address(in.Addr), in.Op, in.Access.Kind.String(), in.Access.Size, in.Tier.String(), in.Count, place})
		}
		for _, place := range slices.Sorted(maps.Keys(sums)) {
			out.Places[place].Counts = sums[place].byKind()
		}
		for _, x := range m.Missed {
			j.Missed = append(j.Missed, jsonMissed{address(x.Addr), x.Op, x.Access.Kind.String(), x.Access.Size, x.Why})
		}
		out.Modules = append(out.Modules, j)
	}
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(out)
}

func address(n uint64) string { return fmt.Sprintf("%#x", n) }
