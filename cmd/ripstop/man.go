package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func newMan() *cobra.Command {
	return &cobra.Command{
		Use:    "man DIR",
		Hidden: true,
		Short:  "Write the manual pages to a directory",
		Args:   oneArg("directory"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := writeManual(cmd.Root(), args[0]); err != nil {
				return exit(exitFailed, err)
			}
			return nil
		},
	}
}

// writeManual writes ripstop.1 and one page for each command.
func writeManual(root *cobra.Command, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	write := func(name, text string) error {
		return os.WriteFile(filepath.Join(dir, name+".1"), []byte(text), 0o644)
	}
	if err := write("ripstop", manualRoot(root)); err != nil {
		return err
	}
	for _, c := range root.Commands() {
		if c.Hidden || !isCommand(c) || c.Name() == "help" || c.Name() == "completion" {
			continue
		}
		if err := write("ripstop-"+c.Name(), manualCommand(c)); err != nil {
			return err
		}
	}
	return nil
}

// roff escapes text for man(7): a backslash, a dash that may be copied, and a dot or quote that begins a line.
func roff(s string) string {
	s = strings.NewReplacer(`\`, `\e`, "-", `\-`, "…", `\&...`, "’", "'").Replace(s)
	lines := strings.Split(s, "\n")
	for i, l := range lines {
		if strings.HasPrefix(l, ".") || strings.HasPrefix(l, "'") {
			lines[i] = `\&` + l
		}
	}
	return strings.Join(lines, "\n")
}

// prose turns help text into roff: indented lines stay as they are, the rest is filled.
func prose(text string) string {
	var b strings.Builder
	literal := false
	set := func(want bool) {
		if want != literal {
			b.WriteString(map[bool]string{true: ".nf\n", false: ".fi\n"}[want])
			literal = want
		}
	}
	for _, line := range strings.Split(text, "\n") {
		switch {
		case line == "":
			set(false)
			b.WriteString(".PP\n")
		default:
			set(strings.HasPrefix(line, " "))
			b.WriteString(roff(line) + "\n")
		}
	}
	set(false)
	return strings.ReplaceAll(b.String(), ".PP\n.PP\n", ".PP\n")
}

func manualHead(name, short string) string {
	first := strings.ToLower(short[:1]) + short[1:]
	return fmt.Sprintf(".TH %s 1 \"\" \"ripstop\" \"User Commands\"\n.SH NAME\n%s \\- %s\n", strings.ToUpper(roff(name)), roff(name), roff(first))
}

func manualRoot(root *cobra.Command) string {
	var b strings.Builder
	b.WriteString(manualHead("ripstop", root.Short))
	b.WriteString(".SH SYNOPSIS\n.B ripstop\n.I command\n[flags] [args]\n.SH DESCRIPTION\n" + prose(root.Long))
	b.WriteString(".SH COMMANDS\n")
	for _, c := range root.Commands() {
		if !c.Hidden && isCommand(c) {
			fmt.Fprintf(&b, ".TP\n.B %s\n%s\n", roff(c.Name()), roff(c.Short))
		}
	}
	for _, t := range root.Commands() {
		if !isCommand(t) {
			fmt.Fprintf(&b, ".SH %s\n%s", strings.ToUpper(roff(strings.ReplaceAll(t.Name(), "-", " "))), prose(longOf(t)))
		}
	}
	b.WriteString(".SH SEE ALSO\n.BR ripstop\\-run (1),\n.BR gdb (1)\n")
	return b.String()
}

func manualCommand(c *cobra.Command) string {
	var b strings.Builder
	b.WriteString(manualHead("ripstop-"+c.Name(), c.Short))
	fmt.Fprintf(&b, ".SH SYNOPSIS\n%s\n", roff(c.UseLine()))
	long := longOf(c)
	if long == "" {
		long = c.Short + "."
	}
	b.WriteString(".SH DESCRIPTION\n" + prose(long))
	names, sets := groupsOf(c)
	for _, name := range names {
		fmt.Fprintf(&b, ".SH %s\n", strings.ToUpper(roff(name)))
		sets[name].VisitAll(func(f *pflag.Flag) { b.WriteString(manualFlag(f)) })
	}
	if c.Example != "" {
		b.WriteString(".SH EXAMPLES\n" + prose(c.Example))
	}
	b.WriteString(".SH SEE ALSO\n.BR ripstop (1)\n")
	return b.String()
}

func manualFlag(f *pflag.Flag) string {
	argument, usage := pflag.UnquoteUsage(f)
	head := ""
	if f.Shorthand != "" {
		head = fmt.Sprintf(`\fB%s\fR, `, roff("-"+f.Shorthand))
	}
	head += fmt.Sprintf(`\fB%s\fR`, roff("--"+f.Name))
	switch {
	case argument != "" && f.NoOptDefVal != "":
		head += fmt.Sprintf(`[=\fI%s\fR]`, roff(argument))
	case argument != "":
		head += fmt.Sprintf(` \fI%s\fR`, roff(argument))
	}
	if f.DefValue != "" && f.DefValue != "false" && f.DefValue != "[]" && f.DefValue != "0s" {
		usage += fmt.Sprintf(" (default %s)", f.DefValue)
	}
	return fmt.Sprintf(".TP\n%s\n%s\n", head, roff(usage))
}
