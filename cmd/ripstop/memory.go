package main

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

// fewBytes of live memory are few: then the collector runs at four times as much more, instead of at once as much.
const (
	fewBytes    = 16 << 20
	fewPercent  = 400
	manyPercent = 100
)

// collectLess spares a short run the collector, and one with little in memory most of its rounds: they take processors from the program. Once much is
// alive, memory counts more, and the collector is as Go's is by default. GOGC in the environment says otherwise.
func collectLess() {
	if was := debug.SetGCPercent(fewPercent); was != manyPercent {
		debug.SetGCPercent(was)
		return
	}
	watchLive()
}

// watchLive looks after each round of the collector, which finalizes what nobody has, how much is alive.
func watchLive() {
	runtime.SetFinalizer(new([64]byte), func(*[64]byte) {
		live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
		metrics.Read(live)
		if v := live[0].Value; v.Kind() == metrics.KindUint64 && v.Uint64() < fewBytes {
			watchLive()
			return
		}
		debug.SetGCPercent(manyPercent)
	})
}
