"""`python -m infra.local.aws.bound PARENT COMMAND...`: becomes a command that the kernel kills when its parent ends."""

import os
import sys

from infra.local.kernel import die_with_parent


def main(parent: int, command: list[str]) -> None:
    """Replaces this process by the command; ends at once if the parent has gone before the kernel was asked."""
    die_with_parent()
    if os.getppid() == parent:
        os.execvp(command[0], command)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
