package engine

import (
	"errors"
	"fmt"
	"slices"

	"github.com/ripstop/ripstop/internal/wire"
)

// takeBack takes changes back of which one failed: all texts are as they were before, and nothing is planned. It gives the reason. A text for which that fails, too, is not as planned, and is left as it is: what
// int3 there are stay; the program runs on.
func (p *Process) takeBack(list []*change, alone bool, why error) error {
	all := why
	for _, c := range slices.Backward(list) {
		err := why
		if !errors.Is(why, errGone) { // else nobody is there who could see to it
			err = p.back(c, alone)
		}
		switch {
		case err != nil:
			c.t.planner.Commit(c.tx)
			c.t.broken = fmt.Errorf("the code at %#x is left in the middle of a change: %w", c.t.at, err)
			if !errors.Is(why, errGone) {
				all = errors.Join(all, c.t.broken)
			}
		case alone:
			p.abort(c)
		default: // threads may have come to the new trampolines
			c.t.planner.Undo(c.tx)
			for _, x := range c.tx.New {
				p.inter(c.t, x)
			}
		}
	}
	return all
}

// back makes the text what it was before a change of which some steps were begun, in the same way as the change makes it another one.
func (p *Process) back(c *change, alone bool) error {
	tx := c.tx.Back()
	var err error
	switch steps := tx.Steps(); {
	case c.begun == 0:
	case alone:
		err = p.rewrite(c.t, tx.Edits)
	default:
		begun := 0
		err = p.edit(c.t, tx, steps[len(steps)-c.begun:], &begun, p.seen)
	}
	if err != nil {
		return err
	}
	// Int3 that were there lead to their old trampolines again. Who comes late from one that was not goes back to where it was.
	var ops []wire.PatchOp
	for _, i := range trapping(c.tx, alone) {
		ops = append(ops, op(wire.PatchDoTrap, tx.Edits[i].At, tx.Edits[i].To))
	}
	if len(ops) == 0 {
		return nil
	}
	return p.do(ops...)
}

// seen has other threads see the last step back. No harm is done if they cannot be made to, as where membarrier is refused: all else they have seen, or nothing else was begun; and of the heads that
// this step writes they see either those or int3, from which they come back.
func (p *Process) seen(ops ...wire.PatchOp) error {
	err := p.do(ops...)
	var refused *opError
	if errors.As(err, &refused) {
		return nil
	}
	return err
}
