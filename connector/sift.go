package connector

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
)

// sift makes the messages in a body pass the session's inlet.
func (rt *originRT) sift(req *http.Request, res *http.Response, own *request) {
	if res.StatusCode >= 300 {
		return
	}
	s := &siftBody{body: res.Body, rt: rt, own: own, from: req.Header}
	s.in = bufio.NewReaderSize(res.Body, 32<<10)
	s.more = s.whole
	if isStream(res) {
		s.more = s.event
	}
	res.Body = s
}

// siftBody is a body whose messages pass the inlet.
type siftBody struct {
	body io.ReadCloser
	in   *bufio.Reader
	rt   *originRT
	own  *request
	from http.Header                  // of the request, for answers of ours
	more func([]byte) ([]byte, error) // appends what comes next

	out []byte
	err error
}

// Read implements [io.Reader].
func (s *siftBody) Read(p []byte) (int, error) {
	for len(s.out) == 0 {
		if s.err != nil {
			return 0, s.err
		}
		s.out, s.err = s.more(s.out[:0])
	}
	n := copy(p, s.out)
	s.out = s.out[n:]
	return n, nil
}

// Close implements [io.Closer].
func (s *siftBody) Close() error { return s.body.Close() }

// whole is a body of one message, or the first answer of a batch. A body that
// holds none is left to the SDK to refuse.
func (s *siftBody) whole(to []byte) ([]byte, error) {
	data, err := io.ReadAll(s.in)
	if err != nil {
		return to, err
	}
	for _, m := range split(data) {
		out, err := s.take(m)
		if out != nil || err != nil {
			return append(to, out...), cmp.Or(err, io.EOF)
		}
	}
	return append(to, data...), io.EOF
}

// event is the next event of a stream: its own lines without comments, and its
// data as far as the inlet lets it through.
func (s *siftBody) event(to []byte) ([]byte, error) {
	var data []byte
	hasData := false
	for {
		line, err := s.line(len(data))
		if err != nil && (len(line) == 0 || !errors.Is(err, io.EOF)) {
			return to, err
		}
		line = bytes.TrimRight(line, "\r\n")
		value, isData := bytes.CutPrefix(line, []byte("data:"))
		switch {
		case isData:
			data, hasData = append(append(data, bytes.TrimPrefix(value, []byte(" "))...), '\n'), true
		case len(line) > 0 && line[0] != ':':
			to = append(append(to, line...), '\n')
		}
		if len(line) > 0 && err == nil {
			continue
		}
		if hasData {
			out, failed := s.take(data)
			if failed != nil {
				return nil, failed
			}
			if out != nil {
				to = append(append(append(to, "data: "...), bytes.ReplaceAll(out, []byte("\n"), []byte(" "))...), '\n')
			}
		}
		return append(to, '\n'), err
	}
}

// line is the next line of the stream; an event holds so many bytes before it.
func (s *siftBody) line(held int) ([]byte, error) {
	var line []byte
	for {
		part, err := s.in.ReadSlice('\n')
		line = append(line, part...)
		if len(line)+held > s.rt.limit {
			return nil, s.rt.tooLong("an event of an HTTP answer")
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, err
		}
	}
}

// take passes one message through the inlet; a server that misuses it loses its
// session.
func (s *siftBody) take(data []byte) ([]byte, error) {
	in := &s.rt.session.inlet
	out, err := in.take(data, s.own, func(answer []byte) error { return s.rt.reply(s.from, answer) })
	if err != nil && s.rt.ctx.Err() == nil {
		s.rt.session.spoil(err)
		s.rt.sever()
	}
	return out, err
}

// reply posts an answer of ours, as part of the session that from belongs to.
func (rt *originRT) reply(from http.Header, data []byte) error {
	ctx, cancel := context.WithTimeout(rt.ctx, rt.session.conn.pool.limits.Reply)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, rt.origin.String(), bytes.NewReader(data))
	if err != nil {
		return err
	}
	for _, k := range []string{sessionHeader, protocolHeader} {
		if v := from.Get(k); v != "" {
			req.Header.Set(k, v)
		}
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	res, err := rt.base.RoundTrip(rt.withCredentials(req))
	if err != nil {
		return err
	}
	_, _ = io.CopyN(io.Discard, res.Body, 4<<10)
	return res.Body.Close()
}
