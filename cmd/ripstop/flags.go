package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ripstop/ripstop/internal/report"
)

// yesNo is a flag that takes yes or no. There is no short form without a value: it would swallow the program in `--follow no prog`.
type yesNo bool

func (b *yesNo) String() string {
	if *b {
		return "yes"
	}
	return "no"
}

func (b *yesNo) Type() string { return "yes|no" }

func (b *yesNo) Set(s string) error {
	switch strings.ToLower(s) {
	case "yes", "true", "on", "1":
		*b = true
	case "no", "false", "off", "0":
		*b = false
	default:
		return fmt.Errorf("it takes yes or no")
	}
	return nil
}

// oneOf is a flag with a fixed set of values.
type oneOf struct {
	value  *string
	values []string
}

func (o oneOf) String() string { return *o.value }
func (o oneOf) Type() string   { return strings.Join(o.values, "|") }
func (o oneOf) Set(s string) error {
	for _, v := range o.values {
		if s == v {
			*o.value = s
			return nil
		}
	}
	return fmt.Errorf("it takes one of %s", strings.Join(o.values, ", "))
}

// number is an int that cannot be below min or above max.
type number struct {
	value    *int
	min, max int
}

func (n number) String() string { return fmt.Sprint(*n.value) }
func (n number) Type() string   { return "N" }
func (n number) Set(s string) error {
	var v int
	if _, err := fmt.Sscanf(s+"\n", "%d\n", &v); err != nil || v < n.min || v > n.max {
		return fmt.Errorf("it takes a number from %d to %d", n.min, n.max)
	}
	*n.value = v
	return nil
}

// size is a number of KiB, at most max: 512K, 16M, 1G; without a unit, KiB.
type size struct {
	value *int
	max   int
}

func (s size) String() string {
	if *s.value >= 1<<10 && *s.value%(1<<10) == 0 {
		return fmt.Sprintf("%dM", *s.value>>10)
	}
	return fmt.Sprintf("%dK", *s.value)
}
func (s size) Type() string { return "SIZE" }
func (s size) Set(text string) error {
	unit := 1
	digits := strings.TrimRight(text, "kKmMgG")
	switch strings.ToLower(text[len(digits):]) {
	case "", "k":
	case "m":
		unit = 1 << 10
	case "g":
		unit = 1 << 20
	default:
		unit = 0
	}
	n, err := strconv.ParseUint(digits, 10, 32)
	if err != nil || unit == 0 || n > uint64(s.max/unit) {
		return fmt.Errorf("it takes a size such as 512K or 16M, at most %s", size{&s.max, s.max})
	}
	*s.value = int(n) * unit
	return nil
}

// share is a part of something, given in per cent.
type share float64

func (s *share) String() string { return strconv.FormatFloat(float64(*s)*100, 'g', -1, 64) + "%" }
func (s *share) Type() string   { return "N%" }
func (s *share) Set(text string) error {
	v, err := strconv.ParseFloat(strings.TrimSuffix(text, "%"), 64)
	if err != nil || v < 0 || v > 100 {
		return fmt.Errorf("it takes a percentage from 0%% to 100%%")
	}
	*s = share(v / 100)
	return nil
}

// flagSet adds flags in the order and under the headings that help shows.
type flagSet struct {
	cmd   *cobra.Command
	group string
}

const groupAnnotation = "ripstop-group"

func flagsOf(cmd *cobra.Command) *flagSet {
	cmd.Flags().SortFlags = false
	return &flagSet{cmd: cmd}
}

func (fs *flagSet) under(group string) *flagSet { fs.group = group; return fs }

// note files the flag name under the current heading.
func (fs *flagSet) note(name string) {
	f := fs.cmd.Flags().Lookup(name)
	if f.Annotations == nil {
		f.Annotations = map[string][]string{}
	}
	f.Annotations[groupAnnotation] = []string{fs.group}
}

func (fs *flagSet) yesNo(p *bool, name string, value bool, usage string) {
	*p = value
	fs.cmd.Flags().Var((*yesNo)(p), name, usage)
	fs.complete(name, "yes", "no")
	fs.note(name)
}

func (fs *flagSet) oneOf(p *string, name, value string, values []string, usage string) {
	*p = value
	fs.cmd.Flags().Var(oneOf{p, values}, name, usage)
	fs.complete(name, values...)
	fs.note(name)
}

func (fs *flagSet) number(p *int, name string, value, min, max int, usage string) {
	*p = value
	fs.cmd.Flags().Var(number{p, min, max}, name, usage)
	fs.note(name)
}

// long is a flag's time, 0 or more.
type long struct{ p *time.Duration }

func (l long) Set(s string) error {
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 {
		return errors.New("it takes a time such as 30s or 5m")
	}
	*l.p = d
	return nil
}
func (l long) Type() string { return "duration" }
func (l long) String() string {
	if l.p == nil || *l.p == 0 {
		return "0" // for pflag no default worth showing
	}
	return l.p.String()
}

func (fs *flagSet) long(p *time.Duration, name string, value time.Duration, usage string) {
	*p = value
	fs.cmd.Flags().Var(long{p}, name, usage)
	fs.note(name)
}

func (fs *flagSet) size(p *int, name string, value, most int, usage string) {
	*p = value
	fs.cmd.Flags().Var(size{p, most}, name, usage)
	fs.note(name)
}

func (fs *flagSet) text(p *string, name, short, value, usage string) {
	fs.cmd.Flags().StringVarP(p, name, short, value, usage)
	fs.note(name)
}

func (fs *flagSet) list(p *[]string, name, usage string) {
	fs.cmd.Flags().StringArrayVar(p, name, nil, usage)
	fs.note(name)
}

func (fs *flagSet) boolean(p *bool, name, short, usage string) {
	fs.cmd.Flags().BoolVarP(p, name, short, false, usage)
	fs.note(name)
}

func (fs *flagSet) complete(name string, values ...string) {
	err := fs.cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	if err != nil {
		panic("BUG: " + err.Error())
	}
}

// reportFlags are the flags of every command that reports findings.
func (fs *flagSet) reportFlags(o *report.Options, exitCode *int) {
	fs.under("What is reported")
	fs.list(&o.Suppressions, "suppressions", "leave out the findings that `FILE` lists (see 'ripstop help suppressions'); may be repeated")
	fs.boolean(&o.GenSuppressions, "gen-suppressions", "", "print a suppression behind each finding")
	fs.text(&o.Baseline, "baseline", "", "", "report only what is not in `FILE`, a report made earlier by --format json=FILE")
	fs.number(exitCode, "exit-code", exitFound, 0, 255, "exit status when something was found; 0: as when nothing was")
	fs.under("How it is reported")
	fs.cmd.Flags().StringArrayVar(&o.Formats, "format", nil, "write `FORMAT[=FILE],...`, each of "+strings.Join(report.Formats, ", ")+" (default text); see 'ripstop help formats'")
	fs.complete("format", report.Formats...)
	fs.note("format")
	fs.text(&o.Output, "output", "o", "", "`FILE` for the one format that names none; - is standard output")
	fs.oneOf(&o.Color, "color", "auto", []string{"auto", "always", "never"}, "colour the text; auto: on a terminal, unless NO_COLOR is set")
	source := true
	fs.yesNo(&source, "source", true, "show source lines")
	fs.text(&o.SourceRoot, "source-root", "", "", "`DIR` that file names are shown relative to (default the current directory)")
	fs.list(&o.SourceMap, "source-map", "look for source files `FROM=TO`: below TO, where debug information says FROM; may be repeated")
	fs.boolean(&o.Verbose, "verbose", "v", "say more: unused suppressions, what was left out for a good reason")
	o.Version = versionString()
	fs.cmd.PreRunE = func(cmd *cobra.Command, _ []string) error {
		if err := applyEnvironment(cmd); err != nil {
			return err
		}
		o.NoSource = !source
		return nil
	}
}

// groupsOf lists the flags of cmd by heading, in order; flags without one come last.
func groupsOf(cmd *cobra.Command) (names []string, sets map[string]*pflag.FlagSet) {
	sets = map[string]*pflag.FlagSet{}
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		group := "Flags"
		if g := f.Annotations[groupAnnotation]; len(g) > 0 && g[0] != "" {
			group = g[0]
		}
		if sets[group] == nil {
			sets[group] = pflag.NewFlagSet(group, pflag.ContinueOnError)
			sets[group].SortFlags = false
			names = append(names, group)
		}
		sets[group].AddFlag(f)
	})
	for i, n := range names {
		if n == "Flags" && i != len(names)-1 {
			names = append(append(names[:i:i], names[i+1:]...), n)
			break
		}
	}
	return names, sets
}
