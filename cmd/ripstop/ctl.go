package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/ripstop/ripstop/internal/ctl"
	"github.com/ripstop/ripstop/internal/report"
)

// ctlFlags is a question and how the answer is shown.
type ctlFlags struct {
	ctl.Question
	timeout time.Duration
}

const (
	ctlTimeout    = 30 * time.Second
	ctlMostWaited = time.Hour
)

func newCtl() *cobra.Command {
	o := &ctlFlags{timeout: ctlTimeout}
	cmd := &cobra.Command{
		Use:     "ctl [flags] PID " + strings.Join(ctl.Questions, "|"),
		GroupID: "find",
		Short:   "Ask a ripstop that runs: its status, a report so far, to execute the present epoch again",
		Long: `Asks the 'ripstop run' or 'ripstop guard' that watches a process. PID is the
process's, a watched child's, or ripstop's own. Only the same user and root may ask.
The program notices nothing.

  status       program, mode, threads, findings so far; epochs, how many were lost
               and why, and how long the present one is
  report       the findings up to now in the chosen format, as at the program's end
  checkpoint   of 'guard': ends the present epoch; another begins
  rollback     likewise, and the epoch that ended is rolled back and executed again
               in place; says whether it came out identical, or in what it differed.
               The program goes on from where it was, whatever came of that

The exit status is 0 when it was done, whatever a re-execution came to; of report 0, or
66 when something was found (or what the run has for --exit-code); 125 when nobody
watches the process, it is not recorded, or an answer was not to be had in time.`,
		Example: `  ripstop ctl $(pidof server) status
  ripstop ctl --format sarif 1234 report > so-far.sarif
  ripstop ctl 1234 rollback`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 2 {
				return fmt.Errorf("%d arguments where a process and a question are wanted; usage: %s", len(args), cmd.UseLine())
			}
			pid, err := strconv.ParseUint(args[0], 10, 22)
			if err != nil || pid == 0 {
				return fmt.Errorf("%q is no process id", args[0])
			}
			if !slices.Contains(ctl.Questions, args[1]) {
				return fmt.Errorf("%q is none of %s", args[1], strings.Join(ctl.Questions, ", "))
			}
			o.PID, o.Do = int(pid), args[1]
			return nil
		},
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) == 1 {
				return ctl.Questions, cobra.ShellCompDirectiveNoFileComp
			}
			return nil, cobra.ShellCompDirectiveNoFileComp
		},
		PreRunE: func(cmd *cobra.Command, _ []string) error { return applyEnvironment(cmd, "format") },
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.Do != ctl.DoReport && o.Format != "text" && o.Format != "json" {
				return fmt.Errorf("--format %s is of reports: a %s has text and json", o.Format, o.Do)
			}
			if o.timeout < time.Millisecond || o.timeout > ctlMostWaited {
				return fmt.Errorf("--timeout takes a time from 1ms to %v", ctlMostWaited)
			}
			o.WithinMS = o.timeout.Milliseconds()
			return exit(showAnswer(o, jobs.ctl(o.Question), cmd.OutOrStdout(), cmd.ErrOrStderr()))
		},
	}
	fs := flagsOf(cmd)
	fs.oneOf(&o.Format, "format", "text", report.Formats, "how the answer is written, on standard output: text or json; a report in any format of 'ripstop help formats'")
	cmd.Flags().Var(long{&o.timeout}, "timeout", "wait `LONG` (10s, 2m) for the answer")
	fs.note("timeout")
	return cmd
}

// showAnswer writes an answer, and gives the exit status.
func showAnswer(o *ctlFlags, a ctl.Answer, out, errs io.Writer) (int, error) {
	var err error
	switch {
	case a.Outcome != ctl.Done:
		return exitFailed, errors.New(printable(a.Why))
	case o.Do == ctl.DoReport:
		if len(a.Report) == 0 && o.Format == "text" {
			fmt.Fprintln(errs, "ripstop: nothing was found so far")
		}
		_, err = out.Write(a.Report)
		if err == nil {
			return a.Exit, nil
		}
	case o.Format == "json" && a.Status != nil:
		err = json.NewEncoder(out).Encode(struct {
			Type string `json:"type"`
			*ctl.Status
		}{o.Do, a.Status})
	case o.Format == "json" && a.Epoch != nil:
		err = json.NewEncoder(out).Encode(struct {
			Type string `json:"type"`
			*ctl.Epoch
		}{o.Do, a.Epoch})
	case a.Status != nil:
		_, err = io.WriteString(out, statusText(a.Status))
	case a.Epoch != nil:
		_, err = io.WriteString(out, epochText(a.Epoch))
	default:
		err = errors.New("the answer says nothing")
	}
	return codeOf(err), err
}

// printable keeps a terminal from obeying what a process calls itself.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, s)
}

func statusText(s *ctl.Status) string {
	var b strings.Builder
	row := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "%-15s %s\n", name, printable(fmt.Sprintf(format, args...)))
	}
	row("program", "%s (pid %d)", s.Program, s.PID)
	row("ripstop", "%s (pid %d)", s.Mode, s.Ripstop)
	row("since", "%s, for %v", s.Since.Local().Format(time.DateTime), time.Since(s.Since).Round(time.Second/10))
	row("threads", "%d", s.Threads)
	if s.Processes != 1 {
		row("processes", "%d are watched", s.Processes)
	}
	findings := fmt.Sprint(s.Findings)
	if s.Suppressed > 0 {
		findings += fmt.Sprintf(", %d suppressed", s.Suppressed)
	}
	if s.Known > 0 {
		findings += fmt.Sprintf(", %d known from the baseline", s.Known)
	}
	row("findings", "%s", findings)
	e := s.Epochs
	if e == nil {
		row("epochs", "none are recorded")
		return b.String()
	}
	var lost uint64
	for _, n := range e.Lost {
		lost += n
	}
	row("epochs", "%d begun, %d ended, %d of them lost", e.Begun, e.Ended, lost)
	for _, why := range slices.Sorted(maps.Keys(e.Lost)) {
		last := ""
		if why == e.LastLost {
			last = " (the last one)"
		}
		row("  lost", "%d: %s%s", e.Lost[why], why, last)
	}
	for _, verdict := range slices.Sorted(maps.Keys(e.Verdicts)) {
		row("executed again", "%d: %s", e.Verdicts[verdict], verdict)
	}
	if e.Busy > 0 {
		row("not ended", "%d times, as not all threads came to it", e.Busy)
	}
	present := "not recorded any more"
	if e.Recording {
		present = "for " + roundMS(e.PresentMS)
		switch {
		case e.LogBytes != nil && e.Events != nil:
			present += fmt.Sprintf(", %d events, log of %d KiB", *e.Events, (*e.LogBytes+1023)/1024)
		case e.Unknown != "":
			present += "; its log is not known: " + e.Unknown
		}
		if e.NowLost != "" {
			present += "; lost already: " + e.NowLost
		}
	}
	row("present epoch", "%s", present)
	return b.String()
}

func roundMS(ms float64) string {
	return time.Duration(ms * float64(time.Millisecond)).Round(10 * time.Microsecond).String()
}

func epochText(e *ctl.Epoch) string {
	var b strings.Builder
	if e.Verdict != "" {
		tries := "once"
		if e.Tries != 1 {
			tries = fmt.Sprintf("%d times", e.Tries)
		}
		fmt.Fprintf(&b, "rolled back and executed again %s, %d events, in %s: %s\n", tries, e.Events, roundMS(e.TookMS), printable(e.Words))
		if d := e.Differs; d != nil {
			fmt.Fprintf(&b, "the first difference: thread %d, event %d, address %s: %s, then %s\n", d.Thread, d.Event, printable(d.Address), printable(d.Was), printable(d.Is))
		}
		fmt.Fprintf(&b, "epoch %d has begun\n", e.Number)
		return b.String()
	}
	fmt.Fprintf(&b, "epoch %d has begun; the end of the one before (%d events) took %s\n", e.Number, e.Events, roundMS(e.TookMS))
	if e.LostAs != "" {
		fmt.Fprintf(&b, "that one was lost: %s\n", printable(e.LostAs))
	}
	return b.String()
}
