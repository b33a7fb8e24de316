package main

import (
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/ripstop/ripstop/internal/doctor"
	"github.com/ripstop/ripstop/internal/run"
)

func newDoctor() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "doctor",
		GroupID: "other",
		Short:   "Show what this machine allows, and what ripstop can do here",
		Long: `Tries what ripstop needs from the machine, kernel, CPU, container and C library.
Each answer is yes, no because of something, or could not tell because of
something. The exit status is 1 if 'ripstop run' cannot work here, else 0.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			r := doctor.Examine(doctor.Options{Agent: run.AgentLibrary})
			var err error
			if asJSON {
				err = r.JSON(cmd.OutOrStdout())
			} else {
				err = r.Text(cmd.OutOrStdout(), statusPaint(cmd.OutOrStdout()))
			}
			switch {
			case err != nil:
				return exit(exitFailed, err)
			case !r.CanRun():
				return exit(1, nil)
			}
			return nil
		},
	}
	flagsOf(cmd).boolean(&asJSON, "json", "", "print JSON")
	return cmd
}

// statusPaint colours answers on a terminal.
func statusPaint(w any) func(doctor.Status, string) string {
	f, ok := w.(*os.File)
	if !ok || os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb" || !term.IsTerminal(int(f.Fd())) {
		return nil
	}
	colors := map[doctor.Status]string{doctor.Yes: "\x1b[32m", doctor.No: "\x1b[31m", doctor.Unknown: "\x1b[33m"}
	return func(s doctor.Status, text string) string { return colors[s] + text + "\x1b[0m" }
}
