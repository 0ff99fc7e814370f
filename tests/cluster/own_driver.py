"""The product with a training function of a test in it: `python -m <module> train` as process 1 of every host.

Bootstrap and driver stay the product's; the module has a function `train(settings)`, which changes what it must and
ends with `training.loop.train(settings)`, and as a program it calls `run`.
"""

import importlib
import os
import sys
from typing import Any, NoReturn


def replace(owner: Any, name: str, value: Any) -> None:
    """Put a callable of the product's out of the way. Raises AssertionError where it has gone."""
    assert callable(getattr(owner, name)), f"{owner} has no {name} any more"
    setattr(owner, name, value)


def main(module: str) -> int:
    """As process 1 the bootstrap with `module` as its driver; as the driver training.main with `train` from there."""
    if sys.argv[1:] == ["train"]:
        from container.bootstrap import __main__ as bootstrap
        from container.bootstrap.driver import Driver

        command = Driver.command
        Driver.command = lambda self: [module if part == "training.main" else part for part in command(self)]  # type: ignore[method-assign]
        return bootstrap.main()
    trainer: Any = importlib.import_module("training.trainer")
    trainer.train = importlib.import_module(module).train  # by its real name, so that the training worker finds it
    return int(importlib.import_module("training.main").main(sys.argv[1:]))


def run(module: str) -> NoReturn:
    """`main` as a program: what is on the way is printed, and Ray's exit handlers are left out."""
    code = main(module)
    sys.stdout.flush()
    os._exit(code)
