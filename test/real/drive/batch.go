package drive

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"regexp"
)

// digest replaces an output by its hash, for comparing and keeping.
func digest(out *Outcome) {
	out.Facts = append(out.Facts, fmt.Sprintf("output %d bytes, sha256 %x", len(out.Stdout), sha256.Sum256(out.Stdout)))
	out.Stdout = nil
}

// both runs a compressor on text and its inverse on what came out. The output of both is deterministic.
func both(ctx context.Context, j *Job, size int, name string, compress, expand []string) (Outcome, error) {
	in, err := j.text(size)
	if err != nil {
		return Outcome{}, err
	}
	packed, err := j.batch(ctx, in, name, compress...)
	if err != nil || packed.Exit != 0 && j.Mode == Native {
		return packed, fmt.Errorf("%s: exit %d, %v\n%s", name, packed.Exit, err, tail(packed.Stderr))
	}
	if j.Size == Timed || j.Size == Short { // one run is what the bench times
		digest(&packed)
		return packed, nil
	}
	content := packed.Stdout
	file, err := j.keep("packed", content)
	if err != nil {
		return packed, err
	}
	// The report of the first half would be overwritten: the second half is a run of its own, beside it.
	second := *j
	if second.Dir, err = j.sub("expand"); err != nil {
		return packed, err
	}
	expanded, err := second.batch(ctx, file, name, expand...)
	if err != nil {
		return packed, err
	}
	digest(&packed)
	digest(&expanded)
	packed.Facts = append(packed.Facts, expanded.Facts...)
	packed.Facts = append(packed.Facts, fmt.Sprintf("expanding: exit %d", expanded.Exit))
	packed.Stderr = append(packed.Stderr, expanded.Stderr...)
	packed.Time += expanded.Time
	packed.CPU += expanded.CPU
	return packed, nil
}

func pbzip2(ctx context.Context, j *Job) (Outcome, error) {
	return both(ctx, j, j.Size.pick(6, 60, 150)<<20, "pbzip2", []string{"-p4", "-c", "-q", "-z"}, []string{"-p4", "-c", "-q", "-d"})
}

func pigz(ctx context.Context, j *Job) (Outcome, error) {
	return both(ctx, j, j.Size.pick(16, 160, 400)<<20, "pigz", []string{"-p", "4", "-n", "-c"}, []string{"-p", "4", "-d", "-c"})
}

func xz(ctx context.Context, j *Job) (Outcome, error) {
	return both(ctx, j, j.Size.pick(2, 40, 100)<<20, "xz", []string{"-T2", "-2", "--block-size=512KiB", "-c"}, []string{"-d", "-c"})
}

// cc1 is gcc's compiler proper, without the driver, on one large file.
func cc1(ctx context.Context, j *Job) (Outcome, error) {
	path, err := j.tool(ctx, "gcc", "-print-prog-name=cc1")
	if err != nil {
		return Outcome{}, err
	}
	in, err := j.program(j.Size.pick(60, 1500, 4000))
	if err != nil {
		return Outcome{}, err
	}
	out, err := j.batch(ctx, "", string(bytes.TrimSpace(path)), "-quiet", "-O2", "-fverbose-asm", in, "-o", "-")
	if err != nil {
		return out, err
	}
	digest(&out)
	return out, nil
}

// x264's progress and its figures of speed differ from run to run.
var x264Speed = regexp.MustCompile(`(?m)[0-9.]+ fps|\[[0-9.]+%\].*?\r|eta [0-9:]+|^.*\r`)

func x264(ctx context.Context, j *Job) (Outcome, error) {
	film, err := j.film(480, 272, j.Size.pick(60, 700, 1500))
	if err != nil {
		return Outcome{}, err
	}
	out, err := j.batch(ctx, "", "x264", "--threads", "4", "--no-progress", "--preset", "medium", "-o", "-", "--demuxer", "y4m", "--muxer", "raw", film)
	if err != nil {
		return out, err
	}
	digest(&out)
	out.Stderr = x264Speed.ReplaceAll(bytes.ReplaceAll(out.Stderr, []byte(film), []byte("FILM")), nil)
	return out, nil
}
