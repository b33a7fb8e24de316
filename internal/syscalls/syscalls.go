// Package syscalls knows the system calls of x86-64 Linux: their numbers, names and arguments; the instructions that make them, and what is put in their place; and
// what was counted of them, as a table. No process is touched.
package syscalls

import (
	_ "embed"
	"fmt"
	"strconv"
	"strings"
	"sync"
)

// A Kind says what an argument is.
type Kind string

// Kinds of arguments.
const (
	Number  Kind = "number"
	FD      Kind = "fd"
	String  Kind = "string" // address of bytes that end with a zero: mostly a path
	Pointer Kind = "pointer"
	Size    Kind = "size"
	Flags   Kind = "flags"
)

// An Arg is an argument: its name in the kernel, and what it is.
type Arg struct {
	Name string
	Kind Kind
}

// A Call is a system call.
type Call struct {
	Number int
	Name   string
	Args   []Arg // in the order of rdi, rsi, rdx, r10, r8, r9
	// Known says that Args is what the kernel takes; else it does not have the call any more, or does not describe it.
	Known bool
}

//go:embed table.txt
var tableText string

type table struct {
	byNumber map[int]*Call
	byName   map[string]*Call
	list     []*Call
}

var calls = sync.OnceValue(func() *table {
	t, err := parse(tableText)
	if err != nil {
		panic("BUG: syscalls: table.txt: " + err.Error())
	}
	return t
})

func parse(text string) (*table, error) {
	t := &table{byNumber: map[int]*Call{}, byName: map[string]*Call{}}
	for n, line := range strings.Split(text, "\n") {
		if line == "" || line[0] == '#' {
			continue
		}
		f := strings.Fields(line)
		if len(f) < 2 {
			return nil, fmt.Errorf("line %d: %q is no number and name", n+1, line)
		}
		number, err := strconv.Atoi(f[0])
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n+1, err)
		}
		c := &Call{Number: number, Name: f[1], Known: true}
		for _, a := range f[2:] {
			if a == "?" {
				c.Known = false
				break
			}
			name, kind, ok := strings.Cut(a, ":")
			if !ok {
				return nil, fmt.Errorf("line %d: argument %q has no kind", n+1, a)
			}
			c.Args = append(c.Args, Arg{name, Kind(kind)})
		}
		if t.byNumber[number] != nil || t.byName[c.Name] != nil || len(c.Args) > 6 {
			return nil, fmt.Errorf("line %d: %q twice, or with %d arguments", n+1, c.Name, len(c.Args))
		}
		t.byNumber[number], t.byName[c.Name] = c, c
		t.list = append(t.list, c)
	}
	return t, nil
}

// All lists the calls by number.
func All() []*Call { return calls().list }

// Numbered gives the call with a number, nil if none is known.
func Numbered(n int) *Call { return calls().byNumber[n] }

// Named gives the call with a name, nil if none is known.
func Named(name string) *Call { return calls().byName[name] }

// Name gives a call's name, as strace has it for those that it does not know: syscall_0x1ff.
func Name(n int) string {
	if c := Numbered(n); c != nil {
		return c.Name
	}
	return fmt.Sprintf("syscall_%#x", uint(n))
}
