package count

import (
	"io"

	"github.com/google/pprof/profile"
)

// WritePprof writes the profile in pprof's form (github.com/google/pprof/proto/profile.proto, compressed): a sample for each instruction that ran, with its inlined calls; a
// sample type for each kind, the last and default one their sum.
func (p *Profile) WritePprof(w io.Writer, n Namer) error {
	out := &profile.Profile{DefaultSampleType: "executed", PeriodType: &profile.ValueType{Type: "executed", Unit: "count"}, Period: 1}
	total := p.Counts()
	var kinds []Kind
	for k := range Kinds {
		if total[k] > 0 {
			kinds = append(kinds, k)
			out.SampleType = append(out.SampleType, &profile.ValueType{Type: k.String(), Unit: "count"})
		}
	}
	out.SampleType = append(out.SampleType, &profile.ValueType{Type: "executed", Unit: "count"})
	out.Comments = append(p.missed(), "ended: "+p.Ended)
	type name struct{ fn, symbol, file string }
	functions := map[name]*profile.Function{}
	for _, m := range p.Modules {
		if m.Why != "" {
			continue
		}
		mapping := &profile.Mapping{ID: uint64(len(out.Mapping) + 1), Start: m.start, Limit: m.end, Offset: m.off, File: m.Path, BuildID: m.BuildID}
		out.Mapping = append(out.Mapping, mapping)
		for i := range m.Insts {
			in := &m.Insts[i]
			if in.Count == 0 {
				continue
			}
			l := &profile.Location{ID: uint64(len(out.Location) + 1), Mapping: mapping, Address: in.Addr}
			for _, f := range n.Frames(m.Path, m.BuildID, in.Addr) {
				if f.Func == "" && f.File == "" {
					continue
				}
				k := name{f.Func, f.Symbol, f.File}
				fn := functions[k]
				if fn == nil {
					fn = &profile.Function{ID: uint64(len(out.Function) + 1), Name: f.Func, SystemName: f.Symbol, Filename: f.File}
					if fn.SystemName == "" {
						fn.SystemName = f.Func
					}
					functions[k] = fn
					out.Function = append(out.Function, fn)
				}
				l.Line = append(l.Line, profile.Line{Function: fn, Line: int64(f.Line), Column: int64(f.Column)})
				mapping.HasFunctions = mapping.HasFunctions || f.Func != ""
				mapping.HasFilenames = mapping.HasFilenames || f.File != ""
				mapping.HasLineNumbers = mapping.HasLineNumbers || f.Line != 0
			}
			mapping.HasInlineFrames = mapping.HasFilenames
			out.Location = append(out.Location, l)
			s := &profile.Sample{Location: []*profile.Location{l}, Value: make([]int64, len(kinds)+1), Label: map[string][]string{"op": {in.Op}}}
			for j, k := range kinds {
				if k == in.Access.Kind {
					s.Value[j] = int64(in.Count)
				}
			}
			s.Value[len(kinds)] = int64(in.Count)
			out.Sample = append(out.Sample, s)
		}
	}
	if err := out.CheckValid(); err != nil {
		panic("BUG: count: " + err.Error())
	}
	return out.Write(w)
}
