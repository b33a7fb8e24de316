package access

import (
	"os"
	"regexp"
	"slices"
	"testing"
)

// The agent leaves out the accesses of libc's functions that the same libraries call (module.c).
func TestLeftOutByTheAgentToo(t *testing.T) {
	b, err := os.ReadFile("../agent/c/module.c")
	if err != nil {
		t.Fatal(err)
	}
	list := regexp.MustCompile(`left_out_names\[\] = \{([^}]*)\}`).FindSubmatch(b)
	if list == nil {
		t.Fatal("no left_out_names")
	}
	var names []string
	for _, m := range regexp.MustCompile(`"([^"]*)"`).FindAllSubmatch(list[1], -1) {
		names = append(names, string(m[1]))
	}
	for _, want := range append(append(slices.Clone(LeftOut), Synchronisers...), "libc.so.", "ld-linux", "libripstop.so") {
		if !slices.Contains(names, want) {
			t.Errorf("%q is not in %q", want, names)
		}
	}
}
