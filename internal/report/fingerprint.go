package report

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/ripstop/ripstop/internal/finding"
)

// Three keys of a finding:
//
// The raw key says that two findings are the very same one of one process, by addresses. A detector hands a finding over again, with the
// number of further sightings, when its process ends; by then modules may be gone and names be missing that were there before.
//
// The exact key says that two sightings are the same: same rule, same places in the code, same objects as a programmer names them.
// Addresses of data, pids and thread numbers are left out, and the parts are sorted, because a cycle may be told from any of its
// threads.
//
// The stable key is the fingerprint that outputs carry and baselines keep. It must survive a recompilation, another checkout
// directory and an edit elsewhere in the file, so it has no line numbers and only base names of files. Where a frame has no function
// name, the link-time offset of the function in its module has to stand for it, or where that is not known the place's own. Findings with different exact keys may share a stable key (two places in
// one function); the second and later ones get ":2", ":3", … appended, so that none is taken for another.

// A race is known by what a programmer would mend: by its object and the two functions that access it. The stable key is that, and findings which share it are one, whatever
// their lines and callers: of a counter that a hundred callers raise, or of a flag and its payload, one race is told and the other pairs of places are listed at the end.

// stableFrames is how many frames of a stack enter the stable key: callers farther out change too often.
const stableFrames = 6

func rawKey(f *finding.Finding) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %d", f.Rule, f.PID)
	eachStack(f, func(s finding.Stack) {
		b.WriteString("\n")
		last := uint64(0)
		for _, fr := range s {
			if fr.PC != last { // inlined frames have the address of what they are inlined into
				fmt.Fprintf(&b, "%x ", fr.PC)
			}
			last = fr.PC
		}
	})
	for i := range f.Objects {
		fmt.Fprintf(&b, "\n%x", f.Objects[i].Addr)
	}
	return b.String()
}

func exactKey(f *finding.Finding) string {
	return keyOf(f, func(s finding.Stack) string {
		var b strings.Builder
		for _, fr := range s {
			fmt.Fprintf(&b, "%s|%s|%d|%d|%s|%x;", fr.Func, fr.File, fr.Line, fr.Column, filepath.Base(fr.Module), offsetOf(fr))
		}
		return b.String()
	})
}

func stableKey(f *finding.Finding) string {
	key := raceKey(f)
	if key == "" {
		key = keyOf(f, stableText)
	}
	sum := sha256.Sum256([]byte("ripstop/v1\n" + key))
	return hex.EncodeToString(sum[:16])
}

func stableText(s finding.Stack) string {
	var b strings.Builder
	for _, fr := range stableStack(s) {
		b.WriteString(stableFrame(fr))
	}
	return b.String()
}

func stableFrame(fr finding.Frame) string {
	if fr.Func != "" {
		return fmt.Sprintf("%s@%s;", fr.Func, filepath.Base(fr.File))
	}
	if fr.Start != 0 {
		return fmt.Sprintf("%s function at %x;", filepath.Base(fr.Module), fr.Start)
	}
	return fmt.Sprintf("%s+%x;", filepath.Base(fr.Module), offsetOf(fr))
}

// raceKey is the same for races of one object between the same two functions; "": f is no race, or it is not known where.
func raceKey(f *finding.Finding) string {
	if ruleOf(f.Rule).Class != finding.ClassRace || len(f.Objects) == 0 || len(f.Parts) == 0 || len(f.Parts[0].Stack) == 0 {
		return ""
	}
	var functions []string
	for _, p := range f.Parts {
		function := ""
		if len(p.Stack) > 0 {
			fr := p.Stack[telling(p.Stack)]
			if fr.Func == "" && fr.Module == "" {
				return ""
			}
			function = stableFrame(fr)
		}
		functions = append(functions, function)
	}
	object := objectKey(&f.Objects[0], stableText)
	if path := indexes.ReplaceAllString(f.Objects[0].Path, "[]"); strings.Contains(path, ".") {
		object += path // members are apart, elements are not
	}
	slices.Sort(functions)
	return fmt.Sprintf("%s\n%s\n\n%s", f.Rule, strings.Join(functions, "\n"), object)
}

var indexes = regexp.MustCompile(`\[\d+\]`)

// offsetOf tells places apart by offset only where there is a module: a bare address differs from run to run.
func offsetOf(fr finding.Frame) uint64 {
	if fr.Module == "" {
		return 0
	}
	return fr.Offset
}

// stableStack leaves out frames of the C and C++ runtimes, which differ from machine to machine, unless there is nothing else.
func stableStack(s finding.Stack) finding.Stack {
	var own finding.Stack
	for _, fr := range s {
		if !isRuntime(fr) {
			own = append(own, fr)
		}
	}
	if len(own) == 0 {
		own = s
	}
	return own[:min(len(own), stableFrames)]
}

func keyOf(f *finding.Finding, stack func(finding.Stack) string) string {
	names := map[string]string{}
	for i := range f.Objects {
		o := &f.Objects[i]
		names[o.ID] = objectKey(o, stack)
		if o.Where == finding.OnStack && ruleOf(f.Rule).Class != finding.ClassRace {
			names[o.ID] = o.Kind + " stack " // in whose frame a lock lies is known or not as threads happen to use it
		}
	}
	var parts []string
	for _, p := range f.Parts {
		var held []string
		for _, h := range p.Held {
			held = append(held, fmt.Sprintf("%s %t %s", names[h.Object], h.Shared, stack(h.Stack)))
		}
		slices.Sort(held)
		parts = append(parts, stack(p.Stack)+" holding "+strings.Join(held, ","))
	}
	slices.Sort(parts)
	parts = slices.Compact(parts) // a circle of five philosophers is that of three
	objects := make([]string, 0, len(names))
	for _, n := range names {
		objects = append(objects, n)
	}
	slices.Sort(objects)
	objects = slices.Compact(objects)
	return string(f.Rule) + "\n" + strings.Join(parts, "\n") + "\n\n" + strings.Join(objects, "\n")
}

// objectKey names o without its address, and without its place in a variable or block: which locks of an array meet differs from run
// to run.
func objectKey(o *finding.Object, stack func(finding.Stack) string) string {
	switch o.Where {
	case finding.Global:
		return fmt.Sprintf("%s global %s %s", o.Kind, filepath.Base(o.Module), o.Symbol)
	case finding.Heap:
		return o.Kind + " heap " + stack(o.Allocated)
	case finding.OnStack:
		return o.Kind + " stack " + o.Func
	case finding.TLS:
		return o.Kind + " tls " + o.Symbol
	}
	return o.Kind + " " + stack(o.Initialised)
}

// runtimeModules are libraries whose frames say nothing about the program: by prefix of the base name.
var runtimeModules = []string{"libc.so", "libc-", "libpthread", "ld-linux", "libstdc++.so", "libc++.so", "libgcc_s", "libripstop", "[vdso]"}

// systemSources are where headers and sources of compilers and libraries lie, as they appear in debug information.
var systemSources = []string{"/usr/include/", "/usr/lib/", "/usr/src/", "/usr/local/include/", "/rustc/", "./nptl/", "../nptl/", "../sysdeps/",
	"./stdlib/", "./csu/", "../csu/", "./malloc/"}

// isRuntime says that fr belongs to the implementation of the language rather than to the program.
func isRuntime(fr finding.Frame) bool {
	base := filepath.Base(fr.Module)
	for _, m := range runtimeModules {
		if strings.HasPrefix(base, m) {
			return true
		}
	}
	for _, d := range systemSources {
		if strings.HasPrefix(fr.File, d) {
			return true
		}
	}
	return false
}

// locate chooses the frame that stands for the finding: the innermost frame of the program itself with a source line, of the first
// part that has any (if no part has a stack, of the first block's allocation); else the innermost with a function; else the innermost.
func locate(f *finding.Finding) finding.Frame {
	for _, p := range f.Parts {
		if len(p.Stack) > 0 {
			return p.Stack[telling(p.Stack)]
		}
	}
	for _, o := range f.Objects { // noticed by no call of the program's
		if len(o.Allocated) > 0 {
			return o.Allocated[telling(o.Allocated)]
		}
	}
	return finding.Frame{}
}

// telling is the index of the frame of s that tells a reader most. s is not empty.
func telling(s finding.Stack) int {
	tests := []func(finding.Frame) bool{
		func(fr finding.Frame) bool { return fr.File != "" && fr.Line > 0 && !isRuntime(fr) },
		func(fr finding.Frame) bool { return fr.Func != "" && !isRuntime(fr) },
		func(fr finding.Frame) bool { return !isRuntime(fr) },
		func(fr finding.Frame) bool { return fr.File != "" && fr.Line > 0 },
		func(fr finding.Frame) bool { return fr.Func != "" },
	}
	for _, ok := range tests {
		if i := slices.IndexFunc(s, ok); i >= 0 {
			return i
		}
	}
	return 0
}
