package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ripstop/ripstop/internal/run"
)

// noArgs is for commands that take none.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("%q is too much: %s takes no arguments", args[0], cmd.CommandPath())
	}
	return nil
}

// oneArg is for commands with one argument, called what in words.
func oneArg(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != 1 {
			return fmt.Errorf("%d arguments where one %s is wanted; usage: %s", len(args), what, cmd.UseLine())
		}
		return nil
	}
}

// newHelp shows the page of a command or topic; one that there is not is a mistake.
func newHelp(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:     "help [command or topic]",
		GroupID: "other",
		Short:   "Show what a command does, or a topic of help",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return fmt.Errorf("%d arguments where one command or topic is wanted", len(args))
			}
			if len(args) == 1 && named(root, args[0]) == nil {
				return fmt.Errorf("there is no command or topic %q%s", args[0], meant(root, args[0], "ripstop help "))
			}
			return nil
		},
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			var names []string
			for _, c := range root.Commands() {
				if !c.Hidden {
					names = append(names, c.Name()+"\t"+c.Short)
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(_ *cobra.Command, args []string) error {
			c := root
			if len(args) == 1 {
				c = named(root, args[0])
			}
			c.InitDefaultHelpFlag() // the page is to show them
			c.InitDefaultVersionFlag()
			return c.Help()
		},
	}
}

func named(root *cobra.Command, name string) *cobra.Command {
	for _, c := range root.Commands() {
		if c.Name() == name {
			return c
		}
	}
	return nil
}

// meant is a question behind an error about a word that resembles a command or topic; else "".
func meant(root *cobra.Command, word, before string) string {
	if root.SuggestionsMinimumDistance <= 0 {
		root.SuggestionsMinimumDistance = 2
	}
	for _, name := range root.SuggestionsFor(word) {
		return fmt.Sprintf(" (did you mean '%s%s'?)", before, name)
	}
	return ""
}

// newAgent writes the agent's library, which a run keeps only as long as it lasts.
func newAgent() *cobra.Command {
	return &cobra.Command{
		Use:     "agent DIR",
		GroupID: "other",
		Short:   "Write the agent's library to a directory, for a debugger",
		Long: `Writes libripstop.so, the library that a watched program carries, to a directory.
A run removes its own when it ends, and then a debugger cannot follow stacks
through it in a core dump that the program left. With it gdb can:

  ripstop agent DIR
  gdb -iex 'set solib-search-path DIR' ./prog core

It must be the same ripstop that ran the program.`,
		Args: oneArg("directory"),
		RunE: func(_ *cobra.Command, args []string) error {
			lib, err := run.AgentLibrary()
			if err == nil {
				err = os.MkdirAll(args[0], 0o777)
			}
			if err == nil {
				err = os.WriteFile(filepath.Join(args[0], "libripstop.so"), lib, 0o666)
			}
			return exit(codeOf(err), err)
		},
	}
}

var shells = map[string]func(root *cobra.Command, out *cobra.Command) error{
	"bash": func(root, cmd *cobra.Command) error { return root.GenBashCompletionV2(cmd.OutOrStdout(), true) },
	"zsh":  func(root, cmd *cobra.Command) error { return root.GenZshCompletion(cmd.OutOrStdout()) },
	"fish": func(root, cmd *cobra.Command) error { return root.GenFishCompletion(cmd.OutOrStdout(), true) },
}

// newCompletion prints the script by which a shell completes our command lines.
func newCompletion() *cobra.Command {
	names := []string{"bash", "fish", "zsh"}
	return &cobra.Command{
		Use:     "completion " + strings.Join(names, "|"),
		GroupID: "other",
		Short:   "Print the script by which a shell completes ripstop's commands and flags",
		Long: `Prints the script by which a shell completes ripstop's commands and flags; 'make
install' puts it where shells look. To try it in the shell that you are in:

  . <(ripstop completion bash)
  . <(ripstop completion zsh)
  ripstop completion fish | source`,
		Args: func(cmd *cobra.Command, args []string) error {
			if err := oneArg("shell")(cmd, args); err != nil {
				return err
			}
			if shells[args[0]] == nil {
				return fmt.Errorf("%q is no shell that there is a script for: %s", args[0], strings.Join(names, ", "))
			}
			return nil
		},
		ValidArgsFunction: cobra.FixedCompletions(names, cobra.ShellCompDirectiveNoFileComp),
		RunE: func(cmd *cobra.Command, args []string) error {
			err := shells[args[0]](cmd.Root(), cmd)
			return exit(codeOf(err), err)
		},
	}
}
