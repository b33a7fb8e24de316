package count

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/ripstop/ripstop/internal/patch"
)

// WriteText writes the profile for people: what ran by kind, the top functions and lines, and what was not counted. Top 0 shows all.
func (p *Profile) WriteText(w io.Writer, n Namer, top int) error {
	b := bufio.NewWriter(w)
	total := p.Counts()
	counted := 0
	for _, m := range p.Modules {
		if m.Why == "" {
			counted++
		}
	}
	fmt.Fprintf(b, "==================\nripstop: %s memory instructions ran in %s of %s\n", grouped(total.Total()), plural(counted, "module"),
		plural(len(p.Processes), "process"))
	if total.Total() > 0 {
		fmt.Fprintf(b, "\n%20s  %6s  kind\n", "executed", "share")
		for k := range Kinds {
			if total[k] > 0 {
				fmt.Fprintf(b, "%20s  %6s  %v\n", grouped(total[k]), share(total[k], total.Total()), k)
			}
		}
		p.table(b, "function", top, p.Functions(n), total.Total(), func(l *Place) string {
			if l.Func == "" && l.Start != 0 {
				return fmt.Sprintf("%s+%#x", printable(l.Module.name()), l.Start)
			}
			return fmt.Sprintf("%s (%s)", nameOr(l.Func, "?"), printable(l.Module.name()))
		})
		p.table(b, "line", top, p.Lines(n), total.Total(), func(l *Place) string {
			return fmt.Sprintf("%s:%d %s", printable(filepath.Base(l.File)), l.Line, nameOr(l.Func, "?"))
		})
	}
	if missed := p.missed(); len(missed) > 0 {
		b.WriteString("\nNot counted:\n")
		for _, s := range missed {
			fmt.Fprintf(b, "  %s\n", printable(s))
		}
	}
	b.WriteString("==================\n")
	return b.Flush()
}

// table writes places, the columns being the kinds that most of them have.
func (p *Profile) table(w io.Writer, what string, top int, list []Place, total uint64, name func(*Place) string) {
	if len(list) == 0 {
		return
	}
	columns := []Kind{Load, Store, ReadWrite, Locked}
	fmt.Fprintf(w, "\n%20s  %6s", "executed", "share")
	for _, k := range columns {
		fmt.Fprintf(w, "  %15v", k)
	}
	fmt.Fprintf(w, "  %15s  %s\n", "other", what)
	for i := range list {
		l := &list[i]
		if top > 0 && i == top {
			var rest uint64
			for _, r := range list[i:] {
				rest += r.Counts.Total()
			}
			fmt.Fprintf(w, "%20s  %6s  in %s more\n", grouped(rest), share(rest, total), plural(len(list)-i, what))
			break
		}
		n := l.Counts.Total()
		fmt.Fprintf(w, "%20s  %6s", grouped(n), share(n, total))
		other := n
		for _, k := range columns {
			fmt.Fprintf(w, "  %15s", grouped(l.Counts[k]))
			other -= l.Counts[k]
		}
		fmt.Fprintf(w, "  %15s  %s\n", grouped(other), name(l))
	}
}

// listed is how many names a list shows.
const listed = 6

// missed says what was not counted.
func (p *Profile) missed() (list []string) {
	left := map[string][]string{} // modules of which nothing was counted, by reason
	for _, m := range p.Modules {
		if m.Why != "" {
			left[m.Why] = append(left[m.Why], m.name())
		}
	}
	for _, why := range slices.Sorted(maps.Keys(left)) {
		names := left[why]
		if n := len(names); n > listed {
			names = append(names[:listed:listed], fmt.Sprintf("%d more", n-listed))
		}
		list = append(list, fmt.Sprintf("%s: %s", strings.Join(names, ", "), why))
	}
	for _, m := range p.Modules {
		if m.Why != "" {
			continue
		}
		reasons := map[string]int{}
		for i := range m.Missed {
			reasons[m.Missed[i].Why]++
		}
		for _, r := range slices.Sorted(maps.Keys(reasons)) {
			list = append(list, fmt.Sprintf("%s: %s of %d: %s", m.name(), plural(reasons[r], "memory instruction"), len(m.Insts)+len(m.Missed), r))
		}
		if m.Undecoded > 0 {
			list = append(list, fmt.Sprintf("%s: what %d bytes of its code do, in which no instructions are known", m.name(), m.Undecoded))
		}
	}
	return append(list, p.NotCounted...)
}

// tierLines says how instructions were patched, for --stats.
func (p *Profile) tierLines() (lines []string) {
	sites, executed := p.Tiers()
	var allSites, all uint64
	for t := range patch.Tiers {
		allSites += sites[t]
		all += executed[t]
	}
	for t := range patch.Tiers {
		lines = append(lines, fmt.Sprintf("%-17s  %12s sites %8s  %20s executed %8s", t, grouped(sites[t]), fine(sites[t], allSites), grouped(executed[t]), fine(executed[t], all)))
	}
	return lines
}

// grouped writes a number in groups of three digits.
func grouped(n uint64) string {
	s := strconv.FormatUint(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

func share(n, of uint64) string { return fmt.Sprintf("%.1f%%", 100*float64(n)/float64(max(of, 1))) }
func fine(n, of uint64) string  { return fmt.Sprintf("%.3f%%", 100*float64(n)/float64(max(of, 1))) }

func plural(n int, what string) string {
	switch {
	case n == 1:
		return "1 " + what
	case strings.HasSuffix(what, "s"):
		return fmt.Sprintf("%d %ses", n, what)
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func nameOr(name, or string) string {
	if name == "" {
		return or
	}
	return printable(name)
}

// printable replaces what would move a terminal's cursor: names come from the program's files.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, s)
}
