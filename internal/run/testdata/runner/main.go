// Command runner is ripstop without its command line: for the tests of packages run and record. Its first argument is run.Options or
// record.Options or record.ReportOptions in JSON, the second says which, the rest is the program.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/ripstop/ripstop/internal/record"
	"github.com/ripstop/ripstop/internal/run"
)

func main() {
	exit, err := job(os.Args[1], os.Args[2], os.Args[3:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "runner:", err)
	}
	os.Exit(exit)
}

func job(text, what string, program []string) (int, error) {
	parse := func(o any) {
		if err := json.Unmarshal([]byte(text), o); err != nil {
			panic(err)
		}
	}
	switch what {
	case "run":
		o := run.Options{Program: program, ExitCode: 66, Follow: true, StackDepth: 24}
		parse(&o)
		o.Program = program
		return run.Run(o)
	case "record":
		o := record.Options{Program: program, Follow: true, StackDepth: 24}
		parse(&o)
		o.Program = program
		return record.Record(o)
	case "report":
		o := record.ReportOptions{ExitCode: 66}
		parse(&o)
		return record.Report(o)
	case "dump":
		var f record.Filter
		parse(&f)
		return record.Dump(program[0], f, os.Stdout)
	}
	panic("no job " + what)
}
