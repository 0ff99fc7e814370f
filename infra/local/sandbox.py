"""The sandbox of a run: namespaces that vanish, with all their processes, however the visible process ends."""

import contextlib
import os
import select
import shutil
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import NoReturn

from infra.local import kernel, network
from infra.local.cgroups import Owner, open_limits
from infra.local.limits import Limits

_FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_ML = Path("/opt/ml")
EXIT_REFUSED = 2


@dataclass(frozen=True)
class Sandbox:
    """What the inside of a sandbox offers to jobs."""

    limits: Limits


def missing_requirement(platform: str, find_program: Callable[[str], str | None]) -> str | None:
    """One sentence on what this machine lacks for local hosts, or None if it looks complete."""
    if platform != "linux":
        return (
            f"local hosts need Linux namespaces and this is {platform}; "
            "run the same command on Linux or in a Linux virtual machine"
        )
    if find_program("ip") is None:
        return "the program ip is missing; install it, on Debian or Ubuntu with: apt-get install iproute2"
    return None


def enter_sandbox() -> Sandbox:
    """Continues in a child inside fresh namespaces, as their process 1; the caller stays outside as its stand-in.

    The stand-in passes SIGINT, SIGTERM and SIGHUP on, ends with the child's exit code and never returns from here.
    When it is killed, even with SIGKILL, the kernel kills the child and with it everything in the sandbox. A program
    calls this once, early, while it has one thread. Exits with code 2 and one line on stderr where it is impossible.
    """
    problem = missing_requirement(sys.platform, shutil.which)
    if problem is not None:
        _refuse(problem)
    limits = open_limits(Owner.of(os.getpid()))
    try:
        _unshare_processes()
    except OSError as error:
        limits.close()
        _refuse(f"the kernel refuses namespaces to this user ({error}); run as root or allow user namespaces")
    sys.stdout.flush()
    sys.stderr.flush()
    signal.pthread_sigmask(signal.SIG_BLOCK, _FORWARDED)  # until both sides have their handlers
    end_of_child, end_of_parent = os.pipe()
    child = os.fork()
    if child:
        os.close(end_of_child)
        os._exit(_stand_in_for(child, limits))
    os.close(end_of_parent)
    _live_and_die_with(end_of_child)
    try:
        _set_up()
    except OSError as error:
        _refuse(f"the kernel refuses a part of the sandbox ({error}); run as root, outside a restricted container")
    return Sandbox(limits)


def _refuse(problem: str) -> NoReturn:
    print(f"counterpoise: {problem}", file=sys.stderr)
    raise SystemExit(EXIT_REFUSED)


def _unshare_processes() -> None:
    """Makes the next child process 1 of a new table of processes, as root of a user namespace if need be."""
    user, group = os.geteuid(), os.getegid()
    with contextlib.suppress(PermissionError):
        kernel.unshare(kernel.CLONE_NEWPID)
        return
    kernel.unshare(kernel.CLONE_NEWUSER | kernel.CLONE_NEWPID)
    Path("/proc/self/setgroups").write_text("deny")  # the kernel's condition for mapping a group without privilege
    Path("/proc/self/uid_map").write_text(f"0 {user} 1")
    Path("/proc/self/gid_map").write_text(f"0 {group} 1")


def _stand_in_for(child: int, limits: Limits) -> int:
    def forward(number: int, _frame: FrameType | None) -> None:
        os.kill(child, number)

    for number in _FORWARDED:
        signal.signal(number, forward)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _FORWARDED)
    _, status = os.waitpid(child, 0)
    signal.pthread_sigmask(signal.SIG_BLOCK, _FORWARDED)  # the child's pid is free for others now
    limits.close()
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def _live_and_die_with(end_of_child: int) -> None:
    """Ties process 1 to the stand-in, whose end of the pipe closes when it dies before the kernel was asked."""
    kernel.die_with_parent()
    if select.select([end_of_child], [], [], 0)[0]:
        os._exit(1)
    os.setsid()  # Ctrl-C reaches the stand-in alone, so that one press is one signal
    for number in _FORWARDED:
        signal.signal(number, _leave)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _FORWARDED)


def _leave(number: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def _set_up() -> None:
    kernel.unshare(kernel.CLONE_NEWNS | kernel.CLONE_NEWNET | kernel.CLONE_NEWIPC)
    kernel.keep_mounts_private()
    kernel.mount_proc()
    make_mount_point(_ML)
    network.raise_loopback()


def make_mount_point(path: Path) -> None:
    """Makes sure that the directory `path` exists, without a trace on the disk.

    If it does not, its parent is covered by a file system in memory that shows all that the parent held before.
    """
    if path.is_dir():
        return
    held = [(entry, kernel.open_path(entry)) for entry in path.parent.iterdir() if not entry.is_symlink()]
    links = [(entry, entry.readlink()) for entry in path.parent.iterdir() if entry.is_symlink()]
    kernel.mount_tmpfs(path.parent, "size=1m,mode=0755")
    for entry, descriptor in held:
        if Path(f"/proc/self/fd/{descriptor}").is_dir():
            entry.mkdir()
        else:
            entry.touch()
        kernel.bind(descriptor, entry)
        os.close(descriptor)
    for entry, target in links:
        entry.symlink_to(target)
    path.mkdir()
