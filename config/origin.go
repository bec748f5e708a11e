package config

import (
	"path"
	"regexp"
	"slices"
	"strings"

	"runnerd/policy"
)

// origin says where the connector's tools come from. The catalogue of classes is
// keyed by it, so it errs on the side of not knowing: a command line that it
// does not fully understand has no package.
func (k connectorKeys) origin() *policy.Origin {
	o := &policy.Origin{URL: k.URL, Root: k.Root}
	if k.Builtin != "" {
		o.Package = "builtin:" + k.Builtin
	} else if k.Command != "" {
		o.Package = packageOf(k.Command, values(k.Args))
	}
	return o
}

func packageOf(command string, args []string) string {
	if name := npmFromPath(command); name != "" {
		return name
	}
	switch base := strings.TrimSuffix(path.Base(command), ".exe"); base {
	case "npx", "bunx":
		return npmFromArgs(args)
	case "npm":
		if len(args) > 0 && (args[0] == "exec" || args[0] == "x") {
			return npmFromArgs(args[1:])
		}
	case "pnpm", "yarn":
		if len(args) > 0 && args[0] == "dlx" {
			return npmFromArgs(args[1:])
		}
	case "node", "bun", "deno":
		if len(args) > 0 {
			return npmFromPath(args[0])
		}
	case "uvx":
		return pypiFromArgs(args)
	case "uv":
		if len(args) > 1 && args[0] == "tool" && args[1] == "run" {
			return pypiFromArgs(args[2:])
		}
	case "pipx":
		if len(args) > 0 && args[0] == "run" {
			return pypiFromArgs(args[1:])
		}
	case "docker", "podman":
		if len(args) > 0 && args[0] == "run" {
			return imageFromArgs(args[1:])
		}
	}
	return ""
}

var npmName = regexp.MustCompile(`^(@[a-z0-9~-][a-z0-9._~-]*/)?[a-z0-9~-][a-z0-9._~-]*$`)

// npmPackage strips the version; an alias, a URL or a path is no name.
func npmPackage(spec string) string {
	name, version := spec, ""
	if i := strings.LastIndexByte(spec, '@'); i > 0 {
		name, version = spec[:i], spec[i+1:]
	}
	if !npmName.MatchString(name) || strings.ContainsAny(version, ":/") {
		return ""
	}
	return name
}

func npmFromArgs(args []string) string {
	for i := 0; i < len(args); i++ {
		a := args[i]
		switch {
		case slices.Contains([]string{"-y", "--yes", "-q", "--quiet", "--prefer-offline", "--offline", "--"}, a):
		case a == "-p" || a == "--package":
			if i+1 < len(args) {
				return npmPackage(args[i+1])
			}
			return ""
		case strings.HasPrefix(a, "--package="):
			return npmPackage(strings.TrimPrefix(a, "--package="))
		case strings.HasPrefix(a, "-"):
			return ""
		default:
			return npmPackage(a)
		}
	}
	return ""
}

// npmFromPath finds the package in …/node_modules/@scope/name/….
func npmFromPath(file string) string {
	i := strings.LastIndex(file, "/node_modules/")
	if i < 0 || strings.Contains(file, "/../") {
		return ""
	}
	parts := strings.Split(file[i+len("/node_modules/"):], "/")
	n := 1
	if strings.HasPrefix(parts[0], "@") {
		n = 2
	}
	if len(parts) <= n {
		return ""
	}
	return npmPackage(strings.Join(parts[:n], "/"))
}

var pypiName = regexp.MustCompile(`^([A-Za-z0-9][A-Za-z0-9._-]*)(\[[A-Za-z0-9,._-]*\])?((==|>=|~=|@)[A-Za-z0-9.*+!-]+)?$`)

func pypiPackage(spec string) string {
	m := pypiName.FindStringSubmatch(spec)
	if m == nil {
		return ""
	}
	return strings.ReplaceAll(strings.ToLower(m[1]), "_", "-")
}

func pypiFromArgs(args []string) string {
	for i, a := range args {
		switch {
		case a == "-q" || a == "--quiet" || a == "--offline":
		case a == "--from" || a == "--spec":
			if i+1 < len(args) {
				return pypiPackage(args[i+1])
			}
			return ""
		case strings.HasPrefix(a, "--from="):
			return pypiPackage(strings.TrimPrefix(a, "--from="))
		case strings.HasPrefix(a, "-"):
			return ""
		default:
			return pypiPackage(a)
		}
	}
	return ""
}

var (
	imageName     = regexp.MustCompile(`^[a-z0-9][a-z0-9._:/-]*$`)
	imageSwitches = []string{"-i", "-t", "-it", "-ti", "--interactive", "--tty", "--rm", "--init", "--read-only"}
	imageOptions  = []string{
		"-e", "--env", "--env-file", "-v", "--volume", "--mount", "-p", "--publish", "--name", "--network", "--net",
		"-w", "--workdir", "-u", "--user", "--label", "-l", "--memory", "-m", "--cpus", "--pull", "--platform", "--add-host", "--cap-drop", "--security-opt",
	}
)

// imageFromArgs finds the image in `docker run …`. An option that it does not
// know, --entrypoint among them, may change what runs.
func imageFromArgs(args []string) string {
	for i := 0; i < len(args); i++ {
		a := args[i]
		name, _, joined := strings.Cut(a, "=")
		switch {
		case slices.Contains(imageSwitches, a), joined && slices.Contains(imageOptions, name):
		case slices.Contains(imageOptions, a):
			i++
		case strings.HasPrefix(a, "-"):
			return ""
		default:
			return imageRepository(a)
		}
	}
	return ""
}

func imageRepository(image string) string {
	image, _, _ = strings.Cut(image, "@")
	if slash, colon := strings.LastIndexByte(image, '/'), strings.LastIndexByte(image, ':'); colon > slash {
		image = image[:colon]
	}
	if !imageName.MatchString(image) {
		return ""
	}
	return image
}
