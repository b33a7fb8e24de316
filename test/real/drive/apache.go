package drive

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const apacheConfig = `ServerRoot %[1]s
ServerName 127.0.0.1
Listen 127.0.0.1:%[2]d
PidFile %[1]s/pid
Mutex file:%[1]s
DefaultRuntimeDir %[1]s
LoadModule mpm_event_module /usr/lib/apache2/modules/mod_mpm_event.so
LoadModule authz_core_module /usr/lib/apache2/modules/mod_authz_core.so
LoadModule mime_module /usr/lib/apache2/modules/mod_mime.so
LoadModule dir_module /usr/lib/apache2/modules/mod_dir.so
LoadModule deflate_module /usr/lib/apache2/modules/mod_deflate.so
LoadModule filter_module /usr/lib/apache2/modules/mod_filter.so
StartServers 2
ServerLimit 2
ThreadsPerChild 16
ThreadLimit 16
MaxRequestWorkers 32
MinSpareThreads 1
MaxSpareThreads 32
MaxKeepAliveRequests 0
KeepAliveTimeout 60
User %[3]s
Group %[4]s
DocumentRoot %[1]s/htdocs
ErrorLog %[1]s/error.log
LogFormat "%%r %%>s %%B" short
CustomLog %[1]s/access.log short
TypesConfig /dev/null
AddType text/html .html
AddOutputFilterByType DEFLATE text/html
<Directory %[1]s/htdocs>
Require all granted
</Directory>
`

var abFacts = regexp.MustCompile(`(?m)^(Document Length|Complete requests|Failed requests|Non-2xx responses|HTML transferred|Keep-Alive requests):.*$`)

// apache2 serves ab with the event MPM: kept connections, new connections and a missing page; then its log is counted.
func apache2(ctx context.Context, j *Job) (Outcome, error) {
	port, err := freePort()
	if err != nil {
		return Outcome{}, err
	}
	user, group := "www-data", "www-data"
	if os.Getuid() != 0 {
		user, group = "#"+strconv.Itoa(os.Getuid()), "#"+strconv.Itoa(os.Getgid())
	}
	docs, err := j.sub("htdocs")
	if err != nil {
		return Outcome{}, err
	}
	// The children run as another user and must reach the documents.
	if err := os.Chmod(j.Dir, 0o755); err != nil {
		return Outcome{}, err
	}
	page := strings.Repeat("<p>Ripstop cloth is woven so that a tear cannot spread.</p>\n", 200)
	if err := os.WriteFile(filepath.Join(docs, "index.html"), []byte(page), 0o644); err != nil {
		return Outcome{}, err
	}
	config, err := j.keep("apache.conf", fmt.Appendf(nil, apacheConfig, j.Dir, port, user, group))
	if err != nil {
		return Outcome{}, err
	}
	addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	s, err := j.serve(ctx, reachable(addr), "apache2", "-f", config, "-DFOREGROUND")
	if err != nil {
		return Outcome{}, err
	}
	n := j.Size.pick(2_000, 80_000, 200_000)
	var facts []string
	start := time.Now()
	for _, load := range []struct {
		n    int
		page string
		args []string
	}{{n, "/", []string{"-k"}}, {n / 4, "/", []string{"-H", "Accept-Encoding: gzip"}}, {n / 10, "/missing", nil}} {
		args := append([]string{"-q", "-c", "8", "-n", strconv.Itoa(load.n)}, load.args...)
		text, err := j.tool(s.ctx, "ab", append(args, "http://"+addr+load.page)...)
		if err != nil {
			s.kill()
			return Outcome{}, fmt.Errorf("%w\n%s", err, tail(s.err.bytes()))
		}
		for _, line := range abFacts.FindAll(text, -1) {
			facts = append(facts, string(bytes.Join(bytes.Fields(line), []byte(" "))))
		}
	}
	took := time.Since(start)
	out, err := s.stop(syscall.SIGWINCH) // ends gracefully: children finish what they serve
	if err != nil {
		return out, err
	}
	log, err := os.ReadFile(filepath.Join(j.Dir, "access.log"))
	if err != nil {
		return out, err
	}
	count := map[string]int{}
	for _, line := range strings.Split(strings.TrimSpace(string(log)), "\n") {
		count[line]++
	}
	for _, line := range []string{"GET / HTTP/1.0 200", "GET /missing HTTP/1.0 404"} {
		sum := 0
		for have, n := range count {
			if strings.HasPrefix(have, line) {
				sum += n
			}
		}
		facts = append(facts, fmt.Sprintf("log: %d × %s", sum, line))
	}
	errlog, err := os.ReadFile(filepath.Join(j.Dir, "error.log"))
	if err != nil {
		return out, err
	}
	for _, bad := range []string{"exit signal", "child pid", "emerg", "alert", ":crit]"} {
		facts = append(facts, fmt.Sprintf("error log has %q: %v", bad, bytes.Contains(errlog, []byte(bad))))
	}
	out.Time, out.Facts = took, facts
	return out, nil
}
