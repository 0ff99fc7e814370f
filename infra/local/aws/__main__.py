"""`python -m infra.local.aws`: an AWS on this machine, for a person."""

import argparse
import os
import shlex
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from infra.local import scale_model
from infra.local.aws.deploy import DeployError
from infra.local.aws.run import STACK, Run, RunFailed, show
from infra.local.aws.server import EmbeddedAws, EmulatorError
from infra.local.aws.stand_in_image import NoStack, register_image

EXIT_FAILED, EXIT_BAD_INPUT, EXIT_INTERRUPTED = 1, 2, 130
MIN_STEPS = 2
"""The first step starts the clock of a rate, so that one step alone has none."""
OUTPUT_DIR = Path("runs") / "latest"


def main(arguments: Sequence[str]) -> int:
    """Run a command: 0 when it did its work, 1 with one line on standard error when it could not."""
    parser = argparse.ArgumentParser(prog="python -m infra.local.aws", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="command")
    serving = commands.add_parser("serve", help="keep an AWS running; training jobs run on local hosts")
    serving.add_argument("--port", type=int, default=0, help="port on 127.0.0.1 (default: a free one)")
    serving.add_argument("--work-dir", type=Path, help="folder for jobs and logs (default: one that vanishes)")
    serving.add_argument("--enforce-iam", action="store_true", help="check signatures and policies, over TLS")
    serving.set_defaults(run=_serve)
    standing_in = commands.add_parser(
        "stand-in-image", help="give a stack in it an image that is none: hosts need none"
    )
    standing_in.add_argument("--stack", default=STACK, help="name of the stack (default: %(default)s)")
    standing_in.set_defaults(run=_stand_in)
    running = commands.add_parser("run", help="deploy, run the article's comparison as a scale model, show the results")
    running.add_argument("--steps", type=int, default=scale_model.STEPS, help="optimizer steps of each arm")
    running.set_defaults(run=_run)
    options = parser.parse_args(arguments)
    try:
        return int(options.run(options))
    except KeyboardInterrupt:
        print("interrupted; the embedded AWS and its jobs have ended", file=sys.stderr)
        return EXIT_INTERRUPTED
    except (EmulatorError, DeployError, NoStack, RunFailed, OSError) as error:
        print(error, file=sys.stderr)
        return EXIT_FAILED


def _serve(options: argparse.Namespace) -> int:
    over = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: over.set())
    with EmbeddedAws(port=options.port, work_dir=options.work_dir, is_iam_enforced=options.enforce_iam) as aws:
        for name, value in aws.environment.items():
            print(f"export {name}={shlex.quote(value)}")
        print(f"# Paste these lines into a shell. Ctrl-C here ends it all. Its log: {aws.log_file}", flush=True)
        over.wait()
    return 0


def _stand_in(options: argparse.Namespace) -> int:
    print(register_image(os.environ, options.stack))
    return 0


def _run(options: argparse.Namespace) -> int:
    if options.steps < MIN_STEPS:
        print(f"--steps: {options.steps} gives no rate; allowed: at least {MIN_STEPS}", file=sys.stderr)
        return EXIT_BAD_INPUT
    show(Run(OUTPUT_DIR, steps=options.steps).run())
    print(f"written: {OUTPUT_DIR / 'results.json'} and results.md")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
