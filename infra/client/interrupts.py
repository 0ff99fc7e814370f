"""Ctrl-C while the command watches a job: asks whether the job shall stop too."""

from collections.abc import Iterator
from contextlib import contextmanager

from infra.client.errors import Interrupted
from infra.client.executions import Execution
from infra.client.session import Session
from infra.client.stop import stop_request


@contextmanager
def asking_to_stop(session: Session, execution: Execution) -> Iterator[None]:
    """Asks on a terminal, whether to stop the execution when Ctrl-C is pressed; without one it goes on.

    Raises:
        Interrupted: in place of KeyboardInterrupt, with what became of the execution.
    """
    try:
        yield
    except KeyboardInterrupt:
        if session.screen.is_attended and _is_to_stop(session, execution):
            session.aws.send(stop_request(execution))
            raise Interrupted(f"execution {execution.name} is stopped, and its job with it") from None
        stop_it = f"stop it: `counterpoise stop {execution.name}`"
        raise Interrupted(f"interrupted; execution {execution.name} goes on; {stop_it}") from None


def _is_to_stop(session: Session, execution: Execution) -> bool:
    try:
        return session.screen.confirm(f"\nStop execution {execution.name} and its job?")
    except KeyboardInterrupt:  # a second Ctrl-C is for the command, not for the job
        return False
