package report

import "github.com/ripstop/ripstop/internal/finding"

// Rules are the kinds of findings there are, in the order that help shows.
func Rules() []finding.RuleInfo { return finding.Rules }

// ruleOf returns the table's row for rule. A rule that the table lacks is shown by its id rather than lost.
func ruleOf(rule finding.Rule) finding.RuleInfo {
	if info, ok := finding.RuleOf(rule); ok {
		return info
	}
	return finding.RuleInfo{Rule: rule, Title: string(rule), Level: "warning"}
}
