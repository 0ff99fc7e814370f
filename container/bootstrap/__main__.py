"""Process 1 of every host of a training job: `python -m container.bootstrap train`.

What it promises:
1. It finds out who is in the job and who leads; every host gives the same answer.
2. It starts Ray on this host's own address, with token authentication, and the head waits for every host by address.
3. On the head it runs the training driver and forwards SIGTERM to it.
4. Every host ends with the job's real outcome; the reason of a failure is in /opt/ml/output/failure, cause first.
5. It watches: a dead raylet is started again, a lost head is left, a stalled job fails.
6. It leaves no process behind and never prints an environment or a secret.
"""

import os
import sys
from pathlib import Path

from container.bootstrap import log
from container.bootstrap.environment import JobPaths
from container.bootstrap.errors import BAD_INPUT
from container.bootstrap.run import run_host


def main() -> int:
    """Run as SageMaker calls the image: with the argument `train`, or with none."""
    if sys.argv[1:] not in ([], ["train"]):
        log.say(f"argument {' '.join(sys.argv[1:])!r} is not known; allowed: train")
        return BAD_INPUT
    return run_host(JobPaths(base=Path("/opt/ml")), os.environ)


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    # Everything is on disk. A thread may still wait for a resolver or for Ray, and must not hold up the end.
    os._exit(code)
