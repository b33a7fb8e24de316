package detect

import (
	"strings"
	"testing"

	"github.com/ripstop/ripstop/internal/finding"
	"github.com/ripstop/ripstop/internal/wire"
)

const tenBytes = `known=1 number=1 block=0x1000 size=10 alloc_thread=T1 alloc_stack=S1 `

// Each kind of evidence makes a finding of its rule, whose words are those of what is known.
func TestEvidence(t *testing.T) {
	const right, far = `heap-overflow: Heap block H1 of size 10 was written behind its end: 1 byte is overwritten, the first right behind it`,
		`heap-overflow: Heap block H1 of size 10 was written behind its end: at least 3 bytes are overwritten, the first 9 bytes behind it`
	check(t, Config{}, []testCase{
		{"overflow", `T1 evidence kind=overflow noticed=free ` + tenBytes + `bad=0x100a wrong=1 stack=S2 tail="\xcd\x00"`, right},
		{"at the end", `T1 evidence kind=overflow noticed=exit ` + tenBytes + `bad=0x100a wrong=1`, right},
		{"twice", `
			T1 evidence kind=overflow noticed=free ` + tenBytes + `bad=0x100a wrong=1 stack=S2
			T1 evidence kind=overflow noticed=free known=1 number=2 block=0x2000 size=20 alloc_thread=T1 alloc_stack=S1 bad=0x2014 wrong=4 stack=S2
			P1 gone`, right + "\n" + right},
		{"far behind", `T1 evidence kind=overflow noticed=free known=3 number=1 block=0x1000 size=10 alloc_stack=S1 bad=0x1013 wrong=3 stack=S2`, far},
		{"length not known", `T1 evidence kind=overflow noticed=free known=2 number=1 block=0x1000 size=48 alloc_stack=S1 bad=0x1038 wrong=1 stack=S2`, `heap-overflow: Heap block H1 of at most size 48 was written behind its end`},
		{"underflow", `T1 evidence kind=underflow noticed=exit ` + tenBytes + `bad=0x1038 wrong=1 next=0x1040 next_size=30 next_stack=S3`,
			`heap-underflow: Heap block H1 of size 30 was written in front of its beginning, less than 9 bytes away`},
		{"freed", `T1 evidence kind=freed-write noticed=quarantine ` + tenBytes + `free_thread=T2 free_stack=S2 bad=0x1004 wrong=2`,
			`use-after-free-write: Heap block H1 of size 10 was written after it was freed: 2 bytes are overwritten, the first at offset 4`},
		{"behind a freed one", `T1 evidence kind=freed-write noticed=quarantine ` + tenBytes + `free_thread=T2 free_stack=S2 bad=0x100c wrong=2`,
			`use-after-free-write: Heap block H1 of size 10 was written behind its end after it was freed: 2 bytes are overwritten, the first 2 bytes behind it`},
		{"of a newer agent", `T1 evidence kind=9 noticed=9 ` + tenBytes + `bad=0x100a wrong=1`, ``},
		{"without a thread", `P1 T0 evidence kind=overflow noticed=exit ` + tenBytes + `bad=0x100a wrong=1`, right},
	})
}

// Every way to notice has words, with a stack and without.
func TestNoticed(t *testing.T) {
	for _, e := range wire.Enums {
		if e.Name != "Noticed" {
			continue
		}
		for _, v := range e.Values {
			fs := run(t, Config{}, `T1 evidence kind=overflow noticed=`+v.Name+` `+tenBytes+`bad=0x100a wrong=1`)
			if len(fs) != 1 || len(fs[0].Notes) < 2 || !strings.HasPrefix(fs[0].Notes[0], "It was noticed ") {
				t.Errorf("%s: %+v", v.Name, fs)
			}
		}
	}
}

// What is known of a finding's block, threads and bytes is in it; writers stand first, the last write at the front, and only with their own evidence. A strcpy too long was told twice, with the same stack, for its two last stores.
func TestEvidenceWhole(t *testing.T) {
	fs := run(t, Config{}, `
		T1 guard-writer evidence=1 how=watchpoint writer=T3 addr=0x100a pc=0x4 stack=S4
		T1 guard-writer evidence=1 how=watchpoint writer=T3 addr=0x100b pc=0x4 stack=S4
		T1 guard-writer evidence=1 how=kernel writer=T2 addr=0x100a stack=S5
		T1 guard-writer evidence=2 how=kernel writer=T2 addr=0x100a stack=S6
		T1 evidence kind=overflow noticed=free known=1 number=1 block=0x1000 size=10 alloc_thread=T2 alloc_stack=S1 bad=0x100a wrong=1 stack=S2 tail="\xcd\xcf\x00\xcf"`)
	if len(fs) != 1 {
		t.Fatal(gist(fs))
	}
	f := fs[0]
	var parts []string
	for _, p := range f.Parts {
		parts = append(parts, p.Text+" "+pcs(p.Stack))
	}
	if got, want := strings.Join(parts, "; "), "Written by the kernel in a call here 5; Written here 4; Noticed when the block was freed here 2"; got != want {
		t.Errorf("parts %s", got)
	}
	if o := f.Objects[0]; o.Block != 0x1000 || o.Size != 10 || o.OwnerThread != 2 || pcs(o.Allocated) != "1" {
		t.Errorf("object %+v", o)
	}
	if m := f.Memory; m == nil || m.Addr != 0x100a || string(m.Was) != "\xcd\xcf" || string(m.Is) != "\x00\xcf" {
		t.Errorf("memory %+v", m)
	}
	if len(f.Notes) != 0 {
		t.Errorf("notes %q", f.Notes)
	}
}

// A crash is told with what is known of it, in words for every signal. A call into a library that had been unloaded read as if the function that was called had used a bad pointer, a write to a literal as an access that the mapping does not permit, and an index far too large, which natively
// leads to where nothing is mapped, so too.
func TestCrash(t *testing.T) {
	check(t, Config{}, []testCase{
		{"null", "T1 crash sig=11 code=1 flags=addressed addr=0x10 pc=0x5 stack=S1", "crash: SIGSEGV: access where nothing is mapped, at 0x10 (a null pointer, or near it)"},
		{"read-only", "T1 crash sig=11 code=2 flags=addressed addr=0x123456 pc=0x5 stack=S1", "crash: SIGSEGV: access that the mapping does not permit, at 0x123456"},
		{"read", "T1 crash sig=11 code=1 flags=addressed|read addr=0x123456 pc=0x5 stack=S1", "crash: SIGSEGV: read where nothing is mapped, at 0x123456"},
		{"literal", "T1 crash sig=11 code=2 flags=addressed|write addr=0x7f000010 pc=0x5 stack=S1", "crash: SIGSEGV: write to memory that may only be read, at 0x7f000010 (in libx.so)"},
		{"call of null", "T1 crash sig=11 code=1 flags=addressed|execute addr=0 pc=0 stack=S1", "crash: SIGSEGV: jump to where nothing is mapped, at 0x0 (a null pointer, or near it)"},
		{"call of data", "T1 crash sig=11 code=2 flags=addressed|execute addr=0x7f000010 pc=0x7f000010 stack=S1", "crash: SIGSEGV: jump to memory that is no code, at 0x7f000010 (in libx.so)"},
		{"unloaded", "T1 crash sig=11 code=1 flags=addressed|execute addr=0x7f000011 pc=0x7f000011 stack=S1", "crash: SIGSEGV: jump to where nothing is mapped, at 0x7f000011 (where libx.so was, which has been unloaded)"},
		{"index", "T1 crash sig=11 code=2 flags=addressed|read|reserved addr=0x101000104040 pc=0x5 stack=S1", "crash: SIGSEGV: read where nothing is mapped, at 0x101000104040 (among heap blocks, but in none)"},
		{"wild", "T1 crash sig=11 code=128 flags=freed pc=0x5 stack=S1", "crash: SIGSEGV: access to an address that no memory can have"},
		{"division", "T1 crash sig=8 code=1 flags=addressed addr=0x5 pc=0x5 stack=S1", "crash: SIGFPE: integer division by zero, or its result does not fit"},
		{"source", `T1 crash-source state=filled step=0 alloc_thread=T1 free_thread=T1 addr=0x1008 value=0xd7d5d3d1dfdddbd9 block=0x1000 size=24 alloc_stack=S1 free_stack=S1
		T1 crash sig=11 code=128 flags=freed pc=0x5 stack=S1`, "crash: SIGSEGV: access to an address that no memory can have. The pointer 0xd7d5d3d1dfdddbd9 that it used was read from 0x1008, at offset 8 of heap block H1 of size 24, after it was freed"},
		{"source behind", `T1 crash-source state=freed used=part addr=0x101c value=0x7 block=0x1000 size=24 alloc_stack=S1
		T1 crash sig=11 code=1 flags=addressed addr=0x10 pc=0x5 stack=S1`, "crash: SIGSEGV: access where nothing is mapped, at 0x10 (a null pointer, or near it). The value 0x7 that the address it used was computed from was read from 0x101c, 4 bytes behind the end of heap block H1 of size 24, which is freed by now"},
		{"abort", "T1 crash sig=6 code=-6 stack=S1", "crash: SIGABRT: the program aborted"},
		{"unknown", "P1 T0 crash sig=4 code=77 stack=S1", "crash: SIGILL: code 77"},
	})
}

// What libraries know of an abort is in its finding, and in no other process's.
func TestCrashText(t *testing.T) {
	fs := run(t, Config{}, `
		T1 crash-text kind=said tail="x: failed\n"
		T1 crash-text kind=exception tail="i"
		T1 crash-text kind=what tail="\x1b"
		T1 crash sig=6 code=-6 stack=S1
		P2 T1 crash sig=6 code=-6 stack=S1`)
	if len(fs) != 2 || *fs[0].Crash != (finding.Crash{Signal: "SIGABRT", Said: "x: failed", Exception: "i", What: "\x1b"}) || *fs[1].Crash != (finding.Crash{Signal: "SIGABRT"}) {
		t.Errorf("%+v", fs)
	}
}

// The address of a free that was read from a freed block was said to lie where nothing is known of, and no more.
func TestFreeOfFilling(t *testing.T) {
	for result, want := range map[string]string{"2": "that freed blocks are filled with", "4": "that lie behind heap blocks", "0": ""} {
		fs := run(t, Config{}, `T1 misuse obj=0xd7d5d3d1dfdddbd9 kind=heap what=invalid-free result=`+result+` stack=S1`)
		if len(fs) != 1 || want == "" && len(fs[0].Notes) != 0 || want != "" && (len(fs[0].Notes) != 1 || !strings.Contains(fs[0].Notes[0], want)) {
			t.Errorf("%s: %+v", result, fs)
		}
	}
}

// Why an epoch could not be executed again, and where a re-execution went, was told by a word of the trace's format: "(lost: module)".
func TestAgainInWords(t *testing.T) {
	notes := func(again string) string {
		fs := run(t, Config{}, "T1 crash-again "+again+"\nT1 crash sig=11 code=1 flags=addressed addr=0x10 pc=0x5 stack=S1")
		if len(fs) != 1 {
			t.Fatalf("%s: %+v", again, fs)
		}
		return strings.Join(fs[0].Notes, "\n")
	}
	for _, e := range wire.Enums {
		for _, v := range e.Values {
			switch e.Name {
			case "GuardLost":
				if text := notes("again=lost lost=" + v.Name); !strings.Contains(text, "could not be executed again: ") || strings.Contains(text, "again: "+v.Name+".") {
					t.Errorf("%s: %s", v.Name, text)
				}
			case "GuardVerdict":
				if text := notes("again=other made=2 verdict=" + v.Name); !strings.Contains(text, "another way") || strings.Contains(text, ": "+v.Name+")") || strings.Contains(text, "-") && strings.Contains(text, v.Name) {
					t.Errorf("%s: %s", v.Name, text)
				}
			}
		}
	}
	if text := notes("again=lost lost=module"); !strings.Contains(text, "could not be executed again: a library was loaded or unloaded.") {
		t.Error(text)
	}
}
