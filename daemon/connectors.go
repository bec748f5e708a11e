package daemon

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"strconv"

	"go.uber.org/zap"

	"runnerd/config"
	"runnerd/connector"
	"runnerd/policy"
	"runnerd/procgroup"
	"runnerd/redact"
)

// connectors are the options of connectors. They are the same for the daemon and for the verbs that only look.
func (o Options) connectors(secrets *config.Resolver, hide *redact.Set, log *zap.Logger) connector.Options {
	as, fettered, err := ConnectorUser(o.ConnectorUser)
	if err != nil {
		fettered = true // settle has refused the name before
	}
	return connector.Options{
		As: as, Fettered: fettered,
		Resolve: secrets.ResolveSecret, ResolvePath: secrets.ResolvePath, Redact: hide.Text, StateDir: o.StateDir, CacheDir: o.CacheDir,
		Schema:    policy.SchemaError,
		Protected: o.Protected(),
		Environ:   o.childEnviron(), Logger: log, Version: o.Version, Dial: o.Dial,
	}
}

// ConnectorUser says who stdio connectors run as. A daemon that root runs gives them
// root without what makes it root, unless the operator names a user, or says root.
func ConnectorUser(name string) (as *procgroup.User, fettered bool, err error) {
	if os.Geteuid() != 0 {
		if name != "" {
			return nil, false, fmt.Errorf("RUNNERD_CONNECTOR_USER is %q, but only a daemon that root runs can start programs as somebody else", name)
		}
		return nil, false, nil
	}
	if name == "" || name == "root" {
		return nil, name == "", nil
	}
	u, err := user.Lookup(name)
	if err != nil {
		if u, err = user.LookupId(name); err != nil {
			return nil, false, fmt.Errorf("RUNNERD_CONNECTOR_USER is %q; expected the name or uid of a user here, or root", name)
		}
	}
	uid, uerr := strconv.ParseUint(u.Uid, 10, 32)
	gid, gerr := strconv.ParseUint(u.Gid, 10, 32)
	return &procgroup.User{UID: uint32(uid), GID: uint32(gid)}, false, errors.Join(uerr, gerr)
}

// childEnviron is what children get of the daemon's environment.
func (o Options) childEnviron(more ...string) []string {
	var environ []string
	for _, key := range append(more, "PATH", "LANG", "LC_ALL", "TZ", "NODE_EXTRA_CA_CERTS", "SSL_CERT_FILE", "SSL_CERT_DIR") {
		if v := o.Getenv(key); v != "" {
			environ = append(environ, key+"="+v)
		}
	}
	return environ
}
