"""torchvision's transforms without torch's compiler.

When torchvision's detection models are imported, they ask torch._dynamo for one function, and with it comes the whole
compiler: 2.3 of the 5 CPU seconds that a data worker pays for its imports, and 150 MB of its memory. Here a stand-in
has that function, which calls the true one; whoever imports torch._dynamo afterwards gets the true module.
"""

import sys
from types import ModuleType
from typing import Any

import torch  # noqa: F401  # before anything stands in for a part of it

_COMPILER = ("torch._dynamo", "torch._dynamo.utils")


def _is_compile_supported(*arguments: Any) -> Any:
    from torch._dynamo import utils

    return utils.is_compile_supported(*arguments)


def _stand_in() -> dict[str, ModuleType]:
    if "torchvision" in sys.modules or any(name in sys.modules for name in _COMPILER):
        return {}
    modules = {name: ModuleType(name) for name in _COMPILER}
    modules["torch._dynamo.utils"].is_compile_supported = _is_compile_supported  # type: ignore[attr-defined]
    return modules


_modules = _stand_in()
sys.modules.update(_modules)
try:
    from torchvision.transforms import functional  # type: ignore[import-untyped]
finally:
    for _name in _modules:
        del sys.modules[_name]

__all__ = ["functional"]
