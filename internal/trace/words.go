package trace

import "unsafe"

// wordBytes is the memory of words as bytes, in the order that files have: ripstop runs on x86-64 only, which is little-endian.
func wordBytes(words []uint64) []byte {
	if len(words) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), len(words)*8)
}
