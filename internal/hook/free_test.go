package hook

import (
	"debug/elf"
	"encoding/binary"
	"fmt"
	"os"
	"testing"

	"github.com/ripstop/ripstop/internal/image"
)

func TestDump(t *testing.T) {
	img, err := image.Open(os.Getenv("EXE"))
	if err != nil {
		t.Skip()
	}
	w := finderOf(img)
	words := w.find()
	owned := map[uint64]bool{}
	for _, at := range words {
		owned[at] = true
	}
	f := &queueFinder{wordFinder: finderOf(img), owned: owned}
	f.word = func(at uint64) (uint64, bool) {
		lo, size, ok := img.Program(elf.PT_GNU_RELRO)
		if !ok || at < lo || at >= lo+size {
			return 0, false
		}
		b := img.Bytes(at, 8)
		if len(b) < 8 {
			return 0, false
		}
		return binary.LittleEndian.Uint64(b), true
	}
	by := map[string]int{}
	var order []string
	for _, at := range f.find() {
		s, _ := img.Symbol(at)
		if by[s.Name] == 0 {
			order = append(order, s.Name)
		}
		by[s.Name]++
		if os.Getenv("FN") != "" && s.Name == os.Getenv("FN") {
			in, _ := f.insn(at)
			fmt.Printf("%x %s\n", at, in.Inst.String())
		}
	}
	for _, n := range order {
		fmt.Println(by[n], n)
	}
	fmt.Println(len(f.list), "words", len(words))
}
