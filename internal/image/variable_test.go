package image

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// Programs say where parts of their variables lie, and what these are called: members, elements, bases, in structures without names, thread-local; of unions and bit fields it is the whole that is
// named.
func TestVariable(t *testing.T) {
	c := `#include <stddef.h>
#include <stdio.h>
#include <pthread.h>
typedef unsigned long count_t;
struct stats { int id; count_t count[3]; struct { char a, b; }; struct { short x, y; } point[2][3]; unsigned low : 3, high : 5; union { int i; float f; } either; const char *volatile name; void (*fn)(int); };
struct stats all;
static struct stats few[4];
volatile int flag;
static const char *const names[2] = {"a", "b"};
__thread struct stats mine;
static __thread long far[100];
extern int elsewhere;
int elsewhere = 3;
enum { RED } colour;
#define SAY(v, what) printf("%p 0 %s\n", (void *)&(v), what)
#define LOCAL(v, what) printf("%ld 1 %s\n", (long)((char *)pthread_self() - (char *)&(v)), what)
int main(void) {
	static int within;
	within = (int)far[1] + flag + colour;
	SAY(all.id, "|all.id|int"); SAY(all.count[2], "|all.count[2]|count_t"); SAY(all.b, "|all.b|char"); SAY(all.point[1][2].y, "|all.point[1][2].y|short int,short");
	SAY(all.either, "|all.either|union {…}"); SAY(all.name, "|all.name|const char *volatile,volatile const char *,const char *"); SAY(all.fn, "|all.fn|void () *");
	SAY(few[3].count[1], "|few[3].count[1]|count_t"); SAY(flag, "|flag|volatile int"); SAY(names[1], "|names[1]|const const char *,const char *");
	SAY(elsewhere, "|elsewhere|int"); SAY(colour, "|colour|enum {…}"); SAY(within, "|within|int");
	LOCAL(mine.point[0][1].x, "|mine.point[0][1].x|short int,short"); LOCAL(far[99], "|far[99]|long int,long");
	return within;
}
`
	cxx := `#include <cstdio>
namespace bank { struct base { long id; int *next; }; struct account : base { long balance; static int made; bool open() { return made; } }; int account::made = 1; account first; static account *list[2]; }
#define SAY(v, what) std::printf("%p 0 %s\n", (void *)&(v), what)
int main() {
	bank::list[1] = &bank::first;
	SAY(bank::first.balance, "|bank::first.balance|long int,long"); SAY(bank::first.next, "|bank::first.next|int *"); SAY(bank::account::made, "|bank::account::made|int"); SAY(bank::list[1], "|bank::list[1]|account *,bank::account *");
}
`
	for _, b := range []struct{ name, text, cc string }{{"v.c", c, "gcc"}, {"v.c", c, "clang"}, {"v.cc", cxx, "g++"}, {"v.cc", cxx, "clang++"}} {
		for _, flags := range [][]string{{"-gdwarf-5"}, {"-gdwarf-4", "-O2"}} {
			src := filepath.Join(t.TempDir(), b.name)
			write(t, src, []byte(b.text))
			exe := filepath.Join(t.TempDir(), "exe")
			run(t, append([]string{b.cc, "-no-pie", "-w", "-o", exe, src}, flags...)...)
			m := mustOpen(t, exe)
			for line := range strings.Lines(run(t, exe)) {
				place, want, _ := strings.Cut(strings.TrimSpace(line), " |")
				var at uint64
				var local int
				if _, err := fmt.Sscan(strings.TrimPrefix(place, "0x"), &at, &local); err != nil || strings.HasPrefix(place, "0x") {
					if _, err := fmt.Sscanf(place, "0x%x %d", &at, &local); err != nil {
						t.Fatalf("%q: %v", line, err)
					}
				}
				var sym Symbol
				var offset uint64
				ok := true
				if local == 1 {
					sym, offset, ok = m.ThreadLocal(at)
					at = sym.Addr + offset
				} else {
					sym, ok = m.Symbol(at)
				}
				v, is := m.Variable(at, local == 1)
				name, _, _ := strings.Cut(strings.TrimPrefix(Demangle(sym.Name), "main."), ".") // of a static variable in a function gcc adds a number, clang the function
				got := name + v.Path
				wantName, types, _ := strings.Cut(want, "|")
				good := false
				for _, typ := range strings.Split(types, ",") {
					good = good || v.Type == typ
				}
				if !ok || !is || got != wantName || !good {
					t.Errorf("%s %v: %s: %v %v %q of type %q", b.cc, flags, want, ok, is, got, v.Type)
				}
			}
			if v, ok := m.Variable(0x10, false); ok {
				t.Errorf("%+v at 0x10", v)
			}
		}
	}
}
