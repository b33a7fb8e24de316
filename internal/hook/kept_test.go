package hook

import (
	"reflect"
	"testing"

	"github.com/ripstop/ripstop/internal/syscalls"
)

// What is kept comes back as it was.
func TestKept(t *testing.T) {
	calls := []call{{at: 0x401000, left: syscalls.LeftSigreturn}, {at: 0x12345, size: 2}, {at: 0x12355, size: 2, left: syscalls.LeftExit}, {at: 1 << 63, size: 2, left: syscalls.Left32}}
	if got, err := parseCalls(appendCalls(nil, calls)); err != nil || !reflect.DeepEqual(got, calls) {
		t.Fatalf("%v: %+v", err, got)
	}
	places := []uint64{1, 5, 0x123456, 3}
	if got, err := parsePlaces(appendPlaces(nil, places)); err != nil || !reflect.DeepEqual(got, places) {
		t.Fatalf("%v: %v", err, got)
	}
}

// Any bytes are refused, or are what would be kept of what they say.
func FuzzKept(f *testing.F) {
	f.Add(appendCalls(nil, []call{{at: 0x12345, size: 2}, {at: 0x12355, left: syscalls.LeftSigreturn}}))
	f.Add(appendPlaces(nil, []uint64{1, 0x123456}))
	f.Fuzz(func(t *testing.T, b []byte) {
		if calls, err := parseCalls(b); err == nil {
			if again, err := parseCalls(appendCalls(nil, calls)); err != nil || !reflect.DeepEqual(again, calls) {
				t.Fatalf("%v: %+v is kept as %+v", err, calls, again)
			}
		}
		if places, err := parsePlaces(b); err == nil {
			if again, err := parsePlaces(appendPlaces(nil, places)); err != nil || !reflect.DeepEqual(again, places) {
				t.Fatalf("%v: %v is kept as %v", err, places, again)
			}
		}
	})
}
