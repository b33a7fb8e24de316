package recipe

import (
	"errors"

	"github.com/ripstop/ripstop/internal/patch"
	"github.com/ripstop/ripstop/internal/x86"
)

// Compile makes the code of operations for an instruction. live is what is live before it (Live); everything else may be overwritten. The error wraps one of this package's or x86's.
func Compile(ops []Op, site Site, live x86.Live, env Env) (*Code, error) {
	if len(ops) > 0 {
		return nil, errors.New("recipe: not made yet")
	}
	return &Code{site: site, env: env, live: live, ops: ops}, nil
}

// Append appends the code as it is to lie at an address: see patch.Recipe.
func (c *Code) Append(dst []byte, at uint64) ([]byte, []patch.State, error) { return dst, nil, nil }
