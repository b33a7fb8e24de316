// Goes is a program of Go's that calls C: goroutines that allocate by malloc, a nil pointer that is recovered from (a SIGSEGV that the runtime handles on its own alternate stack), a file, a child.
package main

// #include <stdlib.h>
// #include <string.h>
// static int f(int n) { char *p = malloc(n); memset(p, 1, n); int s = 0; for (int i = 0; i < n; i++) s += p[i]; free(p); return s; }
import "C"

import (
	"fmt"
	"os"
	"os/exec"
	"sync"
	"time"
)

func main() {
	var wg sync.WaitGroup
	sums := make([]int, 8)
	for i := range sums {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for range 500 {
				sums[i] += int(C.f(C.int(100+i))) + len(make([]byte, 1000))
			}
			time.Sleep(time.Millisecond)
		}()
	}
	wg.Wait()
	fmt.Println(sums)
	out, err := exec.Command("echo", "child").Output()
	fmt.Printf("%s%v\n", out, err)
	defer func() {
		fmt.Println(recover())
		os.Exit(3)
	}()
	var p *int
	fmt.Println(*p)
}
