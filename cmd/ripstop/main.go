// Command ripstop finds races, deadlocks and misuse in unmodified multithreaded programs. This directory turns the command line into
// one call of a package under internal; what a command means is decided there.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
)

// version is set by the Makefile.
var version string

// Exit codes of our own, as env(1) and timeout(1) have them. See `ripstop help exit-codes`.
const (
	exitFound  = 66
	exitFailed = 125
)

func main() {
	collectLess()
	os.Exit(execute(os.Args[1:], os.Stdout, os.Stderr))
}

// exitError carries an exit code out of a cobra command. A nil err says nothing: whoever failed has spoken already.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return ""
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// exit makes of a code and an error what cobra takes.
func exit(code int, err error) error {
	if code == 0 && err == nil {
		return nil
	}
	return &exitError{code, err}
}

// execute runs one command line and returns the exit code.
func execute(args []string, stdout, stderr io.Writer) int {
	root := newRoot()
	root.SetOut(stdout)
	root.SetErr(stderr)
	// ripstop -- prog is ripstop run -- prog.
	if len(args) > 0 && args[0] == "--" {
		args = append([]string{"run"}, args...)
	}
	root.SetArgs(args)
	cmd, err := root.ExecuteC()
	if err == nil {
		return 0
	}
	var ee *exitError
	if errors.As(err, &ee) {
		if ee.err != nil {
			fmt.Fprintf(stderr, "ripstop: %v\n", ee.err)
		}
		return ee.code
	}
	// Everything else is a mistake on the command line.
	fmt.Fprintf(stderr, "ripstop: %s%v\n", prefixOf(cmd), err)
	page := strings.TrimSuffix(prefixOf(cmd), ": ")
	if page == "help" {
		page = "" // its own says nothing of what there is
	}
	fmt.Fprintf(stderr, "Try '%s' for what there is.\n", strings.TrimSpace("ripstop help "+page))
	return exitFailed
}

// prefixOf names a command in an error, without the program's name.
func prefixOf(cmd *cobra.Command) string {
	if cmd == nil || !cmd.HasParent() {
		return ""
	}
	return strings.TrimPrefix(cmd.CommandPath(), "ripstop ") + ": "
}

func versionString() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "unknown"
}

func newRoot() *cobra.Command {
	cobra.EnableCommandSorting = false // the order below is the order of help
	root := &cobra.Command{
		Use:   "ripstop",
		Short: "Find deadlocks, lock-order inversions and misuse of threads in unmodified programs",
		Long: `ripstop runs an unmodified multithreaded x86-64 Linux program and reports what is
wrong with its use of threads: deadlocks as they happen, lock-order inversions
that did not hang this time, and misuse of locks, conditions, barriers,
semaphores and threads. The program needs no rebuild; debug information (-g)
gives source lines.

  ripstop run -- ./prog arg…      run a program and report what is found
  ripstop -- ./prog arg…          the same`,
		Version:          versionString(),
		SilenceErrors:    true,
		SilenceUsage:     true,
		TraverseChildren: true,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			return fmt.Errorf("no command %q%s; to run a program write: ripstop run -- %s", args[0], meant(cmd, args[0], "ripstop "), strings.Join(args, " "))
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetVersionTemplate("ripstop {{.Version}}\n")
	root.AddGroup(&cobra.Group{ID: "find", Title: "Finding:"}, &cobra.Group{ID: "trace", Title: "Traces:"}, &cobra.Group{ID: "measure", Title: "Measuring:"},
		&cobra.Group{ID: "other", Title: "Other:"})
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetHelpCommand(newHelp(root))
	root.AddCommand(newRun(), newGuard(), newCtl(), newRecord(), newReport(), newAnalyze(), newDump(), newCount(), newSyscalls(), newDoctor(), newVersion(), newAgent(), newCompletion(), newMan())
	root.AddCommand(topics()...)
	root.Flags().SetInterspersed(false) // ripstop ./prog -x: what is told is the missing "run"
	setUsage(root)
	return root
}
