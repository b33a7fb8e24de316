package unwind

import (
	"testing"

	"github.com/ripstop/ripstop/internal/image"
)

// BenchmarkCompile is what a target may wait for before its first stack: opening libc and compiling its table.
func BenchmarkCompile(b *testing.B) {
	for b.Loop() {
		img, err := image.Open("/lib/x86_64-linux-gnu/libc.so.6")
		if err != nil {
			b.Fatal(err)
		}
		if _, _, err := Compile(img); err != nil {
			b.Fatal(err)
		}
		img.Close()
	}
}
