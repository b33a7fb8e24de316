package verdict

import "fmt"

// Schedule is a way to run a command that gives its threads another order in time.
type Schedule struct {
	Name    string
	Outer   []string // before ripstop's command: ripstop and the program are subject to it
	Inner   []string // before the program: only the program is, and is reached by exec
	Spinner int      // a processor that a busy process is kept on meanwhile, -1: none
}

// Schedules are the ways, in the order in which runs take their turn, for a machine with the given processors.
func Schedules(cpus []int) []Schedule {
	first, last := cpus[0], cpus[len(cpus)-1]
	on := func(cpu int) []string { return []string{"taskset", "-c", fmt.Sprint(cpu)} }
	return []Schedule{
		{Name: "all processors", Spinner: -1},
		{Name: "one processor", Outer: on(first), Spinner: -1},
		{Name: "program on one processor, beside a busy process", Inner: on(last), Spinner: last},
		{Name: "program in batches", Inner: []string{"chrt", "-b", "0"}, Spinner: -1},
		{Name: "program niced, beside a busy process", Inner: []string{"nice", "-n", "5"}, Spinner: first},
		{Name: "everything niced, in batches, on one processor", Outer: append(on(last), "nice", "-n", "5", "chrt", "-b", "0"), Spinner: -1},
	}
}
