package drive

import (
	"context"
	"os"
	"strconv"
)

// kernels are those of bench/testdata/kernels.c, with how often each is repeated for about a second of two threads.
var kernels = []struct {
	name    string
	repeats [3]int
}{
	{"nbody", [3]int{4, 12, 60}}, {"lu", [3]int{4, 12, 60}}, {"fft", [3]int{4, 12, 60}}, {"radix", [3]int{20, 80, 400}}, {"stencil", [3]int{10, 40, 200}},
	{"montecarlo", [3]int{4, 12, 60}}, {"kmeans", [3]int{10, 40, 200}}, {"wordcount", [3]int{20, 100, 500}}, {"pipeline", [3]int{10, 50, 200}}, {"hashtable", [3]int{4, 15, 60}},
}

// Kernels are parallel programs that compute and end, from the source that is given.
func Kernels(source string) []Program {
	var list []Program
	for _, k := range kernels {
		list = append(list, Program{Name: k.name, Run: func(ctx context.Context, j *Job) (Outcome, error) {
			text, err := os.ReadFile(source)
			if err != nil {
				return Outcome{}, err
			}
			prog, err := j.compile(ctx, "kernels", text, "-lm")
			if err != nil {
				return Outcome{}, err
			}
			return j.batch(ctx, "", prog, k.name, "4", strconv.Itoa(j.Size.pick(k.repeats[0], k.repeats[1], k.repeats[2])))
		}})
	}
	return list
}
