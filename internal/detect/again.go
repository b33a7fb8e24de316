package detect

import (
	"fmt"

	"github.com/ripstop/ripstop/internal/finding"
	"github.com/ripstop/ripstop/internal/wire"
)

// What came of executing an epoch again, in words. What machines read (finding.Again) has the names of the enums.

// lostBy says why an epoch cannot be executed again.
var lostBy = map[wire.GuardLost]string{
	wire.GuardLostLog:     "its log was full",
	wire.GuardLostObjects: "too many locks and the like were used",
	wire.GuardLostThreads: "there are too many threads",
	wire.GuardLostKind:    "a lock was used whose kind cannot be followed (robust, shared by processes, with priorities)",
	wire.GuardLostCall:    "a system call was made that cannot be undone",
	wire.GuardLostThread:  "a thread was made or ended in a way that cannot be followed",
	wire.GuardLostModule:  "a library was loaded or unloaded",
	wire.GuardLostProcess: "a process was made, or another program executed",
	wire.GuardLostOnce:    "an initialiser ran (once, a static variable)",
	wire.GuardLostSignal:  "a signal's handler ran",
	wire.GuardLostMemory:  "memory could not be kept",
	wire.GuardLostShared:  "more memory is shared with other processes than is followed (64 MiB), or it is a device's",
	wire.GuardLostFile:    "a file that was mapped in it has lost its name, or its place",
}

// LostWords is a sentence on why an epoch cannot be executed again.
func LostWords(why wire.GuardLost) string {
	if s := lostBy[why]; s != "" {
		return s
	}
	return why.String()
}

// cameTo says what came of a re-execution; of the others a thread went another way.
var cameTo = map[wire.GuardVerdict]string{
	wire.GuardVerdictIdentical:    "identical: events, results and memory are the same",
	wire.GuardVerdictStack:        "the same but for words of stacks: events, results and all other memory",
	wire.GuardVerdictMemory:       "memory differs",
	wire.GuardVerdictMap:          "what is mapped differs",
	wire.GuardVerdictFault:        "it crashed where the recording did not",
	wire.GuardVerdictStalled:      "it came to no end",
	wire.GuardVerdictFailed:       "it could not be executed again",
	wire.GuardVerdictCallNumber:   "another system call was made",
	wire.GuardVerdictCallArgument: "a system call had other arguments",
	wire.GuardVerdictCallResult:   "a system call had another result",
	wire.GuardVerdictCallBytes:    "a system call had other data",
	wire.GuardVerdictResult:       "a lock or the like had another result",
}

// VerdictWords likewise, on what came of a re-execution.
func VerdictWords(v wire.GuardVerdict) string {
	if s := cameTo[v]; s != "" {
		return s
	}
	return "a thread went another way" // event, more
}

// crashAgain keeps what is known of the crash that comes next.
func (p *process) crashAgain(ev wire.EvCrashAgain) {
	a := &finding.Again{Reproduced: ev.Again == wire.AgainReproduced, Tries: int(ev.Tries), Made: int(ev.Made), Verdict: ev.Verdict.String()}
	switch ev.Again {
	case wire.AgainReproduced, wire.AgainOther:
	case wire.AgainBusy, wire.AgainEnded, wire.AgainYoung, wire.AgainAlone:
		a.Verdict, a.Why = "", ev.Again.String()
	case wire.AgainLost:
		a.Verdict, a.Why = "", ev.Lost.String()
	default:
		return // of a newer agent
	}
	p.dying.Again = a
}

// againWords is a note on the re-executions of a crash, which causes rest on.
func againWords(a *finding.Again) string {
	switch {
	case a == nil:
		return ""
	case a.Reproduced && a.Tries == 1:
		return "The crash was reproduced: the last epoch was executed again, and came to it in the first try, with all events the same."
	case a.Reproduced:
		return fmt.Sprintf("The crash was reproduced: the last epoch was executed again, and came to it in try %d, with all events the same; the ones before went another way, as what races may.", a.Tries)
	case a.Why == wire.AgainBusy.String():
		return "The last epoch was not executed again: not all threads came to its end in time."
	case a.Why == wire.AgainEnded.String():
		return "The last epoch was not executed again: another end of it came between the crash and its report."
	case a.Why == wire.AgainYoung.String():
		return "Nothing was recorded of the process yet, as it was forked less than a fifth of a second before: nobody is named who wrote what it used."
	case a.Why == wire.AgainAlone.String():
		return "Nothing was recorded of the process yet, as it had no second thread: nobody is named who wrote what it used. With --epochs-from=start it is recorded from its start."
	case a.Why != "":
		return fmt.Sprintf("The last epoch could not be executed again: %s.", byKey(lostBy, a.Why))
	}
	how := byKey(cameTo, a.Verdict)
	switch {
	case a.Made == 1 && how == a.Verdict:
		return "The crash could not be reproduced: the last epoch was executed again, and a thread went another way."
	case a.Made == 1:
		return fmt.Sprintf("The crash could not be reproduced: the last epoch was executed again, and went another way (%s).", how)
	case how == a.Verdict:
		return fmt.Sprintf("The crash could not be reproduced: the last epoch was executed again %d times, and a thread went another way each time.", a.Made)
	}
	return fmt.Sprintf("The crash could not be reproduced: the last epoch was executed again %d times, and went another way each time (the last time: %s).", a.Made, how)
}

// byKey is what a table says of what machines are told as key; what has no entry, the key.
func byKey[K interface {
	comparable
	String() string
}](table map[K]string, key string) string {
	for k, words := range table {
		if k.String() == key {
			return words
		}
	}
	return key
}
