"""Part of the stand-in for Ray: how a Python daemon is started."""

import sys


def _build_python_executable_command_memory_profileable(_component: str, _session_dir: str) -> list[str]:
    return [sys.executable]
