// Package trace keeps events in order and on disk: the merger that puts the lanes of a process into one order, the trace directory's
// writer and reader, and the text twin by which people and tests read and write events. What events mean is not known here beyond
// what order and thread numbers need; nothing here touches a process.
//
// Formats are described in docs/formats.md.
package trace
