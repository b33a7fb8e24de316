package access

import (
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"github.com/ripstop/ripstop/internal/engine"
	"github.com/ripstop/ripstop/internal/x86"
)

// Which read is put off, which reads pass it, and which write it is put off to: d, p, w of each site.
func TestPairs(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, code, want string }{
		{"in between nothing", "488b07 4801d0 488907", "d w"},                             // mov rax, [rdi]; add rax, rdx; mov [rdi], rax
		{"a read", "488b07 488b0e 488907", "d p w"},                                       // …; mov rcx, [rsi]; …
		{"the address is counted up", "f20f1000 4883c008 f20f100a f20f1140f8", "d p w"},   // movsd xmm0, [rax]; add rax, 8; movsd xmm1, [rdx]; movsd [rax-8], xmm0
		{"by another register", "488b07 488d5708 488942f8", "d w"},                        // …; lea rdx, [rdi+8]; mov [rdx-8], rax
		{"counted up more", "488b07 4883c708 488907", "- -"},                              // …; add rdi, 8; mov [rdi], rax
		{"another register", "488b07 488906", "- -"},                                      // mov [rsi], rax
		{"the register is loaded", "488b07 488b3f 488907", "- - -"},                       // …; mov rdi, [rdi]; …
		{"half of the register is set", "488b07 89ff 488907", "- -"},                      // …; mov edi, edi; …
		{"the index is set", "488b04f7 31f6 488904f7", "- -"},                             // mov rax, [rdi+rsi*8]; xor esi, esi; mov [rdi+rsi*8], rax
		{"the index", "488b04f7 488904f7", "d w"},                                         //
		{"of another scale", "488b04f7 488904b7", "- -"},                                  //
		{"less of it", "488b07 8907", "- -"},                                              // mov [rdi], eax
		{"a variable", "488b0510000000 48890509000000", "d w"},                            // mov rax, [rip+16]; mov [rip+9], rax
		{"another variable", "488b0510000000 48890510000000", "- -"},                      //
		{"another write", "488b07 48890e 488907", "- - -"},                                // …; mov [rsi], rcx; …
		{"a call", "488b07 e800000000 488907", "- -"},                                     //
		{"a branch", "488b07 7400 488907", "- -"},                                         //
		{"a system call", "488b07 0f05 488907", "- -"},                                    //
		{"a fence", "488b07 0faef0 488907", "- - -"},                                      // mfence
		{"an atomic", "488b07 f0480fc10e 488907", "- - -"},                                // lock xadd [rsi], rcx
		{"a push", "488b07 50 488907", "- -"},                                             //
		{"the stack moves", "488b07 4883ec08 488907", "- -"},                              //
		{"by the stack", "488b4508 48894508", "- -"},                                      // [rbp+8]
		{"read and written", "488b07 480107", "- -"},                                      // add [rdi], rax
		{"a string", "488b07 a4 488907", "- - -"},                                         // movsb
		{"of 16 bytes", "0f2807 0f2907", "- -"},                                           // movaps
		{"by fs", "64488b06 64488906", "- -"},                                             //
		{"what is not told in between", "488b07 6548890e 488907", "- -"},                  // mov gs:[rsi], rcx
		{"the nearer of two", "488b07 488b07 488907", "- d w"},                            //
		{"once each", "488b07 488907 488907", "d w -"},                                    //
		{"two", "488b07 488907 488b0e 48890e", "d w d w"},                                 //
		{"many", "488b07 488b0e 488b0e 488b0e 488b0e 488907", "d p p p p w"},              //
		{"too many", "488b07 488b0e 488b0e 488b0e 488b0e 488b0e 488907", "- - - - - - -"}, //
		{"what is not known is no address", "488b07 480fc7f7 488907", "- -"},              // rdrand rdi
		{"nothing stays behind a jump", "eb00 488b07 488907", "d w"},                      //
		{"swapped", "488b07 4887fe 488907", "- -"},                                        // xchg rdi, rsi
		{"of eight bits", "8a07 8807", "d w"},                                             //
	} {
		code, err := hex.DecodeString(strings.ReplaceAll(c.code, " ", ""))
		if err != nil {
			t.Fatal(err)
		}
		var p pairs
		var sites []*site
		for n := 0; n < len(code); {
			in, err := x86.Decode(code[n:])
			if err != nil {
				t.Fatalf("%s: %v", c.name, err)
			}
			i := &engine.Insn{At: 0x2000 + uint64(n), Inst: in, Code: code[n:]}
			var s *site
			if data, _ := dataOf(&in); data != 0 {
				s = &site{at: i.At, data: data | judged}
				s.sized(i)
				sites = append(sites, s)
			}
			p.take(i, s)
			n += in.Len
		}
		got := ""
		for _, s := range sites {
			what := "-"
			switch {
			case s.deferred && !s.passes && !s.clears:
				what = "d"
			case s.passes && s.clears:
				what = "w"
			case s.passes:
				what = "p"
			case s.deferred || s.clears:
				what = fmt.Sprintf("%+v", s)
			}
			got = strings.TrimSpace(got + " " + what)
		}
		if got != c.want {
			t.Errorf("%s: %q, not %q", c.name, got, c.want)
		}
	}
	// What does not follow is another function's, or is reached from elsewhere.
	var p pairs
	first, _ := x86.Decode([]byte{0x48, 0x8b, 0x07})
	second, _ := x86.Decode([]byte{0x48, 0x89, 0x07})
	s := &site{data: judged | read, size: 1}
	p.take(&engine.Insn{At: 0x2000, Inst: first}, s)
	p.take(&engine.Insn{At: 0x2010, Inst: second}, &site{data: judged | write, size: 1})
	if s.deferred {
		t.Error("what comes behind is not what follows")
	}
}
