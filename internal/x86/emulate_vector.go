package x86

var vectorSemantics []semanticsRow
