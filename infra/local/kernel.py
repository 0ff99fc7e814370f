"""The Linux calls behind a host that Python lacks: namespaces, mounts and the last moment of a process."""

import contextlib
import ctypes
import os
import signal
from pathlib import Path

CLONE_NEWNS = 0x00020000
CLONE_NEWCGROUP = 0x02000000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_NOEXEC = 1, 2, 4, 8
_MS_REMOUNT, _MS_BIND, _MS_REC, _MS_PRIVATE = 0x20, 0x1000, 0x4000, 0x40000
_PR_SET_PDEATHSIG = 1
_PTRACE_CONT, _PTRACE_SEIZE, _PTRACE_LISTEN = 7, 0x4206, 0x4208
_PTRACE_O_TRACEEXIT = 0x40
_PTRACE_EVENT_EXIT, _PTRACE_EVENT_STOP = 6, 128
_STOP_SIGNALS = {signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU}

_libc = ctypes.CDLL(None, use_errno=True)


def _checked(result: int, what: str) -> None:
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error), what)


def unshare(namespaces: int) -> None:
    """Moves the caller (for processes: its next child) into new namespaces, a sum of CLONE_NEW*; raises OSError."""
    _checked(_libc.unshare(namespaces), "unshare")


def die_with_parent() -> None:
    """Asks the kernel to kill this process with SIGKILL when its parent ends."""
    _checked(_libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "prctl")


def _mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    arguments = source.encode(), target.encode(), kind.encode(), ctypes.c_ulong(flags), options.encode()
    _checked(_libc.mount(*arguments), f"mount {kind or source} on {target}")


def keep_mounts_private() -> None:
    """Keeps every mount made from here on out of the mount namespace that this one was copied from."""
    _mount("none", "/", "", _MS_REC | _MS_PRIVATE)


def mount_proc() -> None:
    """Mounts the caller's own process table on /proc."""
    _mount("proc", "/proc", "proc", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC)


def mount_tmpfs(target: str | Path, options: str) -> None:
    """Mounts an empty file system in memory, such as with options "size=64k,mode=0700"."""
    _mount("tmpfs", str(target), "tmpfs", _MS_NOSUID | _MS_NODEV, options)


def open_path(path: str | Path) -> int:
    """A descriptor that still names this file or directory after something was mounted over the way to it."""
    return os.open(path, os.O_PATH | os.O_CLOEXEC)


def bind(source: int, target: str | Path, *, is_read_only: bool = False) -> None:
    """Makes the file or directory behind a descriptor of `open_path` appear at `target`, which must exist."""
    _mount(f"/proc/self/fd/{source}", str(target), "", _MS_BIND | _MS_REC)
    if is_read_only:
        # In a user namespace the kernel refuses a remount that drops one of these flags.
        kept = os.statvfs(target).f_flag & (_MS_NOSUID | _MS_NODEV | _MS_NOEXEC)
        _mount("none", str(target), "", _MS_REMOUNT | _MS_BIND | _MS_RDONLY | kept)


def _ptrace(request: int, pid: int, data: int) -> None:
    _checked(_libc.ptrace(ctypes.c_long(request), pid, None, ctypes.c_void_p(data)), "ptrace")


def hold_at_exit(pid: int) -> bool:
    """Asks for a stop of a child at the moment it begins to exit; False where the kernel refuses."""
    try:
        _ptrace(_PTRACE_SEIZE, pid, _PTRACE_O_TRACEEXIT)
    except OSError:
        return False
    return True


def is_held_at_exit(status: int) -> bool:
    """Whether a wait status of `os.waitpid` is the stop that `hold_at_exit` asked for."""
    return os.WIFSTOPPED(status) and status >> 16 == _PTRACE_EVENT_EXIT


def let_go_on(pid: int, status: int) -> None:
    """Continues a child that `hold_at_exit` made visible, as if nobody had watched: signals still arrive."""
    event, number = status >> 16, os.WSTOPSIG(status)
    if event == _PTRACE_EVENT_STOP and number in _STOP_SIGNALS:
        request, data = _PTRACE_LISTEN, 0  # a SIGSTOP stays a stop until SIGCONT
    else:
        request, data = _PTRACE_CONT, 0 if event else number
    with contextlib.suppress(ProcessLookupError):  # killed meanwhile: the next wait says so
        _ptrace(request, pid, data)
