package image

import (
	"strings"

	"github.com/ianlancetaylor/demangle"
)

// maxMangled bounds the names that are demangled: some grow exponentially.
const maxMangled = 4096

// Demangle makes a C++ or Rust symbol readable, with parameters; other names come back as they are. A "@plt" or "@@VERSION" stays.
func Demangle(name string) string {
	if len(name) < 3 || len(name) > maxMangled {
		return name
	}
	body, suffix := name, ""
	if i := strings.IndexByte(name, '@'); i > 0 {
		body, suffix = name[:i], name[i:]
	}
	if !strings.HasPrefix(body, "_Z") && !strings.HasPrefix(body, "_R") && !strings.HasPrefix(body, "__Z") {
		return name
	}
	s, err := demangle.ToString(body, demangle.MaxLength(13))
	if err != nil || s == "" {
		return name
	}
	return s + suffix
}
