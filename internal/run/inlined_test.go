package run

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// In optimised C++ most frames are inlined, and nothing in a text report told which: several frames with one address look like a broken walk. All
// formats say it now, and what is not inlined is what the compiler kept as a function.
func TestInlined(t *testing.T) {
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	o := map[string]any{"Report": map[string]any{"Formats": []string{"text=" + file("text"), "json=" + file("json"), "sarif=" + file("sarif")}, "NoSource": true}}
	if r := finish(t, command(t, o, path("inlined"))); r.code != 66 {
		t.Fatalf("exit %d\n%s", r.code, r.stderr)
	}
	read := func(name string) string {
		b, err := os.ReadFile(file(name))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	// Function, and whether it is inlined, of the frames in the program's own file, from std::mutex's on outwards.
	want := "std::mutex::lock() true, both<Account> true, Bank::back() true, two() false"
	relevant := regexp.MustCompile(`^(std::mutex::lock\(\)|both<Account>|Bank::back\(\)|two\(\))$`)
	join := func(frames []string) string { return strings.Join(frames[:min(len(frames), 4)], ", ") }

	var frames []string
	for _, m := range regexp.MustCompile(`(?m)^    #\d+ (\S+) \S+ \(inlined\+0x[0-9a-f]+\)( \(inlined\))?$`).FindAllStringSubmatch(read("text"), -1) {
		if relevant.MatchString(m[1]) {
			frames = append(frames, fmt.Sprint(m[1], " ", m[2] != ""))
		}
	}
	if join(frames) != want {
		t.Errorf("text: %s, want %s\n%s", join(frames), want, read("text"))
	}
	frames = nil
	type frame struct {
		Func    string `json:"function"`
		Inlined bool
	}
	for line := range strings.Lines(read("json")) {
		var f struct{ Parts []struct{ Stack []frame } }
		if err := json.Unmarshal([]byte(line), &f); err != nil {
			t.Fatal(err)
		}
		for _, p := range f.Parts {
			for _, fr := range p.Stack {
				if relevant.MatchString(fr.Func) {
					frames = append(frames, fmt.Sprint(fr.Func, " ", fr.Inlined))
				}
			}
		}
	}
	if join(frames) != want {
		t.Errorf("json: %s, want %s", join(frames), want)
	}
	type sarifFrame struct {
		Location   struct{ LogicalLocations []struct{ Name string } }
		Properties struct{ Inlined bool }
	}
	type flow struct {
		Locations []struct{ Stack struct{ Frames []sarifFrame } }
	}
	var log struct {
		Runs []struct {
			Results []struct {
				CodeFlows []struct{ ThreadFlows []flow }
			}
		}
	}
	if err := json.Unmarshal([]byte(read("sarif")), &log); err != nil {
		t.Fatal(err)
	}
	frames = nil
	for _, step := range log.Runs[0].Results[0].CodeFlows[0].ThreadFlows[0].Locations {
		for _, fr := range step.Stack.Frames {
			if l := fr.Location.LogicalLocations; len(l) > 0 && relevant.MatchString(l[0].Name) {
				frames = append(frames, fmt.Sprint(l[0].Name, " ", fr.Properties.Inlined))
			}
		}
	}
	if join(frames) != want {
		t.Errorf("sarif: %s, want %s", join(frames), want)
	}
}
