package unwind

import (
	"cmp"
	"slices"

	"github.com/ripstop/ripstop/internal/image"
)

// Whole lists the entries of .eh_frame that describe a function as a call finds it: its frame begins behind the return address, and no exception comes back into it. They are in order of address, and none shares code with
// another entry. parts: some describe other code, mostly parts of functions that were moved away. Link-time addresses, the first byte and the one behind the last; none of an image without frames.
func Whole(img *image.Image) (list [][2]uint64, parts bool) {
	e, err := frames(img)
	if err != nil || e == nil {
		return nil, true
	}
	type entry struct {
		at    [2]uint64
		whole bool
	}
	var all []entry
	code := executable(img)
	bad, err := e.each(func(d *fde) {
		if d.begin >= d.end || !code.holds(d.begin, d.end) {
			return
		}
		whole, first := false, true
		_, bad := d.run(func(_, _ uint64, s *state) {
			if first {
				whole = s.cfaSet && s.cfaExpr == nil && s.cfaReg == regRSP && s.cfaOff == 8 && !d.cie.signal && !d.handles
			}
			first = false
		})
		all = append(all, entry{[2]uint64{d.begin, d.end}, whole && bad == nil})
	})
	parts = bad > 0 || err != nil
	slices.SortFunc(all, func(a, b entry) int { return cmp.Compare(a.at[0], b.at[0]) })
	for i, x := range all {
		parts = parts || !x.whole
		if x.whole && (i == 0 || all[i-1].at[1] <= x.at[0]) && (i+1 == len(all) || x.at[1] <= all[i+1].at[0]) {
			list = append(list, x.at)
		}
	}
	return list, parts
}
