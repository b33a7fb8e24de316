package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

const optionsVariable = "RIPSTOP_OPTIONS"

// applyEnvironment sets the flags that RIPSTOP_OPTIONS names and the command line does not. A flag of another command is skipped, so
// that one setting serves run, record and report; one that no command has is an error. The flags of except, which mean something else here, are left alone.
func applyEnvironment(cmd *cobra.Command, except ...string) error {
	text, ok := os.LookupEnv(optionsVariable)
	if !ok {
		return nil
	}
	words, err := splitWords(text)
	if err != nil {
		return fmt.Errorf("%s: %w", optionsVariable, err)
	}
	settings, err := parseSettings(cmd, words)
	if err != nil {
		return fmt.Errorf("%s: %w", optionsVariable, err)
	}
	byUser := map[string]bool{}
	cmd.Flags().Visit(func(f *pflag.Flag) { byUser[f.Name] = true })
	for _, s := range settings {
		if byUser[s.name] || slices.Contains(except, s.name) || cmd.Flags().Lookup(s.name) == nil {
			continue
		}
		if err := cmd.Flags().Set(s.name, s.value); err != nil {
			return fmt.Errorf("%s: %w", optionsVariable, err)
		}
	}
	return nil
}

type setting struct{ name, value string }

// parseSettings reads words as flags of cmd or, where it has no such flag, of another command.
func parseSettings(cmd *cobra.Command, words []string) ([]setting, error) {
	all := pflag.NewFlagSet("", pflag.ContinueOnError)
	all.SetInterspersed(true)
	all.Usage = func() {}
	add := func(f *pflag.Flag) {
		if f.Name == "help" || all.Lookup(f.Name) != nil {
			return
		}
		own := *f
		if own.Shorthand != "" && all.ShorthandLookup(own.Shorthand) != nil {
			own.Shorthand = ""
		}
		all.AddFlag(&own)
	}
	cmd.Flags().VisitAll(add)
	for _, other := range newRoot().Commands() {
		other.Flags().VisitAll(add)
	}
	var settings []setting
	err := all.ParseAll(words, func(f *pflag.Flag, value string) error {
		settings = append(settings, setting{f.Name, value})
		return nil
	})
	if errors.Is(err, pflag.ErrHelp) {
		return nil, errors.New("--help is of no use here")
	}
	if err != nil {
		return nil, err
	}
	if all.NArg() > 0 {
		return nil, fmt.Errorf("%q is not a flag", all.Arg(0))
	}
	return settings, nil
}

// splitWords splits s as a shell would: blanks separate, '…' is literal, in "…" a backslash quotes " and \, outside it quotes
// anything. Nothing is expanded.
func splitWords(s string) ([]string, error) {
	var words []string
	var word strings.Builder
	inWord := false
	quote := byte(0)
	escaped := false
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case escaped:
			if quote == '"' && c != '"' && c != '\\' {
				word.WriteByte('\\')
			}
			word.WriteByte(c)
			escaped = false
		case c == '\\' && quote != '\'':
			escaped, inWord = true, true
		case quote != 0:
			if c == quote {
				quote = 0
			} else {
				word.WriteByte(c)
			}
		case c == '\'' || c == '"':
			quote, inWord = c, true
		case c == ' ' || c == '\t' || c == '\n':
			if inWord {
				words = append(words, word.String())
				word.Reset()
				inWord = false
			}
		default:
			word.WriteByte(c)
			inWord = true
		}
	}
	switch {
	case quote != 0:
		return nil, fmt.Errorf("the quote %c is not closed", quote)
	case escaped:
		return nil, errors.New(`there is nothing behind the last \`)
	case inWord:
		words = append(words, word.String())
	}
	return words, nil
}
