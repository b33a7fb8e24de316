// Command cgo is a Go program with C in it: its runtime installs handlers for all signals and changes masks by system calls of its own, makes threads by clone, and steps on nil pointers.
package main

/*
#include <stdlib.h>
#include <string.h>
static long work(long n)
{
	volatile long *a = malloc(64 * sizeof *a);
	long s = 0;
	memset((void *)a, 0, 64 * sizeof *a);
	for (long i = 0; i < n; i++) {
		a[i & 63] += i;
		s += a[(i * 7) & 63];
	}
	free((void *)a);
	return s;
}
*/
import "C"

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"sync"
	"syscall"
)

func main() {
	signals := make(chan os.Signal, 10)
	signal.Notify(signals, syscall.SIGUSR1, syscall.SIGTRAP)
	var wg sync.WaitGroup
	sums := make([]int64, 16)
	for i := range sums {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for range 20 {
				sums[i] += int64(C.work(C.long(1000 * (i + 1))))
				m := map[int]string{}
				for k := range 300 {
					m[k] = fmt.Sprint(k)
				}
				runtime.Gosched()
			}
		}()
	}
	wg.Wait()
	runtime.GC()
	fmt.Println(sums)
	for _, s := range []syscall.Signal{syscall.SIGUSR1, syscall.SIGTRAP} {
		syscall.Kill(os.Getpid(), s)
		fmt.Println(<-signals)
	}
	out, err := exec.Command("/bin/echo", "child").Output()
	fmt.Printf("%s%v\n", out, err)
	defer func() { fmt.Println(recover()) }()
	var p *int
	fmt.Println(*p)
}
