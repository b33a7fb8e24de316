package sample

import "strings"

// The codes of the events for all loads and stores of Intel's processors.
const allLoads, allStores = 0x81d0, 0x82d0

// loadOrStore tells by an event's name whether it counts loads or stores: the names are those of the processors' own lists (perf's
// pmu-events/arch/x86; Intel SDM volume 3, 'Data Linear Address' of PEBS).
func loadOrStore(name string, code uint64) EventKind {
	if name == "" { // the file was cut off before its names
		switch {
		case code == allLoads:
			return LoadEvent
		case code == allStores:
			return StoreEvent
		}
	}
	name = strings.ToLower(name)
	switch {
	case strings.Contains(name, "store"):
		return StoreEvent
	case strings.Contains(name, "load"):
		return LoadEvent
	}
	return OtherEvent
}
