package x86

import (
	"math/rand/v2"
	"testing"
)

// Nothing that Decode calls a branch is missed, of libraries and of random bytes behind each opcode, and direct ones are what Decode says.
func TestMayBranch(t *testing.T) {
	seen := map[Flow]int{}
	direct := 0
	ask := func(code []byte) int {
		in, err := Decode(code)
		if n, distance, call, ok := DirectBranch(code); ok {
			direct++
			if to, _ := in.Target(0); err != nil || n != in.Len || to != uint64(int64(n)+distance) || call != (in.Flow == FlowCall) {
				t.Errorf("% x: %v, %v is said to be a branch of %d bytes and distance %d", code, in, err, n, distance)
			}
		} else if err == nil && in.PrefixLen == 0 && (in.Flow == FlowJump || in.Flow == FlowCond || in.Flow == FlowCall) {
			t.Errorf("% x: %v is said to be no direct branch", code[:in.Len], in)
		}
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
	if direct == 0 {
		t.Error("no direct branch was tried")
	}
	for f := FlowJump; f <= FlowTransaction; f++ {
		if seen[f] == 0 {
			t.Errorf("no instruction of flow %d was tried", f)
		}
	}
}
