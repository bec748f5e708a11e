package builtin

import (
	"net/url"
	"strings"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
)

// maxToken bounds one tag or piece of text of a page, in bytes.
const maxToken = 1 << 20

// readable turns HTML into text: headings, lists, tables and links keep a plain
// mark, scripts and styles go. It reads tokens and builds no tree, so a hostile
// page costs no more than its length.
func readable(page string, base *url.URL) (title, text string) {
	r := &reader{base: base}
	z := html.NewTokenizer(strings.NewReader(page))
	z.SetMaxBuf(maxToken)
	for {
		switch z.Next() {
		case html.ErrorToken:
			return strings.Join(strings.Fields(r.title.String()), " "), r.finish()
		case html.TextToken:
			r.addText(string(z.Text()))
		case html.StartTagToken, html.SelfClosingTagToken:
			t := z.Token()
			r.start(t)
			if t.Type == html.SelfClosingTagToken && hidden(t.DataAtom) {
				r.end(t.DataAtom)
			}
		case html.EndTagToken:
			r.end(z.Token().DataAtom)
		}
	}
}

type reader struct {
	base  *url.URL
	out   strings.Builder
	title strings.Builder

	skip    atom.Atom // the hidden element that we are in
	depth   int       // how often it is open
	inTitle bool
	pre     int
	breaks  int  // newlines due before the next text
	space   bool // a space is due
	links   []string
}

// hidden elements have nothing for a reader.
func hidden(a atom.Atom) bool {
	switch a {
	case atom.Script, atom.Style, atom.Noscript, atom.Template, atom.Svg, atom.Iframe, atom.Object, atom.Canvas, atom.Select:
		return true
	}
	return false
}

// breaksAround is how many newlines an element has before and after it.
func breaksAround(a atom.Atom) int {
	switch a {
	case atom.P, atom.H1, atom.H2, atom.H3, atom.H4, atom.H5, atom.H6, atom.Ul, atom.Ol, atom.Table, atom.Pre,
		atom.Blockquote, atom.Section, atom.Article, atom.Header, atom.Footer, atom.Nav, atom.Main, atom.Aside, atom.Form, atom.Hr, atom.Figure, atom.Dl:
		return 2
	case atom.Div, atom.Li, atom.Tr, atom.Br, atom.Dt, atom.Dd, atom.Figcaption, atom.Option, atom.Details, atom.Summary, atom.Body:
		return 1
	}
	return 0
}

func (r *reader) start(t html.Token) {
	a := t.DataAtom
	if r.skip != 0 {
		if a == r.skip {
			r.depth++
		}
		return
	}
	if hidden(a) {
		r.skip, r.depth = a, 1
		return
	}
	r.newlines(breaksAround(a))
	switch a {
	case atom.Title:
		r.inTitle = r.title.Len() == 0
	case atom.Pre:
		r.pre++
	case atom.H1, atom.H2, atom.H3, atom.H4, atom.H5, atom.H6:
		r.emit(strings.Repeat("#", int(a.String()[1]-'0')) + " ")
	case atom.Li:
		r.emit("- ")
	case atom.Td, atom.Th:
		r.cell()
	case atom.A:
		r.openLink(attribute(t, "href"))
	case atom.Img:
		if alt := strings.TrimSpace(attribute(t, "alt")); alt != "" {
			r.addText("[image: " + alt + "]")
		}
	}
}

func (r *reader) end(a atom.Atom) {
	if r.skip != 0 {
		if a == r.skip {
			r.depth--
		}
		if r.depth == 0 {
			r.skip = 0
		}
		return
	}
	switch a {
	case atom.Title:
		r.inTitle = false
	case atom.Pre:
		r.pre = max(r.pre-1, 0)
	case atom.A:
		r.closeLink()
	}
	r.newlines(breaksAround(a))
}

func (r *reader) addText(text string) {
	switch {
	case r.skip != 0:
	case r.inTitle:
		r.title.WriteString(text)
	case r.pre > 0:
		r.emit(text)
	default:
		words := strings.Fields(text)
		if len(words) == 0 {
			r.space = r.space || text != ""
			return
		}
		if strings.TrimLeft(text, " \t\r\n\f") != text {
			r.space = true
		}
		r.emit(strings.Join(words, " "))
		r.space = strings.TrimRight(text, " \t\r\n\f") != text
	}
}

// emit writes text after the breaks or the space that are due.
func (r *reader) emit(text string) {
	if r.out.Len() > 0 {
		switch {
		case r.breaks > 0:
			r.out.WriteString(strings.Repeat("\n", r.breaks))
		case r.space:
			r.out.WriteByte(' ')
		}
	}
	r.breaks, r.space = 0, false
	r.out.WriteString(text)
}

func (r *reader) newlines(n int) {
	r.breaks = max(r.breaks, n)
	if n > 0 {
		r.space = false
	}
}

// cell parts the cells of a table row.
func (r *reader) cell() {
	if r.breaks == 0 && r.out.Len() > 0 {
		r.emit(" | ")
	}
}

func (r *reader) openLink(href string) {
	u, err := r.base.Parse(strings.TrimSpace(href))
	if href == "" || strings.HasPrefix(href, "#") || err != nil || (u.Scheme != "http" && u.Scheme != "https") {
		r.links = append(r.links, "")
		return
	}
	r.links = append(r.links, u.String())
	r.emit("[")
}

func (r *reader) closeLink() {
	if len(r.links) == 0 {
		return
	}
	last := len(r.links) - 1
	if href := r.links[last]; href != "" {
		r.out.WriteString("](" + href + ")")
	}
	r.links = r.links[:last]
}

func (r *reader) finish() string {
	for len(r.links) > 0 {
		r.closeLink()
	}
	lines := strings.Split(r.out.String(), "\n")
	for i, l := range lines {
		lines[i] = strings.TrimRight(l, " \t\r")
	}
	return strings.TrimSpace(strings.Join(lines, "\n"))
}

func attribute(t html.Token, name string) string {
	for _, a := range t.Attr {
		if a.Key == name {
			return a.Val
		}
	}
	return ""
}
