"""The faults that a job must survive or tell: what happens, what it costs, what one sees, and the bound that is tested.

docs/reliability.md is written from this, and `make faults` writes what was measured of each to runs/faults/latest.json.
"""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class FaultCase:
    """One fault. `bound_seconds` is the longest time that `bound` may take."""

    title: str
    happens: str
    """What the job does then."""
    costs: str
    seen: str
    """What a user meets: an event of the log, an exit code, a reason."""
    bound: str
    bound_seconds: float


FAULTS: dict[str, FaultCase] = {
    "F1": FaultCase(
        title="A CPU host starts before the head, or names resolve late",
        happens="It looks for the head until `join_timeout_seconds` are over; training starts with every host.",
        costs="The time of the late host.",
        seen="`waiting_for_hosts` or `joining_head` with the missing names, every 10 s",
        bound="start of the last host to the formed cluster",
        bound_seconds=60,
    ),
    "F2": FaultCase(
        title="A host never comes",
        happens="The job fails at `join_timeout_seconds`; with `missing_hosts: continue` it goes on and says so.",
        costs="`join_timeout_seconds` of every host.",
        seen="exit code 3; reason `algo-2 did not join within 20 s (join_timeout_seconds)`",
        bound="end of join_timeout_seconds to the end of the head",
        bound_seconds=15,
    ),
    "F3": FaultCase(
        title="A host has the wrong token, or none",
        happens="Without one no host starts anything; a wrong one is refused, and the host counts as missing.",
        costs="Nothing; with a wrong one, `join_timeout_seconds`.",
        seen="exit code 2 naming the variable; `connection_refused` with the address, then as F2",
        bound="end of join_timeout_seconds to the end of every host",
        bound_seconds=15,
    ),
    "F4": FaultCase(
        title="A CPU host is killed",
        happens="Training goes on; rows that it had are prepared by the others, each exactly once.",
        costs="A pause, and its share of the throughput.",
        seen="`host_lost`; the dead host's own exit code",
        bound="longest pause between two reports of steps",
        bound_seconds=30,
    ),
    "F5": FaultCase(
        title="Ray dies on a CPU host",
        happens="Its process 1 starts Ray again, up to 3 times, and the host works again.",
        costs="The host's work until it has joined again.",
        seen="`ray_died`, then `joined`",
        bound="death to joined again",
        bound_seconds=60,
    ),
    "F6": FaultCase(
        title="A CPU host is cut off from the network",
        happens="Training goes on without it; the host leaves by itself.",
        costs="As F4.",
        seen="`host_lost` at the head; exit code 4 and `reconnecting the head ... failed` on the host",
        bound="longest pause between two reports of steps (and 60 s until the host has left)",
        bound_seconds=30,
    ),
    "F7": FaultCase(
        title="A link is down for 3 s",
        happens="Nothing is lost and nobody is declared dead.",
        costs="A pause.",
        seen="at most `head_silent`",
        bound="longest pause between two reports of steps",
        bound_seconds=30,
    ),
    "F8": FaultCase(
        title="The head is killed",
        happens="Every other host notices and ends with an error.",
        costs="The steps since the last checkpoint.",
        seen="exit code 4 and `reconnecting the head ... failed` on every other host",
        bound="kill to the end of every host",
        bound_seconds=15,
    ),
    "F9": FaultCase(
        title="The job is stopped, or its spot capacity is taken: SIGTERM to every host",
        happens="The step ends, a checkpoint and the model are written, every host ends.",
        costs="Nothing.",
        seen="`stopping`, `checkpoint`, `stopped`; exit code 143",
        bound="SIGTERM to the end of every host",
        bound_seconds=60,
    ),
    "F10": FaultCase(
        title="SIGTERM during the start, during a checkpoint, twice, or to one host alone",
        happens="As F9; before the first step without a checkpoint. One host alone takes the job with it.",
        costs="Nothing.",
        seen="as F9; `host_stopping` where one host alone got it",
        bound="SIGTERM to the end of every host",
        bound_seconds=60,
    ),
    "F11": FaultCase(
        title="The training raises an error",
        happens="Every host fails with the error; the next job goes on from the last checkpoint.",
        costs="The steps since the last checkpoint.",
        seen="exit code 1; the reason begins with the error's own type and text",
        bound="error to the end of every host",
        bound_seconds=30,
    ),
    "F12": FaultCase(
        title="Memory runs out: the kernel kills a data worker, or the trainer",
        happens="A data worker is started again, its rows are prepared by others. Without its trainer the job fails.",
        costs="A pause; without the trainer the steps since the last checkpoint.",
        seen="exit code 1; the reason says that a training worker was killed, on which host, and names memory",
        bound="kill to the end of every host",
        bound_seconds=60,
    ),
    "F13": FaultCase(
        title="A disk or /dev/shm is full",
        happens="A small /dev/shm moves Ray's objects to the disk. A checkpoint that has no room is left out. A model "
        "that has none fails the job.",
        costs="Speed; the checkpoint; the job.",
        seen="`object_store_on_disk`; `checkpoint_failed` with the path; a reason with the path",
        bound="last step to the end of every host",
        bound_seconds=30,
    ),
    "F14": FaultCase(
        title="The training hangs, in its loop or in a collective operation",
        happens="After `stall_timeout_seconds` without progress the job fails everywhere.",
        costs="`stall_timeout_seconds`, and the steps since the last checkpoint.",
        seen="exit code 5; reason `no progress for ... s (stall_timeout_seconds)`",
        bound="end of stall_timeout_seconds to the end of every host",
        bound_seconds=10,
    ),
    "F15": FaultCase(
        title="Ray fails to start once",
        happens="What it left is ended, and it is started again, up to 4 times.",
        costs="Seconds.",
        seen="`ray_start_failed` with the reason",
        bound="failure to the formed cluster",
        bound_seconds=60,
    ),
    "F16": FaultCase(
        title="No fault: a clean end",
        happens="Every host ends with 0 and leaves no process.",
        costs="Nothing.",
        seen="exit code 0",
        bound="last step to the end of every host",
        bound_seconds=10,
    ),
    "F17": FaultCase(
        title="The newest checkpoint is damaged",
        happens="The newest whole one is taken.",
        costs="The steps between the two.",
        seen="`checkpoint_damaged`, then `resumed` with the step",
        bound="start of the training to its first step",
        bound_seconds=60,
    ),
    "F18": FaultCase(
        title="A record cannot be read",
        happens="It is skipped, counted and named, up to `max_bad_share`.",
        costs="The record.",
        seen="`unreadable` with row and reason",
        bound="last step to the end of every host",
        bound_seconds=10,
    ),
    "F19": FaultCase(
        title="A host's own name resolves to the loopback",
        happens="The host uses the address of its interface.",
        costs="Nothing.",
        seen="nothing",
        bound="start of the last host to the formed cluster",
        bound_seconds=60,
    ),
    "F20": FaultCase(
        title="A host has a second interface, with a link-local address",
        happens="That one is left alone.",
        costs="Nothing.",
        seen="nothing",
        bound="start of the last host to the formed cluster",
        bound_seconds=60,
    ),
    "F21": FaultCase(
        title="One host has another version of Ray or Python",
        happens="The job fails before the cluster forms.",
        costs="The start.",
        seen="exit code 3; reason with both versions and `use one image for all hosts`",
        bound="start of the last host to the end of every host",
        bound_seconds=60,
    ),
    "F22": FaultCase(
        title="The loss is no number any more",
        happens="The job fails; no checkpoint is made of such weights.",
        costs="The steps since the last checkpoint.",
        seen="exit code 1; the reason names the step",
        bound="that step to the end of every host",
        bound_seconds=30,
    ),
}
