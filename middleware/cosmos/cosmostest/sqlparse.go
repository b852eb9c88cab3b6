package cosmostest

import (
	"encoding/json"
	"strconv"
	"strings"
)

// parseQuery reads the body of a query: {"query": "...", "parameters": [{"name": "@x", "value": ...}]}.
func parseQuery(body []byte) (*query, error) {
	var spec struct {
		Query      string `json:"query"`
		Parameters []struct {
			Name  string `json:"name"`
			Value any    `json:"value"`
		} `json:"parameters"`
	}
	d := json.NewDecoder(strings.NewReader(string(body)))
	d.UseNumber()
	if err := d.Decode(&spec); err != nil {
		return nil, badRequest("The query is no JSON: %v", err)
	}
	p := &parser{parameters: map[string]any{}}
	for _, param := range spec.Parameters {
		p.parameters[param.Name] = param.Value
	}
	if err := p.tokenize(spec.Query); err != nil {
		return nil, err
	}
	q := p.selectClause()
	p.fromClause(q)
	return q, p.finish()
}

// parseCondition reads the condition of a patch: FROM c WHERE ...
func parseCondition(text string) (*query, error) {
	p := &parser{}
	if err := p.tokenize(text); err != nil {
		return nil, err
	}
	q := &query{top: -1}
	p.fromClause(q)
	return q, p.finish()
}

// maxNesting bounds NOT and parentheses, and with them the stack.
const maxNesting = 100

// parser is a recursive descent over tokens. The first error sticks; tokens after it read as "".
type parser struct {
	tokens     []string
	at         int
	depth      int
	alias      string
	parameters map[string]any
	err        error
}

func (p *parser) fail(format string, args ...any) {
	if p.err == nil {
		p.err = badRequest("Syntax error, the query is outside the subset: "+format, args...)
	}
}

func (p *parser) finish() error {
	if p.err == nil && p.at < len(p.tokens) {
		p.fail("unexpected %q", p.tokens[p.at])
	}
	return p.err
}

// tokenize splits the text. String literals keep their opening quote, so that a literal is never taken for a word.
func (p *parser) tokenize(text string) error {
	for i := 0; i < len(text); {
		c := text[i]
		start := i
		switch {
		case c == ' ' || c == '\t' || c == '\n' || c == '\r':
			i++
			continue
		case c == '\'' || c == '"':
			var s strings.Builder
			for i++; ; i++ {
				if i >= len(text) {
					return badRequest("The query has a string without an end.")
				}
				if text[i] == c {
					break
				}
				if text[i] == '\\' && i+1 < len(text) {
					i++
				}
				s.WriteByte(text[i])
			}
			i++
			p.tokens = append(p.tokens, "'"+s.String())
			continue
		case isWord(c):
			for i < len(text) && (isWord(text[i]) || startsNumber(text[start]) && text[i] == '.') {
				i++
			}
		case i+1 < len(text) && (text[i:i+2] == "!=" || text[i:i+2] == "<>" || text[i:i+2] == "<=" || text[i:i+2] == ">="):
			i += 2
		default:
			i++
		}
		p.tokens = append(p.tokens, text[start:i])
	}
	return nil
}

func startsNumber(c byte) bool { return c >= '0' && c <= '9' }

func isWord(c byte) bool {
	return c == '_' || c == '@' || c == '$' || c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'z' || c >= 0x80
}

func (p *parser) peek() string {
	if p.err != nil || p.at >= len(p.tokens) {
		return ""
	}
	return p.tokens[p.at]
}

func (p *parser) next() string {
	t := p.peek()
	p.at++
	return t
}

// accept consumes the next token when it is the word.
func (p *parser) accept(word string) bool {
	if strings.EqualFold(p.peek(), word) {
		p.at++
		return true
	}
	return false
}

func (p *parser) expect(word string) {
	if !p.accept(word) {
		p.fail("%s expected at %q", word, p.peek())
	}
}

func (p *parser) selectClause() *query {
	q := &query{top: -1}
	p.expect("SELECT")
	if p.accept("TOP") {
		n, err := strconv.Atoi(p.next())
		if err != nil || n < 0 {
			p.fail("TOP needs a number")
		}
		q.top = n
	}
	switch {
	case p.accept("*"):
	case p.accept("VALUE"):
		if p.accept("COUNT") {
			p.expect("(")
			if !p.accept("1") {
				p.anyPath()
			}
			p.expect(")")
			q.count = true
			break
		}
		value := p.anyPath()
		q.value = &value
	default:
		for {
			where := p.anyPath()
			name := ""
			if len(where) > 0 {
				name = where[len(where)-1]
			}
			if p.accept("AS") {
				name = p.next()
			}
			q.columns = append(q.columns, column{name, where})
			if !p.accept(",") {
				break
			}
		}
	}
	return q
}

func (p *parser) fromClause(q *query) {
	p.expect("FROM")
	name := p.next()
	if p.accept("AS") || p.peek() != "" && !strings.EqualFold(p.peek(), "WHERE") && isWord(p.peek()[0]) {
		name = p.next()
	}
	if p.alias != "" && !strings.EqualFold(p.alias, name) {
		p.fail("%q is not the alias %q", p.alias, name)
	}
	p.alias = name
	if p.accept("WHERE") {
		q.where = p.or()
	}
}

func (p *parser) or() predicate {
	left := p.and()
	for p.accept("OR") {
		a, b := left, p.and()
		left = func(d map[string]any) bool { return a(d) || b(d) }
	}
	return left
}

func (p *parser) and() predicate {
	left := p.not()
	for p.accept("AND") {
		a, b := left, p.not()
		left = func(d map[string]any) bool { return a(d) && b(d) }
	}
	return left
}

func (p *parser) not() predicate {
	if p.depth++; p.depth > maxNesting {
		p.fail("nested deeper than %d", maxNesting)
	}
	defer func() { p.depth-- }()
	if p.accept("NOT") {
		inner := p.not()
		return func(d map[string]any) bool { return !inner(d) }
	}
	if p.accept("(") {
		inner := p.or()
		p.expect(")")
		return inner
	}
	if p.accept("IS_DEFINED") {
		p.expect("(")
		where := p.anyPath()
		p.expect(")")
		return func(d map[string]any) bool { _, ok := where.of(d); return ok }
	}
	return p.comparison()
}

func (p *parser) comparison() predicate {
	left := p.operand()
	switch op := strings.ToUpper(p.peek()); op {
	case "=", "!=", "<>", "<", "<=", ">", ">=":
		p.at++
		right := p.operand()
		return func(d map[string]any) bool {
			a, okA := left(d)
			b, okB := right(d)
			return okA && okB && compare(op, a, b)
		}
	case "IN":
		p.at++
		p.expect("(")
		var list []expression
		for list = append(list, p.operand()); p.accept(","); {
			list = append(list, p.operand())
		}
		p.expect(")")
		return func(d map[string]any) bool {
			a, ok := left(d)
			for _, e := range list {
				if b, okB := e(d); ok && okB && compare("=", a, b) {
					return true
				}
			}
			return false
		}
	}
	return func(d map[string]any) bool { v, ok := left(d); b, isBool := v.(bool); return ok && isBool && b }
}

// operand is a literal, a parameter or a path.
func (p *parser) operand() expression {
	t := p.peek()
	constant := func(v any) expression {
		p.at++
		return func(map[string]any) (any, bool) { return v, true }
	}
	switch lower := strings.ToLower(t); {
	case t == "":
		p.fail("value expected")
		return func(map[string]any) (any, bool) { return nil, false }
	case t[0] == '\'':
		return constant(t[1:])
	case t[0] == '@':
		v, ok := p.parameters[t]
		if !ok {
			p.fail("no parameter %s", t)
		}
		return constant(v)
	case t == "-" || startsNumber(t[0]):
		if t == "-" {
			p.at++
			t += p.peek()
		}
		// It is compared, and told, as JSON: 00, 0x1p4 and -inf are numbers to Go only.
		if _, err := strconv.ParseFloat(t, 64); err != nil || !json.Valid([]byte(t)) {
			p.fail("%q is no number", t)
		}
		return constant(json.Number(t))
	case lower == "true", lower == "false":
		return constant(lower == "true")
	case lower == "null":
		return constant(nil)
	}
	where := p.anyPath()
	return where.of
}

// anyPath reads alias.a.b or alias["a"][0].
func (p *parser) anyPath() path {
	name := p.next()
	if name == "" || !isWord(name[0]) || startsNumber(name[0]) {
		p.fail("path expected at %q", name)
		return nil
	}
	if p.alias == "" {
		p.alias = name
	} else if !strings.EqualFold(p.alias, name) {
		p.fail("%q is not the alias %q", name, p.alias)
	}
	where := path{}
	for {
		switch {
		case p.accept("."):
			where = append(where, p.next())
		case p.accept("["):
			where = append(where, strings.TrimPrefix(p.next(), "'"))
			p.expect("]")
		default:
			return where
		}
	}
}
