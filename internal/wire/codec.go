package wire

import (
	"fmt"
)

// enums is filled on first use, after every init of the package has added to Enums.
func enumName(enum string, v uint32) string {
	for i := range Enums {
		if Enums[i].Name != enum {
			continue
		}
		for _, e := range Enums[i].Values {
			if e.V == v {
				return e.Name
			}
		}
	}
	return fmt.Sprintf("%d", v)
}

// EnumValueOf returns the value of the word in enum, as the text twin prints it.
func EnumValueOf(enum, word string) (uint32, bool) {
	for i := range Enums {
		if Enums[i].Name != enum {
			continue
		}
		for _, e := range Enums[i].Values {
			if e.Name == word {
				return e.V, true
			}
		}
	}
	return 0, false
}

// tailBytes reads a Bytes tail; w[0] is the count. The bytes are copied.
func tailBytes(w []uint64) []byte {
	n := w[0]
	out := make([]byte, 0, (n+7)&^7)
	for _, x := range w[1 : 1+(n+7)/8] {
		for i := 0; i < 8; i++ {
			out = append(out, byte(x>>(8*i)))
		}
	}
	return out[:n]
}

func tailHelds(w []uint64) []Held {
	n := int(w[0])
	if n == 0 {
		return nil
	}
	out := make([]Held, n)
	for i := range out {
		out[i] = UnpackHeld(w[1+i*HeldWords:])
	}
	return out
}

func appendBytes(dst []uint64, b []byte) []uint64 {
	dst = append(dst, uint64(len(b)))
	for i := 0; i < len(b); i += 8 {
		var x uint64
		for j := 0; j < 8 && i+j < len(b); j++ {
			x |= uint64(b[i+j]) << (8 * j)
		}
		dst = append(dst, x)
	}
	return dst
}

func appendHelds(dst []uint64, hs []Held) []uint64 {
	dst = append(dst, uint64(len(hs)))
	for _, h := range hs {
		w := PackHeld(h)
		dst = append(dst, w[:]...)
	}
	return dst
}
