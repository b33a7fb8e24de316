package report

import (
	"bufio"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/ripstop/ripstop/internal/finding"
)

// SchemaVersion is the version of the JSON lines, described in docs/findings-schema.json. Added members do not raise it; a member
// that goes or changes its meaning does.
const SchemaVersion = 1

// The lines of a JSON report: one `run`, a `finding` for each as it is found, one `summary`. A report without a summary is of a run
// that was cut short.
type (
	jsonRun struct {
		Type    string   `json:"type"`
		Version int      `json:"version"`
		Tool    jsonTool `json:"tool"`
		Command []string `json:"command,omitempty"`
		Time    string   `json:"time"`
	}
	jsonTool struct {
		Name    string `json:"name"`
		Version string `json:"version"`
	}
	jsonFinding struct {
		Type        string       `json:"type"`
		Fingerprint string       `json:"fingerprint"`
		Rule        string       `json:"rule"`
		Class       string       `json:"class"`
		Level       string       `json:"level"`
		Title       string       `json:"title"`
		Message     string       `json:"message"`
		PID         uint32       `json:"pid"`
		Executable  string       `json:"executable"`
		Count       int          `json:"count"`
		Fatal       bool         `json:"fatal"`
		Ordered     bool         `json:"ordered_by_movs,omitempty"`
		Location    *jsonFrame   `json:"location,omitempty"`
		Parts       []jsonPart   `json:"parts"`
		Objects     []jsonObject `json:"objects"`
		Threads     []jsonThread `json:"threads"`
		Notes       []string     `json:"notes"`
		Memory      *jsonMemory  `json:"memory,omitempty"`
		Crash       *jsonCrash   `json:"crash,omitempty"`
		Suppression string       `json:"suppression,omitempty"`
	}
	jsonFrame struct {
		PC       string `json:"pc"`
		Module   string `json:"module,omitempty"`
		Offset   string `json:"offset,omitempty"`
		BuildID  string `json:"build_id,omitempty"`
		Function string `json:"function,omitempty"`
		Symbol   string `json:"symbol,omitempty"`
		File     string `json:"file,omitempty"`
		Line     int    `json:"line,omitempty"`
		Column   int    `json:"column,omitempty"`
		Inlined  bool   `json:"inlined,omitempty"`
	}
	jsonPart struct {
		Text       string      `json:"text"`
		Thread     uint32      `json:"thread,omitempty"`
		Stack      []jsonFrame `json:"stack"`
		Held       []jsonHeld  `json:"held"`
		Provenance string      `json:"provenance,omitempty"`
		Before     string      `json:"before,omitempty"`
	}
	jsonMemory struct {
		Address string `json:"address"`
		Was     string `json:"was"`
		Is      string `json:"is"`
	}
	jsonCrash struct {
		Signal    string `json:"signal"`
		Said      string `json:"said,omitempty"`
		Exception string `json:"exception,omitempty"`
		What      string `json:"what,omitempty"`

		Again *jsonAgain `json:"reexecution,omitempty"`
	}
	jsonAgain struct {
		Reproduced bool   `json:"reproduced"`
		Tries      int    `json:"tries,omitempty"`
		Made       int    `json:"made"`
		Verdict    string `json:"verdict,omitempty"`
		Why        string `json:"why,omitempty"`
	}
	jsonHeld struct {
		Object string      `json:"object"`
		Shared bool        `json:"shared"`
		Stack  []jsonFrame `json:"stack"`
	}
	jsonObject struct {
		ID           string      `json:"id"`
		Kind         string      `json:"kind"`
		Address      string      `json:"address"`
		Where        string      `json:"where"`
		Name         string      `json:"name,omitempty"`
		Module       string      `json:"module,omitempty"`
		Symbol       string      `json:"symbol,omitempty"`
		SymbolOffset uint64      `json:"symbol_offset,omitempty"`
		Path         string      `json:"path,omitempty"`
		DataType     string      `json:"data_type,omitempty"`
		Block        string      `json:"block,omitempty"`
		Size         uint64      `json:"size,omitempty"`
		Allocated    []jsonFrame `json:"allocated,omitempty"`
		Reused       bool        `json:"allocated_reused,omitempty"`
		Thread       uint32      `json:"thread,omitempty"`
		Function     string      `json:"function,omitempty"`
		Initialised  []jsonFrame `json:"initialised,omitempty"`
	}
	jsonThread struct {
		Number  uint32      `json:"number"`
		TID     uint32      `json:"tid"`
		Name    string      `json:"name,omitempty"`
		Creator uint32      `json:"creator,omitempty"`
		Created []jsonFrame `json:"created,omitempty"`
	}
	jsonSummary struct {
		Type         string                   `json:"type"`
		Findings     int                      `json:"findings"`
		Repeats      int                      `json:"repeats"`
		Suppressed   int                      `json:"suppressed"`
		Known        int                      `json:"known"`
		Counts       map[string]int           `json:"counts"`
		Also         map[string][][]jsonFrame `json:"also,omitempty"`
		NotSeen      []string                 `json:"not_seen"`
		Unasked      []string                 `json:"not_looked_for,omitempty"`
		Stats        map[string]string        `json:"stats,omitempty"`
		ExitCode     *int                     `json:"exit_code,omitempty"`
		DurationMS   int64                    `json:"duration_ms"`
		Suppressions jsonSuppressions         `json:"suppressions"`
	}
	jsonSuppressions struct {
		Used   int `json:"used"`
		Unused int `json:"unused"`
	}
)

var whereNames = map[finding.Where]string{
	finding.Unknown: "unknown", finding.Global: "global", finding.Heap: "heap", finding.OnStack: "stack",
	finding.TLS: "tls", finding.Mapping: "mapping", finding.Descriptor: "descriptor",
}

// now is replaced in tests.
var now = time.Now

type jsonWriter struct {
	enc *json.Encoder
	r   *Reporter
}

func newJSONWriter(w io.Writer, r *Reporter) (*jsonWriter, error) {
	j := &jsonWriter{enc: json.NewEncoder(w), r: r}
	j.enc.SetEscapeHTML(false)
	return j, j.enc.Encode(jsonRun{
		Type: "run", Version: SchemaVersion, Tool: jsonTool{"ripstop", r.opts.Version},
		Command: r.opts.Command, Time: now().UTC().Format(time.RFC3339),
	})
}

func (j *jsonWriter) add(rec *record) error { return j.enc.Encode(jsonOf(rec)) }

func (j *jsonWriter) finish(records []*record, res Result, s Summary) error {
	sum := jsonSummary{
		Type: "summary", Findings: res.New, Repeats: res.Repeats, Suppressed: res.Suppressed, Known: res.Known,
		Counts: map[string]int{}, NotSeen: nonNil(s.NotSeen), Unasked: s.Unasked, DurationMS: s.DurationMS,
	}
	for _, rec := range records {
		sum.Counts[rec.fingerprint] = rec.count
		for _, at := range rec.also {
			if sum.Also == nil {
				sum.Also = map[string][][]jsonFrame{}
			}
			sum.Also[rec.fingerprint] = append(sum.Also[rec.fingerprint], jsonStack(at))
		}
	}
	if len(s.Stats) > 0 {
		sum.Stats = map[string]string{}
		for _, st := range s.Stats {
			sum.Stats[st.Name] = st.Value
		}
	}
	if s.Exited {
		sum.ExitCode = &s.ExitCode
	}
	used, unused := j.r.suppressions.counts()
	sum.Suppressions = jsonSuppressions{len(used), len(unused)}
	return j.enc.Encode(sum)
}

func nonNil[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}

func jsonOf(rec *record) *jsonFinding {
	f := &rec.f
	out := &jsonFinding{
		Type: "finding", Fingerprint: rec.fingerprint, Rule: string(f.Rule), Class: string(rec.rule.Class), Level: rec.rule.Level,
		Title: rec.rule.Title, Message: message(f), PID: f.PID, Executable: f.Exe, Count: rec.count, Fatal: f.Fatal, Ordered: f.Ordered,
		Parts: []jsonPart{}, Objects: []jsonObject{}, Threads: []jsonThread{}, Notes: nonNil(f.Notes), Suppression: suggestion(rec),
	}
	if loc := jsonStack(finding.Stack{rec.where}); rec.where.PC != 0 || rec.where.Module != "" || rec.where.Func != "" || rec.where.File != "" {
		out.Location = &loc[0]
	}
	if m := f.Memory; m != nil {
		out.Memory = &jsonMemory{hexOf(m.Addr), fmt.Sprintf("%x", m.Was), fmt.Sprintf("%x", m.Is)}
	}
	if c := f.Crash; c != nil {
		out.Crash = &jsonCrash{c.Signal, escaped(c.Said), escaped(c.Exception), escaped(c.What), (*jsonAgain)(c.Again)}
	}
	for i := range f.Parts {
		p := &f.Parts[i]
		jp := jsonPart{Text: p.Text, Thread: p.Thread, Stack: jsonStack(p.Stack), Held: []jsonHeld{}, Provenance: p.Provenance, Before: hex.EncodeToString(p.Before)}
		for _, h := range p.Held {
			jp.Held = append(jp.Held, jsonHeld{h.Object, h.Shared, jsonStack(h.Stack)})
		}
		out.Parts = append(out.Parts, jp)
	}
	for i := range f.Objects {
		o := &f.Objects[i]
		jo := jsonObject{
			ID: o.ID, Kind: o.Kind, Address: hexOf(o.Addr), Where: whereNames[o.Where], Name: objectName(o), Module: o.Module,
			Symbol: o.Symbol, SymbolOffset: o.SymOffset, Path: o.Path, DataType: o.Type, Size: o.Size, Thread: o.OwnerThread, Function: o.Func,
		}
		if jo.Where == "" {
			jo.Where = "unknown"
		}
		if o.Where == finding.Heap {
			jo.Block = hexOf(o.Block)
		}
		if len(o.Allocated) > 0 {
			jo.Allocated, jo.Reused = jsonStack(o.Allocated), o.Reused
		}
		if len(o.Initialised) > 0 {
			jo.Initialised = jsonStack(o.Initialised)
		}
		out.Objects = append(out.Objects, jo)
	}
	for _, t := range f.Threads {
		jt := jsonThread{Number: t.Number, TID: t.Tid, Name: t.Name, Creator: t.Creator}
		if len(t.Created) > 0 {
			jt.Created = jsonStack(t.Created)
		}
		out.Threads = append(out.Threads, jt)
	}
	return out
}

func hexOf(v uint64) string { return fmt.Sprintf("0x%x", v) }

func jsonStack(s finding.Stack) []jsonFrame {
	out := make([]jsonFrame, len(s))
	for i, fr := range s {
		out[i] = jsonFrame{
			PC: hexOf(fr.PC), Module: fr.Module, BuildID: fr.BuildID, Function: fr.Func, Symbol: fr.Symbol,
			File: fr.File, Line: max(fr.Line, 0), Column: max(fr.Column, 0), Inlined: fr.Inlined,
		}
		if fr.Module != "" {
			out[i].Offset = hexOf(fr.Offset)
		}
	}
	return out
}

// readBaseline returns the fingerprints of the findings in a JSON report.
func readBaseline(path string) (map[string]bool, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("--baseline: %w; a run with --format json=%s makes it", err, path)
	}
	defer f.Close()
	known, err := parseBaseline(f)
	if err != nil {
		return nil, fmt.Errorf("--baseline: %s: %w", path, err)
	}
	return known, nil
}

const maxReportLine = 64 << 20

func parseBaseline(rd io.Reader) (map[string]bool, error) {
	known := map[string]bool{}
	sc := bufio.NewScanner(rd)
	sc.Buffer(nil, maxReportLine)
	seenRun := false
	for n := 1; sc.Scan(); n++ {
		if len(sc.Bytes()) == 0 {
			continue
		}
		var line struct {
			Type        string `json:"type"`
			Version     int    `json:"version"`
			Fingerprint string `json:"fingerprint"`
		}
		if err := json.Unmarshal(sc.Bytes(), &line); err != nil {
			return nil, fmt.Errorf("line %d is not JSON (%w); the baseline is a report of --format json", n, err)
		}
		switch line.Type {
		case "run":
			if line.Version != SchemaVersion {
				return nil, fmt.Errorf("line %d: a report of version %d, this ripstop reads %d", n, line.Version, SchemaVersion)
			}
			seenRun = true
		case "finding":
			if line.Fingerprint == "" {
				return nil, fmt.Errorf("line %d: a finding without fingerprint", n)
			}
			known[line.Fingerprint] = true
		}
		if !seenRun {
			return nil, fmt.Errorf("line %d: no line of type run before it; the baseline is a report of --format json", n)
		}
	}
	if err := sc.Err(); err != nil {
		return nil, err
	}
	if !seenRun {
		return nil, errors.New("it is empty; the baseline is a report of --format json")
	}
	return known, nil
}
