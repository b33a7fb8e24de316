package patch

import "slices"

// A rangeSet is a set of addresses as ranges that do not touch, in order, in blocks of limited size.
type rangeSet struct {
	blocks [][]Range
	near   Range  // what seek gave last
	from   uint64 // the first address for which it gives that; nothing if near is empty
}

const blockLen = 256

// pos gives the place of the first range that ends behind an address.
func (s *rangeSet) pos(a uint64) (b, i int) {
	b, _ = slices.BinarySearchFunc(s.blocks, a, func(x []Range, a uint64) int {
		if x[len(x)-1].Hi > a {
			return 1
		}
		return -1
	})
	if b == len(s.blocks) {
		return b, 0
	}
	i, _ = slices.BinarySearchFunc(s.blocks[b], a, func(x Range, a uint64) int {
		if x.Hi > a {
			return 1
		}
		return -1
	})
	return b, i
}

// seek gives the first range that ends behind an address.
func (s *rangeSet) seek(a uint64) (Range, bool) {
	if a >= s.from && a < s.near.Hi {
		return s.near, true
	}
	b, i := s.pos(a)
	if b == len(s.blocks) {
		return Range{}, false
	}
	s.near, s.from = s.blocks[b][i], 0
	if i > 0 {
		s.from = s.blocks[b][i-1].Hi
	} else if b > 0 {
		s.from = s.blocks[b-1][len(s.blocks[b-1])-1].Hi
	}
	return s.near, true
}

func (s *rangeSet) delete(b, i int) {
	s.near = Range{}
	if s.blocks[b] = slices.Delete(s.blocks[b], i, i+1); len(s.blocks[b]) == 0 {
		s.blocks = slices.Delete(s.blocks, b, b+1)
	}
}

// insert puts in a range that touches no other.
func (s *rangeSet) insert(r Range) {
	s.near = Range{}
	b, i := s.pos(r.Lo)
	if b == len(s.blocks) {
		if b == 0 {
			s.blocks = [][]Range{{r}}
			return
		}
		b--
		i = len(s.blocks[b])
	}
	x := slices.Insert(s.blocks[b], i, r)
	if s.blocks[b] = x; len(x) > blockLen {
		s.blocks[b] = slices.Clone(x[:len(x)/2])
		s.blocks = slices.Insert(s.blocks, b+1, slices.Clone(x[len(x)/2:]))
	}
}

func (s *rangeSet) add(lo, hi uint64) {
	for {
		b, i := s.pos(max(lo, 1) - 1)
		if b == len(s.blocks) || s.blocks[b][i].Lo > hi {
			break
		}
		lo, hi = min(lo, s.blocks[b][i].Lo), max(hi, s.blocks[b][i].Hi)
		s.delete(b, i)
	}
	s.insert(Range{lo, hi})
}

func (s *rangeSet) remove(lo, hi uint64) {
	for {
		b, i := s.pos(lo)
		if b == len(s.blocks) || s.blocks[b][i].Lo >= hi {
			return
		}
		r := s.blocks[b][i]
		s.delete(b, i)
		if r.Lo < lo {
			s.insert(Range{r.Lo, lo})
		}
		if r.Hi > hi {
			s.insert(Range{hi, r.Hi})
		}
	}
}
