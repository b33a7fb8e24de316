package beside

import (
	"fmt"
	"io"
	"strings"
	"testing"
)

const tsanText = `==================
WARNING: ThreadSanitizer: data race (pid=6521)
  Read of size 4 at 0x555555559154 by thread T2 (mutexes: write M1):
    #0 f<int, 3>(int) /src/a b/x.cc:10 (popt+0x12a8)
    #1 main /src/x.cc:20:7 (popt+0x12a8) (BuildId: 123)

  Previous write of size 4 at 0x555555559154 by thread T1:
    [failed to restore the stack]

  Thread T2 (tid=6524, running) created by main thread at:
    #0 pthread_create ../../x.cpp:1001 (libtsan.so.2+0x5e686)

SUMMARY: ThreadSanitizer: data race /src/x.cc:10 in f
==================
WARNING: ThreadSanitizer: thread leak (pid=6521)
  Thread T2 (tid=6524, running) created by main thread at:
    #0 pthread_create ../../x.cpp:1001 (libtsan.so.2+0x5e686)
==================
WARNING: ThreadSanitizer: data race on vptr (ctor/dtor vs virtual call) (pid=1)
  Write of size 8 at 0x1 by thread T1:
    #0 operator delete(void*) ../../x.cpp:126 (libtsan.so.2+0x8e6a0)
    #1 g x.cc:5 (popt+0x1)

  Previous read of size 8 at 0x1 by main thread:
    #0 <null> <null> (popt+0x1)
    #1 h x.cc:6 (popt+0x1)
`

const valgrindText = `<?xml version="1.0"?><valgrindoutput><error><kind>Race</kind><xwhat><text>Possible data race during read</text></xwhat>
<stack><frame><file>x.c</file><line>3</line></frame></stack><xauxwhat><text>with</text></xauxwhat><stack><frame><fn>memcpy</fn></frame><frame><file>x.c</file><line>4</line></frame></stack></error>
<error><kind>UnlockUnlocked</kind><what>w</what><stack><frame><file>x.c</file><line>3</line></frame></stack></error>
<error><kind>ConflictingAccess</kind><what>Conflicting load</what><stack><frame><file>x.c</file><line>7</line></frame></stack><stack><frame><file>x.c</file><line>1</line></frame></stack></error></valgrindoutput>`

// What each tool's words come to: of each report the lines in one source.
func TestParse(t *testing.T) {
	for _, c := range []struct {
		name, text, source, want string
		parse                    func(io.Reader) ([]Report, error)
	}{
		{"TSan", tsanText, "dir/x.cc", "[[10] [5 6]]", ParseTSan},
		{"valgrind", valgrindText, "x.c", "[[3 4] [7]]", ParseValgrind},
		{"ripstop", `{"type":"run"}
{"type":"finding","rule":"data-race","parts":[{"stack":[{"file":"/h/y.h","line":9},{"file":"/s/x.c","line":3}]},{"stack":[{}]},{"stack":[]}]}
{"type":"finding","rule":"deadlock"}
{"type":"finding","rule":"data-race","parts":[{"stack":[{"file":"x.c","line":3}]},{"stack":[{"file":"i.h","line":1,"inlined":true},{"file":"t.h","line":2}]}]}
{"type":"finding","rule":"data-race","parts":[{"stack":[{"file":"x.c","line":3}]},{"stack":[{"file":"t.h","line":2},{"file":"y.c","line":1}]}]}`, "x.c", "[[3 0] [3] [3 0]]", ParseRipstop},
	} {
		got, err := c.parse(strings.NewReader(c.text))
		var lines [][]int
		for i := range got {
			lines = append(lines, got[i].Lines(c.source))
		}
		if fmt.Sprint(lines) != c.want || err != nil {
			t.Errorf("%s: %v, %v; want %s", c.name, lines, err, c.want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(tsanText)
	f.Add(valgrindText)
	f.Add(`{"type":"finding","rule":"data-race","parts":[{"stack":[{"file":"x.c","line":3}]}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		for _, parse := range []func(io.Reader) ([]Report, error){ParseTSan, ParseValgrind, ParseRipstop} {
			got, _ := parse(strings.NewReader(text))
			for i := range got {
				got[i].Lines("x.c")
			}
		}
	})
}
