package image

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Programs say where variables of a function lie from its canonical frame address: parameters, members, those of inner blocks and of functions that are inlined, and not those of blocks that
// are over.
func TestLocal(t *testing.T) {
	text := `#include <stdio.h>
struct stats { int id; long count[3]; };
#define KEEP(v) __asm__ volatile("" : : "r"(&(v)) : "memory")
#define SAY(v, what) printf("%p %ld %s\n", here(), (long)((char *)&(v) - (char *)__builtin_dwarf_cfa()), what)
__attribute__((noinline)) void *here(void) { return __builtin_return_address(0); }
static inline __attribute__((always_inline)) void within(int seed) { struct stats inner = {seed, {1}}; KEEP(inner); SAY(inner.id, "inner.id|int|within"); KEEP(inner); }
__attribute__((noinline)) static void outer(long given)
{
	struct stats all[2] = {{1, {2}}};
	KEEP(all); KEEP(given);
	{ char over[64]; KEEP(over); }
	SAY(all[1].count[2], "all[1].count[2]|long int,long|outer");
	SAY(given, "given|long int,long|outer");
	{ unsigned block = 7; KEEP(block); SAY(block, "block|unsigned int|outer"); KEEP(block); }
	within(3);
	KEEP(all); KEEP(given);
}
int main(void) { outer(5); }
`
	for _, cc := range []string{"gcc", "clang"} {
		for _, flags := range [][]string{{"-gdwarf-5"}, {"-gdwarf-4", "-O1"}, {"-gdwarf-5", "-O1"}} {
			if cc == "clang" { // which says with optimisation where things are from rsp
				text = strings.ReplaceAll(text, "__builtin_dwarf_cfa()", "((char *)__builtin_frame_address(0) + 16)")
				flags = append(flags, "-O0")
			}
			src, exe := filepath.Join(t.TempDir(), "l.c"), filepath.Join(t.TempDir(), "exe")
			write(t, src, []byte(text))
			run(t, append([]string{cc, "-no-pie", "-w", "-o", exe, src}, flags...)...)
			m := mustOpen(t, exe)
			for line := range strings.Lines(run(t, exe)) {
				var at uint64
				var offset int64
				var what string
				if _, err := fmt.Sscanf(strings.ReplaceAll(line, " int,long", "_int"), "0x%x %d %s", &at, &offset, &what); err != nil {
					t.Fatalf("%q: %v", line, err)
				}
				name, _, _ := strings.Cut(what, "|")
				l, ok := m.Local(at-1, offset)
				if !ok && name != "all[1].count[2]" && slices.Contains(flags, "-O1") {
					continue // gcc says of what was a register's where it is as long as it is one
				}
				if got := l.Name + l.Path; !ok || got != name || l.Type == "" {
					t.Errorf("%s %v: %s: %v %+v", cc, flags, strings.TrimSpace(line), ok, l)
				}
			}
			if l, ok := m.Local(0x10, 0); ok {
				t.Errorf("%+v at 0x10", l)
			}
		}
	}
}
