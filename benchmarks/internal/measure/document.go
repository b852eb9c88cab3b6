package measure

import (
	"fmt"
	"os"
	"strings"
)

// Table renders rows as Markdown, the first one as its head.
func Table(rows [][]string) string {
	var b strings.Builder
	for i, row := range rows {
		fmt.Fprintf(&b, "| %s |\n", strings.Join(row, " | "))
		if i == 0 {
			b.WriteString(strings.Repeat("|---", len(row)) + "|\n")
		}
	}
	return b.String()
}

// Section returns what stands in the document at path between the comments
// "<!-- name -->" and "<!-- /name -->".
func Section(path, name string) (string, error) {
	_, section, _, err := cut(path, name)
	return section, err
}

// Rewrite puts text there.
func Rewrite(path, name, text string) error {
	before, _, after, err := cut(path, name)
	if err != nil {
		return err
	}
	return os.WriteFile(path, []byte(before+text+after), 0o644)
}

func cut(path, name string) (before, section, after string, err error) {
	document, err := os.ReadFile(path)
	if err != nil {
		return "", "", "", err
	}
	open, shut := "<!-- "+name+" -->\n", "<!-- /"+name+" -->"
	before, rest, opened := strings.Cut(string(document), open)
	section, after, closed := strings.Cut(rest, shut)
	if !opened || !closed {
		return "", "", "", fmt.Errorf("%s has no section %q", path, name)
	}
	return before + open, section, shut + after, nil
}
