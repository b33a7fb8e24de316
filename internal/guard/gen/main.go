// Command gen writes the agent's table of classes of system calls. The test of package guard fails when it is stale.
package main

import (
	"log"
	"os"

	"github.com/ripstop/ripstop/internal/guard"
)

func main() {
	log.SetFlags(0)
	if err := os.WriteFile("../agent/c/zz_guardclass.h", guard.Header(), 0o644); err != nil {
		log.Fatal(err)
	}
}
