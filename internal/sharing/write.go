package sharing

import (
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/ripstop/ripstop/internal/finding"
)

// JSONVersion is the version of the JSON form, described in docs/formats.md.
const JSONVersion = 1

// Report is a profile with what is said beside it.
type Report struct {
	Command []string
	Version string // of ripstop
	Lines   []Line
	NotSeen []string
}

var words = map[Kind]string{False: "false sharing: no thread accesses what another writes", True: "true sharing", Both: "true sharing, and false beside it"}

// WriteText writes it to be read.
func (r *Report) WriteText(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "ripstop: %d cache lines moved between threads %d times or more\n", len(r.Lines), MinMoved)
	for _, l := range r.Lines {
		fmt.Fprintf(&b, "==================\nCache line 0x%x (pid=%d): %s\n  moved %d times between %d threads\n", l.Addr, l.PID, words[l.Kind], l.Moved, len(l.Threads))
		for _, t := range l.Threads {
			fmt.Fprintf(&b, "\n  %s: %d reads, %d writes, took it %d times\n", threadName(&t.Thread), t.Reads, t.Writes, t.Moved)
			for _, u := range t.Uses {
				fmt.Fprintf(&b, "    %d reads, %d writes in %s\n", u.Reads, u.Writes, place(u.Stack))
				for _, f := range u.Fields {
					fmt.Fprintf(&b, "      bytes %d to %d: %s\n", f.First, f.Last, objectText(&f.Object))
				}
			}
		}
	}
	if len(r.Lines) > 0 {
		b.WriteString("==================\n")
	}
	for _, n := range r.NotSeen {
		fmt.Fprintf(&b, "ripstop: not seen: %s\n", n)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func threadName(t *finding.Thread) string {
	switch {
	case t.Number == 1:
		return "main thread"
	case t.Name != "":
		return fmt.Sprintf("thread T%d %q", t.Number, t.Name)
	}
	return fmt.Sprintf("thread T%d", t.Number)
}

func place(s finding.Stack) string {
	f := s[0]
	switch {
	case f.Func != "" && f.File != "":
		return fmt.Sprintf("%s at %s:%d", f.Func, f.File, f.Line)
	case f.Func != "":
		return f.Func
	case f.Module != "":
		return fmt.Sprintf("%s+0x%x", filepath.Base(f.Module), f.Offset)
	}
	return fmt.Sprintf("0x%x", f.PC)
}

// name is what lies in a field, as a programmer writes it; "" where nothing is known.
func name(o *finding.Object) string {
	switch {
	case o.Symbol == "":
		return ""
	case o.Path == "" && o.SymOffset > 0 && o.Type == "":
		return fmt.Sprintf("%s+%d", o.Symbol, o.SymOffset)
	}
	return o.Symbol + o.Path
}

func objectText(o *finding.Object) string {
	typ := ""
	if o.Type != "" {
		typ = " (" + o.Type + ")"
	}
	switch o.Where {
	case finding.Global:
		if n := name(o); n != "" {
			return n + typ
		}
		return "global data in " + filepath.Base(o.Module)
	case finding.TLS:
		return fmt.Sprintf("thread-local %s%s of T%d", name(o), typ, o.OwnerThread)
	case finding.OnStack:
		return fmt.Sprintf("the stack of T%d", o.OwnerThread)
	case finding.Heap:
		s := fmt.Sprintf("offset %d of a heap block of size %d", o.Addr-o.Block, o.Size)
		for _, f := range o.Allocated {
			if f.Func != "" && f.File != "" {
				return fmt.Sprintf("%s allocated in %s at %s:%d", s, f.Func, f.File, f.Line)
			}
		}
		return s
	case finding.Mapping:
		return "mapped memory"
	}
	return "memory of which nothing is known"
}

type (
	jsonReport struct {
		Type    string     `json:"type"`
		Version int        `json:"version"`
		Ripstop string     `json:"ripstop"`
		Command []string   `json:"command"`
		Lines   []jsonLine `json:"lines"`
		NotSeen []string   `json:"not_seen"`
	}
	jsonLine struct {
		PID        uint32       `json:"pid"`
		Executable string       `json:"executable"`
		Address    string       `json:"address"`
		Sharing    Kind         `json:"sharing"`
		Moved      uint64       `json:"moved"`
		Threads    []jsonThread `json:"threads"`
	}
	jsonThread struct {
		Number uint32    `json:"number"`
		TID    uint32    `json:"tid"`
		Name   string    `json:"name,omitempty"`
		Reads  uint64    `json:"reads"`
		Writes uint64    `json:"writes"`
		Moved  uint64    `json:"moved"`
		Uses   []jsonUse `json:"uses"`
	}
	jsonUse struct {
		Function string      `json:"function,omitempty"`
		File     string      `json:"file,omitempty"`
		Line     int         `json:"line,omitempty"`
		Module   string      `json:"module,omitempty"`
		Offset   string      `json:"offset,omitempty"`
		Reads    uint64      `json:"reads"`
		Writes   uint64      `json:"writes"`
		Moved    uint64      `json:"moved"`
		Fields   []jsonField `json:"fields"`
	}
	jsonField struct {
		First    int    `json:"first"`
		Last     int    `json:"last"`
		Name     string `json:"name,omitempty"`
		DataType string `json:"data_type,omitempty"`
		Object   string `json:"object"`
	}
)

// WriteJSON writes one JSON object.
func (r *Report) WriteJSON(w io.Writer) error {
	out := jsonReport{Type: "sharing", Version: JSONVersion, Ripstop: r.Version, Command: r.Command, Lines: []jsonLine{}, NotSeen: append([]string{}, r.NotSeen...)}
	for _, l := range r.Lines {
		j := jsonLine{PID: l.PID, Executable: l.Exe, Address: fmt.Sprintf("0x%x", l.Addr), Sharing: l.Kind, Moved: l.Moved}
		for _, t := range l.Threads {
			jt := jsonThread{Number: t.Number, TID: t.Tid, Name: t.Name, Reads: t.Reads, Writes: t.Writes, Moved: t.Moved}
			for _, u := range t.Uses {
				f := u.Stack[0]
				ju := jsonUse{Function: f.Func, File: f.File, Line: f.Line, Module: f.Module, Reads: u.Reads, Writes: u.Writes, Moved: u.Moved, Fields: []jsonField{}}
				if f.Module != "" {
					ju.Offset = fmt.Sprintf("0x%x", f.Offset)
				}
				for _, x := range u.Fields {
					ju.Fields = append(ju.Fields, jsonField{x.First, x.Last, name(&x.Object), x.Object.Type, objectText(&x.Object)})
				}
				jt.Uses = append(jt.Uses, ju)
			}
			j.Threads = append(j.Threads, jt)
		}
		out.Lines = append(out.Lines, j)
	}
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(out)
}
