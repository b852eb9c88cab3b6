package rest

import "strings"

// isQuery reports whether d certainly only reads. It looks no further than the
// keywords of the top level; a document it cannot make out may write.
func isQuery(d Document) bool {
	operations, ok := operationsOf(strings.TrimPrefix(d.Query, "\ufeff"))
	if !ok || len(operations) == 0 {
		return false
	}
	if d.OperationName != "" {
		return operations[d.OperationName] == "query"
	}
	for _, keyword := range operations {
		if keyword != "query" {
			return false
		}
	}
	return true
}

// operationsOf returns the keyword of each operation in a document by its name,
// "" for one without; ok is false where the text is none.
func operationsOf(text string) (operations map[string]string, ok bool) {
	operations = map[string]string{}
	var keyword, name string // of the definition at hand
	named := false           // its name, if it has one, is behind us
	depth := 0
	for len(text) > 0 {
		switch c := text[0]; {
		case c == '#':
			_, text, _ = strings.Cut(text, "\n")
			continue
		case c == '"':
			if text, ok = afterString(text); !ok {
				return nil, false
			}
			continue
		case isNameByte(c):
			n := 1
			for n < len(text) && (isNameByte(text[n]) || text[n] >= '0' && text[n] <= '9') {
				n++
			}
			word := text[:n]
			text = text[n:]
			switch {
			case depth > 0:
			case keyword == "" && !isKeyword(word):
				return nil, false
			case keyword == "":
				keyword = word
			case !named:
				name, named = word, true
			}
			continue
		case strings.IndexByte("{([", c) >= 0:
			if c == '{' && keyword == "" {
				keyword = "query" // the short form
			}
			named = true
			depth++
		case strings.IndexByte("})]", c) >= 0:
			if depth--; depth < 0 {
				return nil, false
			}
			if c != '}' || depth > 0 {
				break
			}
			if keyword != "fragment" {
				if _, twice := operations[name]; twice {
					return nil, false
				}
				operations[name] = keyword
			}
			keyword, name, named = "", "", false
		}
		text = text[1:]
	}
	return operations, depth == 0 && keyword == ""
}

func isKeyword(word string) bool {
	return word == "query" || word == "mutation" || word == "subscription" || word == "fragment"
}

func isNameByte(c byte) bool {
	return c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

// afterString returns what follows the string, or block string, that text begins
// with.
func afterString(text string) (string, bool) {
	const block = `"""`
	if strings.HasPrefix(text, block) {
		for i := len(block); i+len(block) <= len(text); i++ {
			switch {
			case strings.HasPrefix(text[i:], `\`+block):
				i += len(block)
			case strings.HasPrefix(text[i:], block):
				return text[i+len(block):], true
			}
		}
		return "", false
	}
	for i := 1; i < len(text) && text[i] != '\n'; i++ {
		switch text[i] {
		case '\\':
			i++
		case '"':
			return text[i+1:], true
		}
	}
	return "", false
}
