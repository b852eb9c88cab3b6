package layertest

// promises are all that is checked, in the order of the README.
var promises = []Promise{
	{Name: "answer xor error", check: (*trial).answerXorError,
		Text: "RoundTrip returns a response with a body, or an error, never both and never neither."},
}

func (t *trial) answerXorError() {
	for p := range t.paths() {
		if p.call.hung || p.call.panicked != nil {
			continue
		}
		switch resp, err := p.call.resp, p.call.err; {
		case resp != nil && err != nil:
			t.breakf("%s: a response (%s) and an error (%v)", p.name, resp.Status, err)
		case resp == nil && err == nil:
			t.breakf("%s: neither a response nor an error", p.name)
		case resp != nil && resp.Body == nil:
			t.breakf("%s: a response (%s) without a body", p.name, resp.Status)
		}
	}
}
