package recipe

import "github.com/ripstop/ripstop/internal/x86"

// Live gives what is live before the instruction that code begins with: code is what runs from there on, at most so much as is known.
func Live(code []byte, assume x86.Assume) x86.Live {
	return x86.Liveness(x86.Block(code, blockLimit), assume)[0]
}

// blockLimit is how many instructions are looked at: what is not overwritten after so many is mostly live.
const blockLimit = 24
