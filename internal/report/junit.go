package report

import (
	"encoding/xml"
	"fmt"
	"io"
	"path/filepath"
	"strings"
)

// JUnit XML as CI systems read it: each finding is a failed test case whose class is its rule. A run without findings is one test
// case that passed, for several systems call a file without test cases an error.

type (
	junitSuites struct {
		XMLName  xml.Name     `xml:"testsuites"`
		Name     string       `xml:"name,attr"`
		Tests    int          `xml:"tests,attr"`
		Failures int          `xml:"failures,attr"`
		Time     string       `xml:"time,attr"`
		Suites   []junitSuite `xml:"testsuite"`
	}
	junitSuite struct {
		Name      string      `xml:"name,attr"`
		Tests     int         `xml:"tests,attr"`
		Failures  int         `xml:"failures,attr"`
		Errors    int         `xml:"errors,attr"`
		Time      string      `xml:"time,attr"`
		Timestamp string      `xml:"timestamp,attr"`
		Cases     []junitCase `xml:"testcase"`
		SystemErr string      `xml:"system-err,omitempty"`
	}
	junitCase struct {
		Name      string        `xml:"name,attr"`
		ClassName string        `xml:"classname,attr"`
		File      string        `xml:"file,attr,omitempty"`
		Line      int           `xml:"line,attr,omitempty"`
		Time      string        `xml:"time,attr"`
		Failure   *junitFailure `xml:"failure,omitempty"`
	}
	junitFailure struct {
		Type    string `xml:"type,attr"`
		Message string `xml:"message,attr"`
		Text    string `xml:",cdata"`
	}
)

type junitWriter struct {
	w io.Writer
	r *Reporter
}

func (*junitWriter) add(*record) error { return nil }

func (j *junitWriter) finish(records []*record, _ Result, s Summary) error {
	seconds := fmt.Sprintf("%d.%03d", s.DurationMS/1000, s.DurationMS%1000)
	name := "ripstop"
	if len(j.r.opts.Command) > 0 {
		name += ": " + filepath.Base(j.r.opts.Command[0])
	}
	suite := junitSuite{
		Name: name, Failures: len(records), Time: seconds, Timestamp: now().UTC().Format("2006-01-02T15:04:05"),
		SystemErr: strings.Join(s.NotSeen, "\n"),
	}
	p := newPrinter(j.r.src, false, !j.r.opts.NoSource)
	for _, rec := range records {
		p.b.Reset()
		p.block(rec)
		c := junitCase{
			Name: message(&rec.f), ClassName: "ripstop." + string(rec.f.Rule), Time: "0",
			Failure: &junitFailure{Type: string(rec.f.Rule), Message: p.summary(rec), Text: "\n" + p.b.String()},
		}
		if place := summaryPlace(j.r.src, rec); place != "" {
			c.Name += " at " + place
		}
		if rec.where.File != "" {
			c.File, c.Line = j.r.src.display(rec.where.File), rec.where.Line
		}
		suite.Cases = append(suite.Cases, c)
	}
	if len(records) == 0 {
		suite.Cases = []junitCase{{Name: "no findings", ClassName: "ripstop", Time: seconds}}
	}
	suite.Tests = len(suite.Cases)
	doc := junitSuites{Name: "ripstop", Tests: suite.Tests, Failures: suite.Failures, Time: seconds, Suites: []junitSuite{suite}}
	text, err := xml.MarshalIndent(doc, "", "  ")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(j.w, "%s%s\n", xml.Header, text)
	return err
}
