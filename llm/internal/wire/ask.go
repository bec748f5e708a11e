package wire

import (
	"context"
	"net/http"

	"runnerd/llm"
	"runnerd/task"
)

// Answer is an answer as a vendor's package puts it together. What is beside it, such
// as counts of tokens, never spoils it.
type Answer interface {
	// Take adds one event. over tells that nothing can follow.
	Take(ev Event) (over bool, err error)
	// Whole tells whether the vendor has said how the answer ends.
	Whole() bool
	// Received is what has come so far: what was counted, and bytes of text and calls.
	Received() (task.Usage, int)
	// Response checks that the answer is whole and turns it into neutral form.
	Response(vendor string) (*llm.Response, error)
}

// Request is the body of a call. Params are the parameters of it that a server may
// not know and that can be done without, or under another name.
type Request interface{ Params() []Param }

// Question is how a vendor's package asks for one answer. Body and Answer are called
// anew for each request.
type Question struct {
	Path   string
	Header http.Header
	Vendor string
	Body   func() Request
	Answer func() Answer
}

// Ask asks for one answer, again without a parameter that the endpoint refused.
func (c *Client) Ask(ctx context.Context, tools bool, q Question) (*llm.Response, error) {
	for {
		a, sent := q.Answer(), q.Body()
		err := c.Do(ctx, Post{
			Path: q.Path, Header: q.Header, Body: JSON(sent), Tools: tools,
			Read: func(b *Body) error { return Read(b, a, tools) }, Received: a.Received,
		})
		if err == nil {
			r, err := a.Response(q.Vendor)
			return r, Cost(err, a.Received)
		}
		if !c.Adapt(err, sent.Params()...) {
			return nil, err
		}
	}
}

// Read takes events until the answer is over, and what follows a whole one for a
// moment.
func Read(body *Body, a Answer, tools bool) error {
	for ev, err := range body.Events() {
		switch {
		case err != nil && a.Whole() && llm.ErrorKind(err) == "":
			return nil // only what follows the answer is lost
		case err != nil:
			return err
		case ev.Type == "error":
			return Failed(ParseComplaint(ev.Data), tools, a.Received)
		}
		if over, err := a.Take(ev); err != nil || over {
			return err
		}
		if a.Whole() {
			body.Settle()
		}
	}
	return nil
}

// Bearer is the header of vendors that take the key as a bearer's.
func (c *Client) Bearer(accept string) (http.Header, error) {
	key, err := c.Key()
	header := http.Header{"Accept": {accept}}
	if key != "" {
		header.Set("Authorization", "Bearer "+key)
	}
	return header, err
}
