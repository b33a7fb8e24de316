package patch

// An Overlay is bytes that begin as others, which stay as they are: of those only the cells that change take memory. It is not for several goroutines at once.
type Overlay struct {
	base  []byte
	cells []*[cell]byte // nil: as in base
}

// cell is how many bytes change together: some code between two sites, not a page of it.
const cell = 256

// NewOverlay begins with bytes that must not change.
func NewOverlay(base []byte) *Overlay {
	return &Overlay{base: base, cells: make([]*[cell]byte, (len(base)+cell-1)/cell)}
}

// At gives byte i.
func (o *Overlay) At(i uint64) byte {
	if c := o.cells[i/cell]; c != nil {
		return c[i%cell]
	}
	return o.base[i]
}

// Copy gives a copy of the bytes in [lo, hi).
func (o *Overlay) Copy(lo, hi uint64) []byte { return o.Append(make([]byte, 0, hi-lo), lo, hi) }

// Append appends the bytes in [lo, hi).
func (o *Overlay) Append(dst []byte, lo, hi uint64) []byte {
	dst = append(dst, o.base[lo:hi]...)
	b := dst[uint64(len(dst))-(hi-lo):]
	for i := lo; i < hi; i += cell - i%cell {
		if c := o.cells[i/cell]; c != nil {
			copy(b[i-lo:], c[i%cell:])
		}
	}
	return dst
}

// Set changes bytes from lo on.
func (o *Overlay) Set(lo uint64, b []byte) {
	_ = o.base[lo : lo+uint64(len(b))]
	for len(b) > 0 {
		k := lo / cell
		if o.cells[k] == nil {
			o.cells[k] = new([cell]byte)
			copy(o.cells[k][:], o.base[k*cell:])
		}
		n := copy(o.cells[k][lo%cell:], b)
		lo, b = lo+uint64(n), b[n:]
	}
}
