package stated

import (
	"fmt"
	"testing"
)

func TestParse(t *testing.T) {
	got, err := Parse("x.c", `int a; // race one
static void f(void) { a++; /* race one */ }
b = 1; // race-mov two
// a race that is meant by nobody
c = 1; // race three of them
d = 1; // race-any four`)
	text := ""
	for _, n := range []string{"one", "two", "three", "four"} {
		if got[n] != nil {
			text += fmt.Sprint(n, *got[n], " ")
		}
	}
	if want := "one{race [1 2]} two{race-mov [3]} four{race-any [6]} "; text != want || err != nil {
		t.Errorf("%q, %v; want %q", text, err, want)
	}
	if _, err := Parse("x.c", "a; // race one\nb; // uaf one"); err == nil {
		t.Error("a race of two kinds is taken")
	}
}

func FuzzParse(f *testing.F) {
	f.Add("a; // race one")
	f.Fuzz(func(t *testing.T, text string) {
		races, _ := Parse("x.c", text)
		for name, r := range races {
			if name == "" || len(r.Lines) == 0 {
				t.Errorf("%q: %v", name, r)
			}
		}
	})
}
