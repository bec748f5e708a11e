package agentloop

import (
	"fmt"
	"strings"
)

// resultLimit is how many bytes of one tool result the model reads: an eighth of
// its context, between 2 KiB and 64 KiB.
func (a *attempt) resultLimit() int {
	return min(max(a.contextTokens()*4/8, 2<<10), 64<<10)
}

// cut shortens text to about limit bytes: head and tail stay, a marker says how
// much is missing between them.
func cut(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	head := strings.ToValidUTF8(text[:limit*2/3], "")
	tail := strings.ToValidUTF8(text[len(text)-limit/3:], "")
	return fmt.Sprintf("%s\n[… %d bytes left out by runnerd …]\n%s", head, len(text)-len(head)-len(tail), tail)
}
