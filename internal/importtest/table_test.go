package importtest

// row is one package: its one job and what it may import of ours. A package in a
// folder of another needs a row of its own, but for test support: the rule for
// that is in check.
type row struct {
	job string
	may []string
}

// everything is the permission of the daemon, which wires the others, and of the
// program around it.
const everything = "*"

// packages is the table of DESIGN, section 3. A path is relative to the module.
var packages = map[string]row{
	"cmd/runnerd":       {"flags, verbs, printing, exit codes", []string{everything}},
	"daemon":            {"opens and wires the parts, and is their life", []string{everything}},
	"task":              {"the vocabulary", nil},
	"text":              {"one line, cut, escape for terminals", nil},
	"config":            {"files to validated structs with positions in every error", []string{"task", "policy"}},
	"scheduler":         {"decides when", []string{"task"}},
	"dispatch":          {"hands queued runs to a bounded pool of workers", []string{"task"}},
	"agentloop":         {"takes one run from claim to final status", []string{"task", "policy", "taskpolicy", "llm", "grounding", "redact"}},
	"policy":            {"decides one call", []string{"task"}},
	"taskpolicy":        {"the policy database", []string{"task", "policy", "sqldb"}},
	"grounding":         {"checks a final text against receipts", []string{"task"}},
	"redact":            {"replaces known secret values in text", nil},
	"connector":         {"opens MCP sessions, lists and calls tools, keeps children contained", []string{"task", "text", "procgroup", "confine"}},
	"builtin":           {"the MCP servers that the binary itself serves", []string{"task", "procgroup"}},
	"llm":               {"the Model interface", []string{"task"}},
	"llm/openai":        {"the OpenAI wire", []string{"task", "llm", "llm/internal/wire"}},
	"llm/anthropic":     {"the Anthropic wire", []string{"task", "llm", "llm/internal/wire"}},
	"llm/ollama":        {"the Ollama wire", []string{"task", "llm", "llm/internal/wire"}},
	"llm/internal/wire": {"HTTP, server-sent events and errors that the vendors share", []string{"task", "llm"}},
	"llm/scripted":      {"a model that follows a script", []string{"task", "llm"}},
	"llm/command":       {"a model behind a command", []string{"task", "llm", "procgroup"}},
	"llm/provider":      {"opens the vendor that a model names", []string{"task", "llm", "llm/openai", "llm/anthropic", "llm/ollama", "llm/scripted", "llm/command", "procgroup"}},
	"sqldb":             {"what both databases share: opening, writing, migrating, copying, who holds them, how they know one another", nil},
	"db":                {"the main database", []string{"task", "sqldb"}},
	"control":           {"the HTTP API, its client, the event stream", []string{"task", "text", "policy", "db", "taskpolicy"}},
	"deliver":           {"takes a finished run's result to its destinations", []string{"task", "text", "procgroup", "confine"}},
	"alert":             {"tells people of troubles, once each", []string{"task", "text"}},
	"confine":           {"writes files where others can write too", nil},
	"procgroup":         {"starts programs and leaves nothing of them behind", []string{"confine"}},
	"systemd":           {"what the service manager is told and hands over", nil},

	"internal/attack":      {"attack scenarios against the whole loop; tests alone", nil},
	"internal/bench":       {"measures the daemon as it runs", []string{"task", "policy", "taskpolicy", "connector", "db"}},
	"internal/conformance": {"holds the official MCP suite against our client", []string{"task", "connector", "internal/npmtest"}},
	"internal/daemontest":  {"what tests of the daemon share", nil},
	"internal/importtest":  {"this test", nil},
	"internal/looptest":    {"a whole loop over real stores, for tests", []string{everything}},
	"internal/npmtest":     {"finds the npm programs that tests talk to", nil},
}

// pure packages hold no I/O, no clock and no logs, so that what they decide
// depends on their arguments alone.
var pure = map[string]bool{"policy": true, "grounding": true}

// impure is what a pure package may not import, or call.
var (
	impureImports = []string{"context", "database/sql", "log", "log/slog", "math/rand", "math/rand/v2", "net", "net/http", "os", "os/exec", "go.uber.org/zap"}
	impureCalls   = []string{"time.Now", "time.Since", "time.Until", "time.Sleep", "time.After", "time.NewTimer", "time.NewTicker", "time.AfterFunc"}
)

// doors are the calls by which a program writes files or starts programs: confine
// and procgroup make them, others only as exceptions say.
var doors = []string{
	"os.OpenFile", "os.Create", "os.CreateTemp", "os.WriteFile", "os.Rename", "os.Mkdir", "os.MkdirAll", "os.MkdirTemp", "os.Symlink", "os.Link",
	"os.Truncate", "os.Chmod", "os.Chown", "os.Lchown", "os.CopyFS", "os.OpenRoot", "os.OpenInRoot", "os.StartProcess",
	"os/exec.Command", "os/exec.CommandContext", "os/exec.Cmd", "syscall.Exec", "syscall.ForkExec", "syscall.StartProcess",
	"syscall.Open", "syscall.Openat", "syscall.Creat", "syscall.Rename", "syscall.Mkdir", "syscall.Mknod", "syscall.Symlink", "syscall.Link",
	unixPath + "Exec", unixPath + "Open", unixPath + "Openat", unixPath + "Openat2", unixPath + "Creat", unixPath + "Rename", unixPath + "Renameat", unixPath + "Renameat2",
	unixPath + "Mkdir", unixPath + "Mkdirat", unixPath + "Mknod", unixPath + "Mknodat", unixPath + "Symlink", unixPath + "Symlinkat", unixPath + "Link", unixPath + "Linkat",
}

const unixPath = "golang.org/x/sys/unix."

// doorkeepers are the packages that the others write and start through.
var doorkeepers = []string{"confine", "procgroup"}

// exceptions are the calls of doors that are right where they are: package, call,
// reason. What is in the state directory no program that the daemon starts can reach.
var exceptions = map[string]map[string]string{
	"builtin": {
		"os.OpenFile":         "memory's lock; the server itself runs contained, in its own HOME",
		"os.OpenRoot":         "the files and memory servers' own root, beneath which os.Root follows no link out",
		unixPath + "Renameat": "within that root", unixPath + "Renameat2": "within that root",
	},
	"cmd/runnerd": {
		"os.MkdirAll":  "the state and cache directories themselves",
		"os.MkdirTemp": "a directory of one's own for demo",
	},
	"daemon": {
		"os.MkdirAll":  "the state and cache directories themselves",
		"os.Chmod":     "what the daemon itself lives from, in the state directory",
		"os.MkdirTemp": "a directory of one's own for check's copy of the policy",
	},
	"config": {
		"os.OpenFile": "read only: credentials", "os.OpenRoot": "read only: the config directory",
	},
	"connector": {"os.MkdirAll": "a connector's HOME and cache, in directories that no connector reaches", "os.Chown": "the same, for the user that connectors run as", "os.Chmod": "the same"},
	"control": {
		"os.OpenFile": "read only: the token", "os.CreateTemp": "the token, in the state directory", "os.Rename": "the same",
		"os.MkdirAll": "the socket's directory", "os.Chmod": "the socket",
	},
	"sqldb": {
		"os.OpenFile": "the databases, their locks, a copy beside its place, the mark of a restore", "os.Rename": "a database that is put aside or in place, where it lies",
		"os.CreateTemp": "a backup, in the directory that confine made for it",
	},
}

// environment is read in cmd/runnerd alone (DESIGN, section 14, rule 3).
var environment = []string{"os.Getenv", "os.LookupEnv", "os.Environ", "os.ExpandEnv"}

// anyone may be written for a library that is no package's own.
const anyone = "*"

// libraries says which packages know a library; cmd/runnerd, which wires them,
// may know each. The longest prefix of an import counts. What is only used by
// tests is not listed.
var libraries = map[string][]string{
	"github.com/alecthomas/kong":               {},
	"github.com/coreos/go-systemd/v22":         {"systemd"},
	"github.com/fsnotify/fsnotify":             {"config"},
	"github.com/google/jsonschema-go":          {"config", "builtin"},
	"github.com/gowebpki/jcs":                  {"policy"},
	"github.com/jackc/pgx/v5":                  {"sqldb"},
	"github.com/landlock-lsm/go-landlock":      {"procgroup"},
	"github.com/modelcontextprotocol/go-sdk":   {"daemon", "connector", "builtin", "internal/looptest"},
	"github.com/nicholas-fedor/shoutrrr":       {"deliver"},
	"github.com/prometheus/client_golang":      {"daemon", "control"},
	"github.com/robfig/cron/v3":                {"scheduler"},
	"github.com/rs/xid":                        {"daemon"}, // run ids
	"github.com/santhosh-tekuri/jsonschema/v6": {"config", "policy", "agentloop"},
	"github.com/sethvargo/go-envconfig":        {"daemon"},
	"github.com/tmaxmax/go-sse":                {"control"},
	"github.com/uptrace/bun":                   {"sqldb", "db", "taskpolicy"},
	"go.uber.org/zap":                          {anyone},
	"go.yaml.in/yaml/v3":                       {"config", "llm/scripted", "policy", "grounding"},
	"golang.org/x":                             {anyone},
	"modernc.org/sqlite":                       {"sqldb"},
}
