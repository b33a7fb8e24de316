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
	list := []uint64{1, 5, 0x123456, 3}
	if got, err := parseList(appendList(nil, list)); err != nil || !reflect.DeepEqual(got, list) {
		t.Fatalf("%v: %v", err, got)
	}
	for _, want := range []places{{clocks: list[:3], calls: list[3:]}, {clocks: list, calls: list[4:]}, {clocks: list[:0], calls: list}} {
		if got, err := parsePlaces(appendPlaces(nil, want)); err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("%v: %v", err, got)
		}
	}
}

// Any bytes are refused, or are what would be kept of what they say.
func FuzzKept(f *testing.F) {
	f.Add(appendCalls(nil, []call{{at: 0x12345, size: 2}, {at: 0x12355, left: syscalls.LeftSigreturn}}))
	f.Add(appendList(nil, []uint64{1, 0x123456}))
	f.Add(appendPlaces(nil, places{[]uint64{1, 0x123456}, []uint64{7}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		if calls, err := parseCalls(b); err == nil {
			if again, err := parseCalls(appendCalls(nil, calls)); err != nil || !reflect.DeepEqual(again, calls) {
				t.Fatalf("%v: %+v is kept as %+v", err, calls, again)
			}
		}
		if list, err := parseList(b); err == nil {
			if again, err := parseList(appendList(nil, list)); err != nil || !reflect.DeepEqual(again, list) {
				t.Fatalf("%v: %v is kept as %v", err, list, again)
			}
		}
		if list, err := parsePlaces(b); err == nil {
			if again, err := parsePlaces(appendPlaces(nil, list)); err != nil || !reflect.DeepEqual(again, list) {
				t.Fatalf("%v: %v is kept as %v", err, list, again)
			}
		}
	})
}
