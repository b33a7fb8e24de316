package x86

import (
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// An instruction with a gs prefix does to the mirror, which lies as far away as GS's base says, what it does without to memory: same registers, flags and
// bytes; accesses that do not take the prefix stay where they were. Of each form that can take it, in a process whose GS base is set.
func TestWithGSAgainstProcessor(t *testing.T) {
	s := newSandbox(t)
	rnd := rand.New(rand.NewPCG(9, 10))
	n, trials := 1, 2
	if soak {
		n, trials = 3, 16
	}
	ran := 0
	kinds := map[string]int{}
	for _, sub := range append(subjects(t, n), branches(t)...) {
		sub.rip = codeAt + codeSize/2 + rnd.Uint64N(64)
		mems := sub.in.Mems()
		takes := make([]bool, len(mems))
		some, all := false, true
		for i := range mems {
			takes[i] = sub.in.TakesGS(i)
			some = some || takes[i]
			all = all && takes[i]
		}
		call := sub.in.Flow == FlowIndirectCall
		if got, err := WithGS(nil, &sub.in, sub.code, sub.rip, sub.rip); (err == nil) != (some && !call && sub.in.Op != "callf") {
			t.Errorf("% x: %v: % x, %v", sub.code, sub.in, got, err)
		}
		if !some || call || refuses(&sub.in) != "" {
			continue
		}
		for range trials {
			addrs := map[int]uint64{0: dataAt[0] + 1024 + inLine(mems[0])}
			if len(mems) > 1 && mems[0].Base != mems[1].Base {
				addrs[1] = dataAt[0] + 3072
			}
			p := s.prepare(sub, rnd, addrs, false)
			p.st.gs = dataAt[1] - dataAt[0]
			to := farAt + codeSize/2 + rnd.Uint64N(64)
			code, err := WithGS(nil, &p.in, p.code, p.rip, to)
			if err != nil {
				t.Errorf("% x: %v: %v", p.code, p.in, err)
				break
			}
			here, sig := s.once(t, p)
			if sig != unix.SIGTRAP {
				continue
			}
			// The mirror is a copy. In the page itself other bytes stand, but for accesses that do not take the prefix.
			stays := make([]bool, pageSize)
			list, _ := p.ranges()
			for _, r := range list {
				for i, m := range p.in.Mems() {
					if !takes[i] && (r.from == p.st.address(&p.in, m) || m.Kind&MemString != 0 && (p.in.Rep || p.in.Repne)) && m.Access == r.access {
						for k := range r.size {
							if a := r.from + k - dataAt[0]; a < pageSize {
								stays[a] = true
							}
						}
					}
				}
			}
			st := p.st.clone()
			copy(st.data[1], p.st.data[0])
			copy(st.data[0], s.random(rnd).data[0])
			for j := range stays {
				if stays[j] {
					st.data[0][j] = p.st.data[0][j]
				}
			}
			want := here
			from := here.data[0]
			want.data[0] = append([]byte(nil), st.data[0]...)
			want.data[1] = append([]byte(nil), st.data[1]...)
			for j := range from {
				switch {
				case from[j] == p.st.data[0][j]:
				case stays[j]:
					want.data[0][j] = from[j]
				default:
					want.data[1][j] = from[j]
				}
			}
			there, sig2 := s.elsewhere(t, st, code, to)
			d := s.differs(want, there)
			if sig2 != sig {
				d = fmt.Sprint(sig2)
			}
			if d != "" {
				t.Errorf("% x: %v: with gs, % x: %s", p.code, p.in, code, d)
			}
			ran++
			for _, m := range mems {
				for i, k := range kindText {
					if m.Kind&(1<<i) != 0 {
						kinds[k]++
					}
				}
			}
			if !all {
				kinds["some only"]++
			}
		}
	}
	t.Logf("%d run: %v", ran, kinds)
	if ran < s.least(2000) {
		t.Errorf("only %d run", ran)
	}
	for _, k := range []string{"locked", "string", "stack", "gather", "masked", "nontemporal", "broadcast", "bit", "state", "some only"} {
		if kinds[k] == 0 && (k != "broadcast" || s.evex()) {
			t.Errorf("none of kind %s run", k)
		}
	}
}

// What takes the prefix, and what becomes of it.
func TestWithGS(t *testing.T) {
	const from, to = 0x401000, 0x402000
	for _, x := range []struct {
		code, takes, want string
		err               error
	}{
		{"488b03", "y", "mov rax, qword ptr gs:[rbx]", nil},
		{"f0480fc103", "y", "lock xadd qword ptr gs:[rbx], rax", nil},
		{"488b0510000000", "y", "mov rax, qword ptr gs:[rip-0xff1]", nil},
		{"678b0510000000", "y", "mov eax, dword ptr gs:[eip-0xff1]", nil},
		{"64488b0510000000", "n", "", ErrNoGS},
		{"65488b03", "n", "", ErrNoGS},
		{"48a1efcdab8967452301", "y", "mov rax, qword ptr gs:[0x123456789abcdef]", nil},
		{"ff33", "yn", "push qword ptr gs:[rbx]", nil},
		{"ff23", "y", "jmp qword ptr gs:[rbx]", nil},
		{"ff13", "yn", "", ErrCall},
		{"a4", "ny", "movsb", nil},
		{"f348ab", "n", "", ErrNoGS},
		{"ac", "y", "lodsb", nil},
		{"a6", "yn", "cmpsb", nil},
		{"53", "n", "", ErrNoGS},
		{"c3", "n", "", ErrNoGS},
		{"488d03", "n", "", ErrNoGS},
		{"0f1f00", "n", "", ErrNoGS},
		{"d7", "y", "xlat", nil},
		{"90", "", "", ErrNoGS},
		{"660f38f803", "yn", "movdir64b rax, zmmword ptr gs:[rbx]", nil},
		{"2e2e2e2e2e2e2e2e2e2e2e2e488b03", "y", "", ErrNoGS}, // 15 bytes
	} {
		code, err := hex.DecodeString(x.code)
		if err != nil {
			t.Fatal(err)
		}
		in, err := Decode(code)
		if err != nil {
			t.Fatalf("%s: %v", x.code, err)
		}
		var takes strings.Builder
		for i := range in.Mems() {
			takes.WriteString(map[bool]string{true: "y", false: "n"}[in.TakesGS(i)])
		}
		got, err := WithGS(nil, &in, code, from, to)
		text := ""
		if err == nil {
			g, err := Decode(got)
			if err != nil || g.Len != len(got) {
				t.Errorf("%v: % x: %v", in, got, err)
			}
			text = g.String()
		}
		if takes.String() != x.takes || text != x.want || err != x.err {
			t.Errorf("%v: takes %s, % x %s (%v), want %s %s (%v)", in, takes.String(), got, text, err, x.takes, x.want, x.err)
		}
	}
}
