package finding

import (
	"regexp"
	"strings"
	"testing"

	"github.com/ripstop/ripstop/internal/wire"
)

// A rule without words, with an id used twice, or with an id that cannot stand in a SARIF file or a suppression, is a bug.
func TestRulesAreComplete(t *testing.T) {
	id := regexp.MustCompile(`^[a-z]+(-[a-z]+)*$`)
	seen := map[Rule]bool{}
	for _, r := range Rules {
		if !id.MatchString(string(r.Rule)) {
			t.Errorf("rule id %q", r.Rule)
		}
		if seen[r.Rule] {
			t.Errorf("rule %s twice", r.Rule)
		}
		seen[r.Rule] = true
		if r.Title == "" || len(r.Help) < 80 || !strings.HasSuffix(r.Help, ".") {
			t.Errorf("rule %s: title %q, help of %d bytes", r.Rule, r.Title, len(r.Help))
		}
		if r.Level != "error" && r.Level != "warning" {
			t.Errorf("rule %s: level %q", r.Rule, r.Level)
		}
		switch r.Class {
		case ClassDeadlock, ClassMutex, ClassThread, ClassHeap, ClassRace, ClassCrash:
		default:
			t.Errorf("rule %s: class %q", r.Rule, r.Class)
		}
		if got, ok := RuleOf(r.Rule); !ok || got != r {
			t.Errorf("RuleOf(%s) = %v, %v", r.Rule, got, ok)
		}
	}
	if _, ok := RuleOf("no-such-rule"); ok {
		t.Error("RuleOf knows a rule that the table lacks")
	}
}

// Every kind of object that an event can name has words and a prefix of its own, so that M1 and RW1 cannot be taken for one another.
func TestEveryKindHasWords(t *testing.T) {
	prefixes := map[string]string{}
	for _, e := range wire.Enums {
		if e.Name != "Object" {
			continue
		}
		for _, v := range e.Values {
			p := KindPrefix(v.Name)
			if KindWords(v.Name) == "object" || p == "X" {
				t.Errorf("kind %s has no words", v.Name)
			}
			if other := prefixes[p]; other != "" {
				t.Errorf("%s and %s both have prefix %s", other, v.Name, p)
			}
			prefixes[p] = v.Name
		}
	}
	if len(prefixes) == 0 {
		t.Fatal("wire has no enum Object")
	}
	if KindWords("13?") != "object" || KindPrefix("13?") != "X" {
		t.Error("an unknown kind must have neutral words")
	}
}
