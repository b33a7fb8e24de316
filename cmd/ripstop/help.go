package main

import (
	"fmt"
	"io"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ripstop/ripstop/internal/report"
	"github.com/ripstop/ripstop/internal/run"
)

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		GroupID: "other",
		Short:   "Show the version of ripstop",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			agentText := "agent built in"
			if _, err := run.AgentLibrary(); err != nil {
				agentText = "no agent built in"
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "ripstop %s (%s, %s/%s, %s)\n",
				versionString(), runtime.Version(), runtime.GOOS, runtime.GOARCH, agentText)
			return exit(codeOf(err), err)
		},
	}
}

func codeOf(err error) int {
	if err != nil {
		return exitFailed
	}
	return 0
}

// longIs is the annotation of a page whose text is made when it is asked for: nobody who runs a program does.
const longIs = "long"

func longOf(c *cobra.Command) string {
	if c.Annotations[longIs] == "rules" {
		return rulesText()
	}
	return c.Long
}

// topics are pages of help without a command.
func topics() []*cobra.Command {
	list := []*cobra.Command{
		{Use: "rules", Short: "What is found, and what to do about it", Annotations: map[string]string{longIs: "rules"}},
		{Use: "suppressions", Short: "How to leave findings out", Long: suppressionsText},
		{Use: "exit-codes", Short: "What the exit status means", Long: exitCodesText},
		{Use: "options", Short: "RIPSTOP_OPTIONS and other variables", Long: optionsText},
		{Use: "formats", Short: "The formats of reports", Long: formatsText},
	}
	for _, c := range list {
		c.Args = noArgs
		c.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	}
	return list
}

const suppressionsText = `A suppression file has one suppression a line, in ThreadSanitizer's syntax:

  # why this is no bug, or whose it is
  deadlock:^cache_refill$
  mutex:libfoo.so
  called_from_lib:libbar.so
  lock-order-inversion:server+0x4c1b

Before the colon stands a class of findings (deadlock, mutex, thread, heap, race),
the name of one rule ('ripstop help rules' lists them), race_top, or
called_from_lib. Behind it stands a pattern: part of a name, in which * stands for
anything, ^ at the beginning and $ at the end tie it to the ends of the name.

A class or rule matches when the pattern fits the function, the source file, the
module (library or program) or module+0xoffset of any frame of the finding, or the
symbol of one of its objects. called_from_lib matches when the call that was wrong,
or the one that took a lock, was made by that module itself. race_top matches a race
one of whose two accesses was made by that very function, not by what it called.

ThreadSanitizer's signal is accepted and matches nothing here.

  ripstop run --gen-suppressions -- ./prog        prints one for each finding
  ripstop run --suppressions FILE -- ./prog       leaves out what FILE names

What was suppressed is counted at the end; --verbose lists what matched nothing.

To leave out all that is known today and see only what is new, keep a report:

  ripstop run --format json=known.json -- ./prog
  ripstop run --baseline known.json -- ./prog`

const exitCodesText = `  the program's own   nothing was found
  66                  something was found (--exit-code N changes it)
  125                 ripstop itself failed: wrong flags, unreadable file, no session
  126                 the program was found but cannot be run or watched: not
                      executable, statically linked, not x86-64, not glibc, setuid
  127                 the program was not found

When the program dies by a signal and nothing was found, ripstop dies by the same
signal, so that the shell sees what it would have seen. Findings that a suppression
or a baseline names do not count.

  ripstop report      0, or 66 when something was found
  ripstop analyze     likewise
  ripstop ctl         likewise of 'report'; else 0, or 125 when it was not done
  ripstop doctor      0, or 1 when 'ripstop run' cannot work here`

const optionsText = `RIPSTOP_OPTIONS holds flags, as on the command line and quoted as in a shell:

  RIPSTOP_OPTIONS='--format text,json=/tmp/ripstop.%p.json --stack-depth 40'

They hold for every command that has them; a flag of another command is skipped. A
flag given on the command line replaces what the variable says of it.

  NO_COLOR            any value: no colours, unless --color=always
  TMPDIR              where the session's directory is made
  XDG_CACHE_HOME      where unwind tables of libraries, and what is known of their code, are kept
                      (default ~/.cache; at most 256 and 768 MiB)`

const formatsText = `--format takes one or more of these, each with a file of its own if you like:

  text     blocks in the shape of ThreadSanitizer's, for people; a line that begins
           with "SUMMARY: ripstop:" ends each
  json     one JSON object a line: the run, each finding when it is found, a
           summary; docs/findings-schema.json describes them
  sarif    SARIF 2.1.0, for code scanning
  junit    JUnit XML: each finding is a failed test case
  github   annotations of a GitHub workflow

  ripstop run --format sarif -o report.sarif -- ./prog
  ripstop run --format text,junit=ripstop.xml,github -- ./prog

What has no file goes to standard error (run) or standard output (report, analyze). In the
name of a file, %p stands for the process id of ripstop.`

// rulesText is a paragraph for each rule.
func rulesText() string {
	var b strings.Builder
	b.WriteString("The name is what stands in SUMMARY lines and what suppressions take; behind it its class.\n" +
		"Rules of the class race, and use-after-free-access, are found by 'ripstop analyze' and\n'ripstop run --full'; heap-overflow, heap-underflow and use-after-free-write by\n'ripstop guard'.\n")
	for _, info := range report.Rules() {
		fmt.Fprintf(&b, "\n%s (%s)\n", info.Rule, info.Class)
		for _, line := range wrap(info.Help, 76) {
			fmt.Fprintf(&b, "    %s\n", line)
		}
	}
	return strings.TrimRight(b.String(), "\n")
}

// wrap breaks text into lines of at most width bytes at blanks.
func wrap(text string, width int) []string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(text) {
		if line != "" && len(line)+1+len(word) > width {
			lines = append(lines, line)
			line = ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	return append(lines, line)
}

// setUsage makes help show flags under their headings.
func setUsage(root *cobra.Command) {
	root.SetUsageFunc(func(cmd *cobra.Command) error {
		writeUsage(cmd.OutOrStderr(), cmd)
		return nil
	})
	root.SetHelpFunc(func(cmd *cobra.Command, _ []string) {
		w := cmd.OutOrStdout()
		if long := longOf(cmd); long != "" {
			fmt.Fprintf(w, "%s\n", long)
		} else {
			fmt.Fprintf(w, "%s.\n", cmd.Short)
		}
		if isCommand(cmd) {
			fmt.Fprintln(w)
			writeUsage(w, cmd)
		}
	})
}

func writeUsage(w io.Writer, cmd *cobra.Command) {
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(w, "Usage: %s COMMAND [flags] [args…]\n", cmd.CommandPath())
	} else {
		fmt.Fprintf(w, "Usage: %s\n", cmd.UseLine())
	}
	if cmd.HasExample() {
		fmt.Fprintf(w, "\nExamples:\n%s\n", cmd.Example)
	}
	writeCommands(w, cmd)
	names, sets := groupsOf(cmd)
	for _, name := range names {
		fmt.Fprintf(w, "\n%s:\n%s", name, sets[name].FlagUsagesWrapped(100))
	}
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(w, "\n'%s help COMMAND' says more of a command or topic.\n", cmd.Root().Name())
	}
}

func writeCommands(w io.Writer, cmd *cobra.Command) {
	if !cmd.HasAvailableSubCommands() {
		return
	}
	list := func(title string, want func(*cobra.Command) bool) {
		first := true
		for _, c := range cmd.Commands() {
			if c.Hidden || !want(c) {
				continue
			}
			if first {
				fmt.Fprintf(w, "\n%s\n", title)
				first = false
			}
			fmt.Fprintf(w, "  %-14s %s\n", c.Name(), c.Short)
		}
	}
	for _, g := range cmd.Groups() {
		list(g.Title, func(c *cobra.Command) bool { return c.GroupID == g.ID && isCommand(c) })
	}
	if len(cmd.Groups()) == 0 {
		list("Commands:", isCommand)
	}
	list("Topics of help:", func(c *cobra.Command) bool { return !isCommand(c) })
}

// isCommand is false for topics of help.
func isCommand(c *cobra.Command) bool {
	return c.GroupID != "" || c.Hidden || !c.HasParent()
}
