package x86

import (
	"math/rand/v2"
	"testing"
)

// Nothing that Decode calls a branch is missed, of libraries and of random bytes behind each opcode.
func TestMayBranch(t *testing.T) {
	seen := map[Flow]int{}
	ask := func(code []byte) int {
		in, err := Decode(code)
		if err != nil {
			return 1
		}
		if in.Flow != FlowNone {
			seen[in.Flow]++
			if !MayBranch(code) {
				t.Errorf("% x: %v is said to be no branch", code[:in.Len], in)
			}
		}
		return in.Len
	}
	for _, file := range []string{libs + "libc.so.6", libs + "libcrypto.so.3"} {
		data, _ := text(t, file)
		for len(data) > MaxLen {
			data = data[ask(data):]
		}
	}
	rnd := rand.New(rand.NewPCG(3, 3))
	prefixes := [][]byte{{}, {0x66}, {0xf2}, {0xf3}, {0x3e}, {0x48}, {0x67}, {0xf0}, {0xf2, 0x3e}, {0x66, 0x48}}
	maps := [][]byte{{}, {0x0f}, {0x0f, 0x38}, {0x0f, 0x3a}}
	for op := range 256 {
		for _, p := range prefixes {
			for _, m := range maps {
				for range 40 {
					code := append(append(append([]byte(nil), p...), m...), byte(op))
					for len(code) < MaxLen {
						code = append(code, byte(rnd.Uint32()))
					}
					ask(code)
				}
				for modrm := range 256 {
					code := append(append(append([]byte(nil), p...), m...), byte(op), byte(modrm), 0, 0, 0, 0, 0, 0, 0, 0)
					ask(code)
				}
			}
		}
	}
	for f := FlowJump; f <= FlowTransaction; f++ {
		if seen[f] == 0 {
			t.Errorf("no instruction of flow %d was tried", f)
		}
	}
}
