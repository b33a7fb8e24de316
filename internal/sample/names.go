package sample

import "strings"

// loadOrStore tells by an event's name whether it counts loads or stores: the names are those of the processors' own lists (perf's
// pmu-events/arch/x86; Intel SDM volume 3, 'Data Linear Address' of PEBS).
func loadOrStore(name string) EventKind {
	name = strings.ToLower(name)
	switch {
	case strings.Contains(name, "store"):
		return StoreEvent
	case strings.Contains(name, "load"):
		return LoadEvent
	}
	return OtherEvent
}
