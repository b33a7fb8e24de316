package run

import (
	"os/exec"
	"testing"
	"time"
)

// losesNoEpoch runs a program of testdata in a directory of its own: as natively, which is status 5, with at least so many epochs of 20 ms the same and none another, and of one a second none is lost by a call, but so many.
func losesNoEpoch(t *testing.T, prog string, least, lost int) {
	t.Helper()
	ofAgent(t)
	native := finish(t, exec.Command(path(prog), t.TempDir()))
	if native.code != 5 {
		t.Fatalf("natively %+v", native)
	}
	r, counts := epochsOf(t, 20*time.Millisecond, path(prog), t.TempDir())
	if r != native {
		t.Errorf("%+v\nnatively %+v", r, native)
	}
	if counts["executed again: identical"] < least {
		t.Errorf("%v", counts)
	}
	noOther(t, counts)
	if r, counts := epochsBy(t, map[string]any{"On": true, "Most": time.Second}, path(prog), t.TempDir()); r != native || counts["lost: call"] > lost {
		t.Errorf("%+v\nnatively %+v, %v", r, native, counts)
	}
}

// The close of a file that could be written to by the descriptor, and had been read, ended its epoch (linkers, git, databases): a duplicate would have been one that may write, for whose close others wait.
func TestEpochsOfFilesOpenForBoth(t *testing.T) { losesNoEpoch(t, "both", 4, 1) }

// setlocale lost the epoch of every program that calls it, as it maps a file shared; short ones had no other. ls lost its by extended attributes, cp by a try to share a file's blocks, redis by questions for its capabilities.
func TestEpochsOfQueries(t *testing.T) { losesNoEpoch(t, "queries", 3, 0) }

// A database reads a page of its file, changes it and writes it back: what was read was gone, so the epoch ended, or was lost; of sqlite with a table of some megabytes two of three were. What is overwritten is kept.
func TestEpochsOfRewrittenFiles(t *testing.T) { losesNoEpoch(t, "rewrites", 3, 0) }
