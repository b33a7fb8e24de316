// Package report turns findings into what people and machines read: text in the shape of ThreadSanitizer's blocks, JSON lines, SARIF,
// JUnit XML, annotations of GitHub. It merges findings that say the same, drops those that a suppression or a baseline names, and
// counts the rest: that number decides the exit status.
//
// What is wrong is decided in detectors; names of addresses come with the finding. No detection and no symbol look-up belongs here.
package report
