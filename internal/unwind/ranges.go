package unwind

import (
	"fmt"

	"github.com/ripstop/ripstop/internal/image"
)

// Ranges lists the code that entries of .eh_frame describe, as they come: first bytes and the bytes behind them, link-time addresses. Functions, and parts of functions.
// Those of signal frames are left out: they begin a byte before their code, so that unwinders find them by a return address. An image without frames has none.
func Ranges(img *image.Image) (list [][2]uint64, err error) {
	e, err := frames(img)
	if err != nil || e == nil {
		return nil, err
	}
	code := executable(img)
	_, err = e.each(func(d *fde) {
		if d.begin < d.end && !d.cie.signal && code.holds(d.begin, d.end) {
			list = append(list, [2]uint64{d.begin, d.end})
		}
	})
	if err != nil && len(list) == 0 {
		return nil, fmt.Errorf("%s: %w", img.Path(), err)
	}
	return list, nil
}
