package middleware

// discreetError is an error of a client below whose text quotes a URL that may hold
// a credential: errors.Is and errors.As find the error itself, and whoever prints,
// logs or marshals this one shows none.
type discreetError struct {
	text string
	err  error
}

// discreet is err as it may be handed to observers and kept in reports. It costs
// nothing where no URL is quoted.
func discreet(err error) error {
	if _, ok := err.(*discreetError); ok { //nolint:errorlint // one that is wrapped may have gained a URL
		return err
	}
	tells := false
	eachURL(err, func(whole string) { tells = tells || bareURL(whole) != whole })
	if !tells {
		return err
	}
	return &discreetError{Redact(err).Error(), err}
}

func (e *discreetError) Error() string { return e.text }

func (e *discreetError) MarshalText() ([]byte, error) { return []byte(e.text), nil }

func (e *discreetError) Unwrap() error { return e.err }
