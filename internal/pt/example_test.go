package pt_test

import (
	"fmt"
	"io"
	"log"

	"github.com/ripstop/ripstop/internal/pt"
)

// code is an Image of one range.
type code struct {
	base  uint64
	bytes []byte
}

func (c code) Code(addr uint64) []byte {
	if addr < c.base || addr >= c.base+uint64(len(c.bytes)) {
		return nil
	}
	return c.bytes[addr-c.base:]
}

// A loop that was gone twice, and a system call, encoded and decoded.
func Example() {
	image := code{0x1000, []byte("\xff\xc8\x75\xfc\x0f\x05")} // dec %eax; jne back; syscall
	enc, err := pt.NewFlowEncoder(image, pt.EncoderOptions{TSC: true})
	if err != nil {
		log.Fatal(err)
	}
	for i, ip := range []uint64{0x1000, 0x1002, 0x1000, 0x1002, 0x1004} {
		enc.Tick(uint64(5000 + i))
		if err := enc.Execute(ip); err != nil {
			log.Fatal(err)
		}
	}
	if err := enc.Leave(0x1006); err != nil {
		log.Fatal(err)
	}
	trace := enc.Bytes()

	cache := pt.NewCache(image)
	for _, segment := range pt.Segments(trace, 4096) {
		flow := pt.NewFlow(trace, segment, pt.Config{}, cache)
		steps := make([]pt.Step, 100)
		for {
			n, err := flow.Read(steps)
			for _, s := range steps[:n] {
				fmt.Println(s)
			}
			if err == io.EOF {
				break
			}
			if err != nil {
				fmt.Println(err) // and go on
			}
		}
	}
	// Output:
	// enable 0x0-0x1000 (0) @5000
	// run 0x1000-0x1004 (2) @5000
	// run 0x1000-0x1004 (2) @5000
	// run 0x1004-0x1006 (1) @5000
	// disable 0x1006-0x0 (0) @5000
}
