package guard

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const script = `import json, re, subprocess, threading
t = [threading.Thread(target=lambda: [str(i) * 40 for i in range(3000)]) for _ in range(4)]
[x.start() for x in t]; [x.join() for x in t]
print(len(json.dumps({i: [str(i)] * 3 for i in range(3000)})), re.sub("a+", "b", "caat" * 3), subprocess.check_output(["echo", "hi"]))`

const table = `create table t(a, b); with recursive c(x) as (select 1 union all select x + 1 from c where x < 5000) insert into t select x, hex(x * 7919) from c;
create index i on t(b); select count(*), max(b), sum(a) from t; select b from t order by b limit 3; update t set b = b || b where a % 7 = 0; delete from t where a % 3 = 0; select count(*), length(max(b)) from t;`

// Programs of others have their native output, messages and status, and nothing is found.
func TestRealPrograms(t *testing.T) {
	size, rounds := 200_000, 1
	if soak() {
		size, rounds = 20_000_000, 20
	}
	input := filepath.Join(bin, "input")
	text := []byte(strings.Repeat("what is packed here is no more than some words, and some that differ: ", 1+size/70)[:size])
	for i := 0; i < len(text); i += 13 {
		text[i] = byte(i * i >> 7)
	}
	if err := os.WriteFile(input, text, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, argv := range [][]string{
		{"gzip", "-c", input},
		{"xz", "-T2", "-1", "--block-size=100000", "-c", input},
		{"pigz", "-p4", "-n", "-c", input},
		{"sqlite3", ":memory:", table},
		{"python3", "-c", script},
		{"bash", "-c", `x=$(for i in $(seq 20); do echo $i; done | sort -rn | head -3); echo $x; a=(1 2 3); echo ${#a[@]}; (exit 3); echo $?; exit 5`},
	} {
		t.Run(argv[0], func(t *testing.T) {
			t.Parallel()
			native := run(t, exec.Command(argv[0], argv[1:]...))
			for range rounds {
				report := filepath.Join(t.TempDir(), "report")
				got := run(t, exec.Command(ripstop, append([]string{"guard", "--format", "json=" + report, "--"}, argv...)...))
				if got.how != native.how || !bytes.Equal(got.out, native.out) || !bytes.Equal(got.errs, native.errs) {
					t.Fatalf("ended with %s, natively %s; %d bytes of output, natively %d\n%s", got.how, native.how, len(got.out), len(native.out), got.errs)
				}
				if list := findings(t, report); len(list) > 0 {
					t.Fatalf("found: %+v", list)
				}
			}
		})
	}
}
