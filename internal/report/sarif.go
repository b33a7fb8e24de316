package report

import (
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"path/filepath"
	"strings"

	"github.com/ripstop/ripstop/internal/finding"
)

// SARIF 2.1.0: https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html. Only what we write is declared here.
//
// A result's partialFingerprints has one member, ripstop/v1, the stable key of fingerprint.go. Each part of a finding is a thread
// flow: first where the thread took what it holds, then what it does; the frames hang on each step as its stack.

const (
	sarifSchema    = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
	informationURI = "https://github.com/ripstop/ripstop"
	sourceRoot     = "SRCROOT" // uriBaseId of files below the source root
)

type (
	sarifLog struct {
		Schema  string     `json:"$schema"`
		Version string     `json:"version"`
		Runs    []sarifRun `json:"runs"`
	}
	sarifRun struct {
		Tool        sarifTool                        `json:"tool"`
		Invocations []sarifInvocation                `json:"invocations"`
		BaseIDs     map[string]sarifArtifactLocation `json:"originalUriBaseIds"`
		ColumnKind  string                           `json:"columnKind"`
		Results     []sarifResult                    `json:"results"`
	}
	sarifTool struct {
		Driver sarifDriver `json:"driver"`
	}
	sarifDriver struct {
		Name           string      `json:"name"`
		Version        string      `json:"version,omitempty"`
		InformationURI string      `json:"informationUri"`
		Rules          []sarifRule `json:"rules"`
	}
	sarifRule struct {
		ID               string         `json:"id"`
		ShortDescription sarifMessage   `json:"shortDescription"`
		FullDescription  sarifMessage   `json:"fullDescription"`
		Help             sarifMessage   `json:"help"`
		Configuration    sarifRuleLevel `json:"defaultConfiguration"`
		Properties       sarifTags      `json:"properties"`
	}
	sarifTags struct {
		Tags []string `json:"tags"`
	}
	sarifRuleLevel struct {
		Level string `json:"level"`
	}
	sarifMessage struct {
		Text string `json:"text"`
	}
	sarifInvocation struct {
		Successful    bool                `json:"executionSuccessful"`
		CommandLine   string              `json:"commandLine,omitempty"`
		Arguments     []string            `json:"arguments,omitempty"`
		ExitCode      *int                `json:"exitCode,omitempty"`
		Notifications []sarifNotification `json:"toolExecutionNotifications,omitempty"`
	}
	sarifNotification struct {
		Level   string       `json:"level"`
		Message sarifMessage `json:"message"`
	}
	sarifResult struct {
		RuleID       string            `json:"ruleId"`
		RuleIndex    *int              `json:"ruleIndex,omitempty"`
		Level        string            `json:"level"`
		Message      sarifMessage      `json:"message"`
		Locations    []sarifLocation   `json:"locations,omitempty"`
		Fingerprints map[string]string `json:"partialFingerprints"`
		Count        int               `json:"occurrenceCount"`
		CodeFlows    []sarifCodeFlow   `json:"codeFlows,omitempty"`
		Related      []sarifLocation   `json:"relatedLocations,omitempty"`
	}
	sarifLocation struct {
		ID       *int           `json:"id,omitempty"`
		Physical *sarifPhysical `json:"physicalLocation,omitempty"`
		Logical  []sarifLogical `json:"logicalLocations,omitempty"`
		Message  *sarifMessage  `json:"message,omitempty"`
	}
	sarifPhysical struct {
		Artifact sarifArtifactLocation `json:"artifactLocation"`
		Region   *sarifRegion          `json:"region,omitempty"`
		Address  *sarifAddress         `json:"address,omitempty"`
	}
	sarifArtifactLocation struct {
		URI       string `json:"uri"`
		URIBaseID string `json:"uriBaseId,omitempty"`
	}
	sarifAddress struct {
		Kind string `json:"kind"`
		Name string `json:"fullyQualifiedName"`
	}
	sarifRegion struct {
		StartLine   int `json:"startLine"`
		StartColumn int `json:"startColumn,omitempty"`
	}
	sarifLogical struct {
		Name string `json:"name"`
		Kind string `json:"kind"`
	}
	sarifCodeFlow struct {
		ThreadFlows []sarifThreadFlow `json:"threadFlows"`
	}
	sarifThreadFlow struct {
		ID        string       `json:"id"`
		Message   sarifMessage `json:"message"`
		Locations []sarifStep  `json:"locations"`
	}
	sarifStep struct {
		Location   sarifLocation `json:"location"`
		Stack      *sarifStack   `json:"stack,omitempty"`
		Importance string        `json:"importance"`
	}
	sarifStack struct {
		Frames []sarifFrame `json:"frames"`
	}
	sarifFrame struct {
		Location sarifLocation `json:"location"`
		Module   string        `json:"module,omitempty"`
		// A bag: SARIF has no word for a frame that is inlined into the next one.
		Properties *sarifFrameProperties `json:"properties,omitempty"`
	}
	sarifFrameProperties struct {
		Inlined bool `json:"inlined"`
	}
)

type sarifWriter struct {
	w io.Writer
	r *Reporter
}

func (*sarifWriter) add(*record) error { return nil }

func (sw *sarifWriter) finish(records []*record, _ Result, s Summary) error {
	enc := json.NewEncoder(sw.w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", " ")
	return enc.Encode(sw.log(records, s))
}

func (sw *sarifWriter) log(records []*record, s Summary) sarifLog {
	o := &sw.r.opts
	run := sarifRun{
		Tool:       sarifTool{sarifDriver{Name: "ripstop", Version: o.Version, InformationURI: informationURI, Rules: []sarifRule{}}},
		BaseIDs:    map[string]sarifArtifactLocation{sourceRoot: {URI: fileURI(sw.r.src.root) + "/"}},
		ColumnKind: "utf16CodeUnits",
		Results:    []sarifResult{},
	}
	index := map[finding.Rule]int{}
	for i, info := range finding.Rules {
		index[info.Rule] = i
		run.Tool.Driver.Rules = append(run.Tool.Driver.Rules, sarifRule{
			ID: string(info.Rule), ShortDescription: sarifMessage{info.Title}, FullDescription: sarifMessage{info.Help},
			Help: sarifMessage{info.Help}, Configuration: sarifRuleLevel{info.Level},
			Properties: sarifTags{[]string{"concurrency", string(info.Class)}},
		})
	}
	inv := sarifInvocation{Successful: true, Arguments: o.Command, CommandLine: strings.Join(o.Command, " ")}
	if s.Exited {
		inv.ExitCode = &s.ExitCode
	}
	for _, text := range s.NotSeen {
		inv.Notifications = append(inv.Notifications, sarifNotification{"warning", sarifMessage{text}})
	}
	run.Invocations = []sarifInvocation{inv}
	for _, rec := range records {
		res := sw.result(rec)
		if i, ok := index[rec.f.Rule]; ok {
			res.RuleIndex = &i
		}
		run.Results = append(run.Results, res)
	}
	return sarifLog{Schema: sarifSchema, Version: "2.1.0", Runs: []sarifRun{run}}
}

func (sw *sarifWriter) result(rec *record) sarifResult {
	f := &rec.f
	res := sarifResult{
		RuleID: string(f.Rule), Level: rec.rule.Level, Message: sarifMessage{longMessage(rec)},
		Fingerprints: map[string]string{"ripstop/v1": rec.fingerprint}, Count: rec.count,
	}
	if loc, ok := sw.location(&rec.where, ""); ok {
		res.Locations = []sarifLocation{loc}
	}
	var flow sarifCodeFlow
	for i := range f.Parts {
		if tf := sw.threadFlow(f, i); len(tf.Locations) > 0 {
			flow.ThreadFlows = append(flow.ThreadFlows, tf)
		}
	}
	if len(flow.ThreadFlows) > 0 {
		res.CodeFlows = []sarifCodeFlow{flow}
	}
	related := func(s finding.Stack, text string) {
		if len(s) == 0 {
			return
		}
		if loc, ok := sw.location(&s[telling(s)], text); ok {
			id := len(res.Related) + 1
			loc.ID = &id
			res.Related = append(res.Related, loc)
		}
	}
	for i := range f.Objects {
		o := &f.Objects[i]
		related(o.Allocated, fmt.Sprintf("%s %s is in a block allocated here", upper(o.Kind), o.ID))
		related(o.Initialised, begunText(o))
	}
	for i := range f.Threads {
		related(f.Threads[i].Created, "Thread "+threadLabel(&f.Threads[i])+" created here")
	}
	for _, at := range rec.also {
		for i := range at {
			related(at[i:i+1], "the same race here")
		}
	}
	return res
}

// threadFlow tells part i: the ids must differ within a code flow, and one thread may have several parts.
func (sw *sarifWriter) threadFlow(f *finding.Finding, i int) sarifThreadFlow {
	p := &f.Parts[i]
	tf := sarifThreadFlow{ID: fmt.Sprintf("part %d", i+1), Message: sarifMessage{partText(f, p)}}
	step := func(s finding.Stack, text, importance string) {
		if len(s) == 0 {
			return
		}
		loc, ok := sw.location(&s[telling(s)], text)
		if !ok {
			return
		}
		tf.Locations = append(tf.Locations, sarifStep{Location: loc, Stack: sw.stack(s), Importance: importance})
	}
	for j := range p.Held {
		step(p.Held[j].Stack, heldText(f, &p.Held[j]), "important")
	}
	step(p.Stack, partText(f, p), "essential")
	return tf
}

func (sw *sarifWriter) stack(s finding.Stack) *sarifStack {
	st := &sarifStack{Frames: []sarifFrame{}}
	for i := range s {
		loc, _ := sw.location(&s[i], "")
		fr := sarifFrame{Location: loc}
		if s[i].Module != "" {
			fr.Module = filepath.Base(s[i].Module)
		}
		if s[i].Inlined {
			fr.Properties = &sarifFrameProperties{Inlined: true}
		}
		st.Frames = append(st.Frames, fr)
	}
	return st
}

// location is false when nothing of fr can be named.
func (sw *sarifWriter) location(fr *finding.Frame, text string) (sarifLocation, bool) {
	var loc sarifLocation
	switch {
	case fr.File != "":
		loc.Physical = &sarifPhysical{Artifact: sw.artifact(fr.File)}
		if fr.Line > 0 {
			loc.Physical.Region = &sarifRegion{StartLine: fr.Line, StartColumn: max(fr.Column, 0)}
		}
	case fr.Module != "":
		loc.Physical = &sarifPhysical{
			Artifact: sarifArtifactLocation{URI: fileURI(fr.Module)},
			Address:  &sarifAddress{"instruction", fmt.Sprintf("%s+0x%x", filepath.Base(fr.Module), fr.Offset)},
		}
	}
	if fr.Func != "" {
		loc.Logical = []sarifLogical{{Name: fr.Func, Kind: "function"}}
	}
	if text != "" {
		loc.Message = &sarifMessage{text}
	}
	return loc, loc.Physical != nil || loc.Logical != nil
}

func (sw *sarifWriter) artifact(file string) sarifArtifactLocation {
	name, below := sw.r.src.relative(file)
	if below {
		return sarifArtifactLocation{URI: (&url.URL{Path: name}).EscapedPath(), URIBaseID: sourceRoot}
	}
	return sarifArtifactLocation{URI: fileURI(name)}
}

// fileURI is file:///path, or an escaped relative reference for a name that is not a path ([vdso]).
func fileURI(path string) string {
	if !filepath.IsAbs(path) {
		return (&url.URL{Path: path}).String()
	}
	return strings.TrimSuffix((&url.URL{Scheme: "file", Path: path}).String(), "/")
}

// longMessage is what a viewer shows: the message and each part in a sentence.
func longMessage(rec *record) string {
	f := &rec.f
	lines := []string{message(f)}
	if lines[0] == "" {
		lines[0] = rec.rule.Title
	}
	for i := range f.Parts {
		p := &f.Parts[i]
		line := partText(f, p)
		if len(p.Stack) > 0 {
			fr := p.Stack[telling(p.Stack)]
			if fr.Func != "" {
				line += ", in " + clean(fr.Func)
			}
			if fr.File != "" && fr.Line > 0 {
				line += fmt.Sprintf(" (%s:%d)", clean(filepath.Base(fr.File)), fr.Line)
			}
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, ".\n") + "."
}
