package procgroup

import (
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// filterArch is this machine's kind as the kernel names it to a filter; 0 where no
// filter is known.
var filterArch = map[string]uint32{"amd64": unix.AUDIT_ARCH_X86_64, "arm64": unix.AUDIT_ARCH_AARCH64}[runtime.GOARCH]

// Where a filter finds what it looks at.
const (
	seccompNr   = 0
	seccompArch = 4
	seccompArg0 = 16
)

// foreignCalls is where the second set of system calls of x86-64 begins.
const foreignCalls = 0x40000000

// withoutUnixSockets keeps the current thread, and what it starts, from making unix
// sockets that could be connected: to root's own services (D-Bus, containers) uid 0
// is all the proof they want. Pairs of sockets still work.
func withoutUnixSockets() error {
	deny := unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EACCES)}
	load := func(at uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: at}
	}
	jump := func(op uint16, k uint32, yes, no uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | op | unix.BPF_K, Jt: yes, Jf: no, K: k}
	}
	filter := []unix.SockFilter{
		load(seccompArch),
		jump(unix.BPF_JEQ, filterArch, 0, 6), // else deny: a call of another kind of machine
		load(seccompNr),
		jump(unix.BPF_JGE, foreignCalls, 4, 0),
		jump(unix.BPF_JEQ, unix.SYS_IO_URING_SETUP, 3, 0), // it can make sockets too
		jump(unix.BPF_JEQ, unix.SYS_SOCKET, 0, 3),
		load(seccompArg0),
		jump(unix.BPF_JEQ, unix.AF_UNIX, 0, 1),
		deny,
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	_, _, errno := unix.RawSyscall(unix.SYS_PRCTL, unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&prog)))
	runtime.KeepAlive(filter)
	if errno != 0 {
		return errno
	}
	return nil
}
