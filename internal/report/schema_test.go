package report

import (
	"encoding/xml"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/quick"

	_ "github.com/owenrumney/go-sarif/v3/pkg/report/v210/sarif" // carries the schema; see officialSARIF
	"github.com/xeipuuv/gojsonschema"

	"github.com/ripstop/ripstop/internal/finding"
)

// schemaOfLines compiles docs/findings-schema.json.
func schemaOfLines(t *testing.T) *gojsonschema.Schema {
	t.Helper()
	data, err := os.ReadFile("../../docs/findings-schema.json")
	if err != nil {
		t.Fatal(err)
	}
	schema, err := gojsonschema.NewSchema(gojsonschema.NewBytesLoader(data))
	if err != nil {
		t.Fatal(err)
	}
	return schema
}

func validateLines(t *testing.T, text string) {
	t.Helper()
	schema := schemaOfLines(t)
	for i, line := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		res, err := schema.Validate(gojsonschema.NewStringLoader(line))
		if err != nil {
			t.Fatalf("line %d: %v: %s", i+1, err, line)
		}
		for _, e := range res.Errors() {
			t.Errorf("line %d: %s\n%s", i+1, e, line)
		}
	}
}

// officialSARIF compiles the schema of OASIS. The module go-sarif carries its text as a constant of its package, for a validator that
// checks only that module's own structures, so it is read out of the source.
var officialSARIF = sync.OnceValues(func() (*gojsonschema.Schema, error) {
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/owenrumney/go-sarif/v3").Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(strings.TrimSpace(string(dir)), "pkg/report/v210/sarif/schema.go"), nil, 0)
	if err != nil {
		return nil, err
	}
	text := ""
	ast.Inspect(file, func(n ast.Node) bool {
		if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			text, err = strconv.Unquote(lit.Value)
		}
		return true
	})
	if err != nil || !strings.Contains(text, "Version 2.1.0 JSON Schema") {
		return nil, fmt.Errorf("no schema in go-sarif: %w", err)
	}
	return gojsonschema.NewSchema(gojsonschema.NewStringLoader(text))
})

func checkSARIF(text []byte) error {
	schema, err := officialSARIF()
	if err != nil {
		return err
	}
	res, err := schema.Validate(gojsonschema.NewBytesLoader(text))
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range res.Errors() {
		errs = append(errs, errors.New(e.String()))
	}
	return errors.Join(errs...)
}

func validateSARIF(t *testing.T, text string) {
	t.Helper()
	if err := checkSARIF([]byte(text)); err != nil {
		t.Errorf("%v\n%s", err, text)
	}
}

// The JSON lines keep to their schema, and the schema refuses what is wrong.
func TestJSONAgainstSchema(t *testing.T) {
	text := render(t, "json", nil, exampleSummary(), fixtures()...)
	validateLines(t, text)
	schema := schemaOfLines(t)
	lines := strings.Split(text, "\n")
	for _, wrong := range []string{
		strings.Replace(lines[1], `"rule":"`, `"rule":"Not An Id `, 1),
		strings.Replace(lines[1], `"fingerprint"`, `"finger"`, 1),
		strings.Replace(lines[1], `"pc":"0x`, `"pc":"`, 1),
		strings.Replace(lines[1], `"count":1`, `"count":0`, 1),
		strings.Replace(lines[0], `"version":1`, `"version":2`, 1),
		`{"type":"other"}`,
	} {
		if res, err := schema.Validate(gojsonschema.NewStringLoader(wrong)); err == nil && res.Valid() {
			t.Errorf("the schema accepts %s", wrong)
		}
	}
}

// SARIF is valid against the official schema, and the check refuses what is wrong.
func TestSARIFAgainstSchema(t *testing.T) {
	text := render(t, "sarif", nil, exampleSummary(), fixtures()...)
	validateSARIF(t, text)
	for _, wrong := range []string{
		strings.Replace(text, `"startLine": 20`, `"startLine": 0`, 1),
		strings.Replace(text, `"ruleId"`, `"ruleID_"`, 1),
		strings.Replace(text, `"level": "error"`, `"level": "fatal"`, 1),
		strings.Replace(text, `"version": "2.1.0"`, `"version": "3"`, 1),
		strings.ReplaceAll(text, `"driver"`, `"driven"`),
	} {
		if wrong == text {
			t.Fatal("the text to spoil is not there")
		}
		if checkSARIF([]byte(wrong)) == nil {
			t.Error("the check accepts spoilt SARIF")
		}
	}
}

// Findings of any shape, with any bytes in their names, give text without control characters, JSON and SARIF that validate, XML that
// parses, and one line for GitHub; nothing panics.
func TestAnyFinding(t *testing.T) {
	schema := schemaOfLines(t)
	check := func(f finding.Finding, pick uint8) bool {
		f.Rule = finding.Rules[int(pick)%len(finding.Rules)].Rule
		f.Count = int(pick % 3)
		if len(f.Objects) > 0 && len(f.Parts) > 0 && len(f.Parts[0].Held) > 0 {
			f.Parts[0].Held[0].Object = f.Objects[0].ID
		}
		ok := true
		text := render(t, "text", nil, Summary{}, f)
		if i := strings.IndexFunc(strings.ReplaceAll(text, "\n", ""), isControl); i >= 0 {
			t.Errorf("control character in %q", text)
			ok = false
		}
		for _, line := range strings.Split(strings.TrimSuffix(render(t, "json", nil, Summary{}, f), "\n"), "\n") {
			res, err := schema.Validate(gojsonschema.NewStringLoader(line))
			if err != nil || !res.Valid() {
				t.Errorf("%v %v: %s", err, res, line)
				ok = false
			}
		}
		if err := checkSARIF([]byte(render(t, "sarif", nil, Summary{}, f))); err != nil {
			t.Error(err)
			ok = false
		}
		var doc junitSuites
		if err := xml.Unmarshal([]byte(render(t, "junit", nil, Summary{}, f)), &doc); err != nil || doc.Failures != 1 {
			t.Errorf("%v %+v", err, doc)
			ok = false
		}
		if got := render(t, "github", nil, Summary{}, f); strings.Count(got, "\n") != 1 {
			t.Errorf("%q is not one line", got)
			ok = false
		}
		return ok
	}
	if err := quick.Check(check, &quick.Config{MaxCount: 200}); err != nil {
		t.Error(err)
	}
}
