package verdict

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestParse: statements are read as docs/testing.md describes them, and none that is wrong passes.
func TestParse(t *testing.T) {
	text := `// Says what it is.
// ripstop: verdict lock-order-inversion objects=a,b frames=f
// ripstop: verdict thread-leak module=x.so
// ripstop: exit 3
// ripstop: args -x {lib}
// ripstop: flags --follow no
// ripstop: build -lrt
// ripstop: library
// ripstop: runs 7
int main(void) {}
// ripstop: nothing from here on
`
	got, err := Parse("p.c", text)
	if err != nil {
		t.Fatal(err)
	}
	want := &Program{
		Name: "p.c", Exit: 3, Runs: 7, Library: true, Args: []string{"-x", "{lib}"}, Flags: []string{"--follow", "no"}, Build: []string{"-lrt"},
		Want: []Verdict{
			{Rule: "lock-order-inversion", Objects: []string{"a", "b"}, Frames: []string{"f"}},
			{Rule: "thread-leak", Module: "x.so"},
		},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v\nwant %+v", got, want)
	}
	if p, err := Parse("p.c", "// ripstop: verdict double-free\n// ripstop: signal ABRT\n"); err != nil || p.Signal != unix.SIGABRT {
		t.Errorf("%+v, %v", p, err)
	}
	for text, part := range map[string]string{
		"int main;":                                                             "no line",
		"// ripstop: verdict":                                                   "takes a rule",
		"// ripstop: verdict deadlok":                                           "no rule",
		"// ripstop: verdict deadlock frames=":                                  "KEY=VALUE",
		"// ripstop: verdict deadlock count=1":                                  `no "count"`,
		"// ripstop: verdict none\n// ripstop: verdict deadlock":                "besides",
		"// ripstop: verdict none\n// ripstop: hangs":                           "hangs",
		"// ripstop: verdict none\n// ripstop: exit 256":                        "number",
		"// ripstop: verdict none\n// ripstop: signal NONE":                     "no signal",
		"// ripstop: verdict none\n// ripstop: exit 1\n// ripstop: signal TERM": "two different ends",
		"// ripstop: verdict none\n// ripstop: hang":                            "no statement",
		"// ripstop: verdict none\n// ripstop:":                                 "empty",
	} {
		if _, err := Parse("p.c", text); err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%q: error %v, want one with %q", text, err, part)
		}
	}
}

// TestJudge: findings are as stated only if each is stated once and each statement found, with its objects and frames.
func TestJudge(t *testing.T) {
	read := func(text string) (f Finding) {
		if err := json.Unmarshal([]byte(text), &f); err != nil {
			t.Fatal(err)
		}
		return f
	}
	inversion := read(`{"rule":"lock-order-inversion","parts":[{"stack":[{"function":"ns::f<int>(char)"}],"held":[{"stack":[{"function":"g"}]}]}],
		"objects":[{"symbol":"locks[3]"},{"symbol":"(anonymous namespace)::b","module":"/x/y.so"}]}`)
	leak := read(`{"rule":"thread-leak","parts":[],"threads":[{"created":[{"function":"main"}]}]}`)
	stated := func(lines string) *Program {
		p, err := Parse("p.c", "// ripstop: verdict "+strings.ReplaceAll(lines, "; ", "\n// ripstop: verdict "))
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	for _, c := range []struct {
		stated string
		found  []Finding
		good   bool
	}{
		{"none", nil, true},
		{"none", []Finding{leak}, false},
		{"thread-leak frames=main", []Finding{leak}, true},
		{"thread-leak frames=mai", []Finding{leak}, false},
		{"thread-leak", []Finding{leak, leak}, false},
		{"thread-leak", nil, false},
		{"lock-order-inversion objects=locks,b frames=f,g module=y.so; thread-leak", []Finding{leak, inversion}, true},
		{"lock-order-inversion objects=lock", []Finding{inversion}, false},
		{"lock-order-inversion module=z.so", []Finding{inversion}, false},
		{"lock-order-inversion; lock-order-inversion frames=f", []Finding{inversion, inversion}, true},
		{"lock-order-inversion; lock-order-inversion frames=h", []Finding{inversion, inversion}, false},
	} {
		if why := Judge(stated(c.stated).Want, c.found, true); (why == "") != c.good {
			t.Errorf("%q: good should be %t; %s", c.stated, c.good, why)
		}
	}
	if why := Judge(stated("lock-order-inversion objects=x").Want, []Finding{inversion}, false); why != "" {
		t.Errorf("without symbols names count: %s", why)
	}
}

// FuzzParse: whatever the text, there is a program or an error, and no panic.
func FuzzParse(f *testing.F) {
	f.Add("// ripstop: verdict deadlock objects=a\n// ripstop: hangs\n")
	f.Fuzz(func(t *testing.T, text string) {
		if p, err := Parse("p.c", text); (p == nil) == (err == nil) {
			t.Errorf("%v, %v", p, err)
		}
	})
}
