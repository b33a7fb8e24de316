package recipe

import (
	"encoding/hex"
	"strings"
	"testing"

	"github.com/ripstop/ripstop/internal/x86"
)

// libx264's trellis code calls a function that ends in `and eax, 7; ret` and goes on with `je`: flags are returned, and to take them for dead before a return
// would change its results. So the psABI's rule is assumed only of texts that do not break it themselves.
func TestAssume(t *testing.T) {
	const abi, plain = x86.AssumeNoHandler | x86.AssumeABI, x86.AssumeNoHandler
	for _, x := range []struct {
		code string
		want x86.Assume
	}{
		{"e800000000 c3", abi},
		{"e802000000 7400 83e007 c3", plain},               // call; je
		{"e803000000 4889c7 7400", plain},                  // call; mov; je
		{"e804000000 85c0 7400 c3", abi},                   // call; test; je
		{"ffd0 1000", plain},                               // call rax; adc
		{"7402 ffd0 7400", abi},                            // the call does not return: what is behind it is jumped to
		{"7404 ffd0 0f1f00 7400", plain},                   // but not here
		{"85c0 e800000000 7400", plain},                    // what is called reads flags
		{"e800000000 0f05 c3", abi},                        //
		{"ffd0 ffc0 7200", plain},                          // inc leaves CF alone
		{"e800000000 0f1f00 e800000000 90 39c8 7400", abi}, //
	} {
		code, err := hex.DecodeString(strings.ReplaceAll(x.code, " ", ""))
		if err != nil {
			t.Fatal(err)
		}
		starts := map[uint64]bool{}
		for i := 0; i < len(code); {
			in, err := x86.Decode(code[i:])
			if err != nil {
				t.Fatal(err)
			}
			starts[0x1000+uint64(i)] = true
			i += in.Len
		}
		if got := Assume(code, 0x1000, func(a uint64) bool { return starts[a] }); got != x.want {
			t.Errorf("%s: %v, want %v", x.code, got, x.want)
		}
	}
}
