"""The control channel over real sockets: who is let in, what is delivered, and that nobody disturbs the others."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from container.bootstrap import control
from container.bootstrap.channel import LINE_LIMIT_BYTES, Channel
from container.bootstrap.control import CONTROL_PORT, ControlClient, ControlServer
from container.bootstrap.handover import ask_for_token
from container.bootstrap.outcome import Outcome
from container.bootstrap.telemetry import Sample
from container.bootstrap.token import Token
from tests.bootstrap.job import TOKEN, loopback_address

TOKEN_OF_JOB = Token(value=TOKEN, path=Path("unused"))
WRONG_TOKEN = Token(value="f" * 64, path=Path("unused"))
VERSIONS = {"python": "3.11", "ray": "2"}
SAMPLE = Sample(cpu_seconds=1.5, cores=2.0, memory_bytes=3, accelerator_share=None)
SUCCESS = Outcome(exit_code=0, reason="")
FAILURE = Outcome(exit_code=1, reason="ValueError: loss is nan")


class Head:
    """A listening server and what it was told."""

    def __init__(self, *expected: str, hands_token_over: bool = False) -> None:
        self.address = loopback_address()
        self.samples: list[tuple[str, Sample]] = []
        self.num_stops = 0
        self.server = ControlServer(
            TOKEN_OF_JOB,
            expected=set(expected),
            versions=VERSIONS,
            hands_token_over=hands_token_over,
            on_sample=lambda host, sample: self.samples.append((host, sample)),
            on_stop=self._count_stop,
        )

    def _count_stop(self) -> None:
        self.num_stops += 1

    async def worker(self, name: str, token: Token = TOKEN_OF_JOB, **versions: str) -> ControlClient:
        client = ControlClient(token, host=name, versions={**VERSIONS, **versions})
        await client.connect(self.address)
        return client

    async def raw(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(self.address, CONTROL_PORT)

    async def finish(self, outcome: Outcome = SUCCESS, timeout_seconds: float = 20.0) -> list[str]:
        return await self.server.finish(outcome, timeout_seconds=timeout_seconds)


@asynccontextmanager
async def listening(*expected: str, hands_token_over: bool = False) -> AsyncIterator[Head]:
    head = Head(*expected, hands_token_over=hands_token_over)
    await head.server.start(head.address)
    try:
        yield head
    finally:
        await head.finish(timeout_seconds=0.0)


async def confirm(client: ControlClient) -> Outcome:
    """What a worker does at the end: beats until there is an outcome, then takes its leave."""
    while (outcome := await client.exchange()) is None:
        await asyncio.sleep(0)
    await client.leave()
    return outcome


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(60):
            await test()

    asyncio.run(bounded())


def test_what_a_worker_says_arrives_and_the_outcome_is_confirmed() -> None:
    async def test() -> None:
        async with listening("algo-2") as head:
            worker = await head.worker("algo-2")
            assert await worker.exchange(sample=asdict(SAMPLE)) is None
            assert await worker.exchange(joined="10.0.0.2") is None
            assert (head.server.joined, head.samples) == ({"algo-2": "10.0.0.2"}, [("algo-2", SAMPLE)])
            outcome, unconfirmed = await asyncio.gather(confirm(worker), head.finish(FAILURE))
            assert (outcome, unconfirmed) == (FAILURE, [])
            assert head.server.lost.empty()
            assert head.server.failed == {}

    run(test)


def test_a_failure_to_join_is_told_and_printed_once(capsys: pytest.CaptureFixture[str]) -> None:
    async def test() -> None:
        async with listening("algo-2") as head:
            worker = await head.worker("algo-2")
            for _ in range(3):
                await worker.exchange(failed="no raylet")
            assert head.server.failed == {"algo-2": "no raylet"}
            await worker.leave(failed="no raylet")

    run(test)
    assert capsys.readouterr().out.splitlines() == [
        'counterpoise: event=host_failed host=algo-2 reason="no raylet"',
    ]


def test_a_wrong_token_is_refused_and_the_server_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
    async def test() -> None:
        async with listening("algo-2") as head:
            for _ in range(2):
                with pytest.raises(ConnectionRefusedError, match="the head refused this host: wrong token"):
                    await head.worker("algo-2", WRONG_TOKEN)
            worker = await head.worker("algo-2")
            assert await worker.exchange(joined="10.0.0.2") is None
            await worker.leave()

    run(test)
    said = capsys.readouterr().out
    assert said.count('event=connection_refused address=127.0.0.1 reason="wrong token"') == 1
    assert TOKEN not in said


def test_a_host_of_another_job_is_refused() -> None:
    async def test() -> None:
        async with listening("algo-2") as head:
            with pytest.raises(ConnectionRefusedError, match="no host of this job"):
                await head.worker("algo-9")
            assert (head.server.joined, head.server.failed) == ({}, {})

    run(test)


@pytest.mark.parametrize("answer", [{"proof": "0" * 64}, {"proof": "é"}, {"beat": True}, {"outcome": asdict(SUCCESS)}])
def test_a_worker_does_not_believe_a_head_without_the_token(answer: dict[str, Any]) -> None:
    async def test() -> None:
        told: list[Any] = []

        async def pretend(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            channel = Channel(reader, writer)
            await channel.send({"challenge": "\ud800 any text"})
            told.append(await channel.receive(10))
            await channel.send(answer)
            channel.close()

        address = loopback_address()
        async with await asyncio.start_server(pretend, address, CONTROL_PORT):
            client = ControlClient(TOKEN_OF_JOB, host="algo-2", versions=VERSIONS)
            with pytest.raises(ConnectionError, match="the peer does not hold this job's token"):
                await client.connect(address)
            with pytest.raises(ConnectionError, match="not connected"):
                await client.exchange()
            assert TOKEN not in json.dumps(told)

    run(test)


def test_another_version_is_recorded_as_a_failure() -> None:
    async def test() -> None:
        async with listening("algo-2") as head:
            worker = await head.worker("algo-2", ray="1")
            assert head.server.failed == {
                "algo-2": "runs {'python': '3.11', 'ray': '1'}, the head {'python': '3.11', 'ray': '2'}; "
                "use one image for all hosts"
            }
            await worker.leave()

    run(test)


HELLO = {"host": "algo-3", "challenge": "1", "proof": "é", "versions": VERSIONS}
NONSENSE = [
    b"GET / HTTP/1.1\r\n\r\n",
    b"\x00\xff\xfe\n",
    b"[1, 2]\n",
    b"{}\n",
    json.dumps(HELLO).encode() + b"\n",
    b'{"host": "\\ud800", "challenge": {}, "proof": null}\n',
    b"[" * 50_000 + b"\n",
    b"x" * (LINE_LIMIT_BYTES + 1),
    b"",
]


@pytest.mark.parametrize("sent", NONSENSE, ids=range(len(NONSENSE)))
def test_strangers_do_not_disturb_the_others(sent: bytes) -> None:
    async def test() -> None:
        async with listening("algo-2") as head:
            worker = await head.worker("algo-2")
            reader, writer = await head.raw()
            writer.write(sent)
            if not sent:
                writer.close()
            with suppress(ConnectionResetError):  # it may not even have read all of it
                assert len((await reader.read()).splitlines()) <= 2  # a challenge, a refusal, the end
            writer.close()
            assert await worker.exchange(joined="10.0.0.2") is None
            outcome, unconfirmed = await asyncio.gather(confirm(worker), head.finish())
            assert (outcome, unconfirmed) == (SUCCESS, [])

    run(test)


def test_a_silent_stranger_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with listening("algo-2") as head:
            worker = await head.worker("algo-2")
            reader, writer = await head.raw()
            monkeypatch.setattr(control, "HANDSHAKE_SECONDS", 0.05)
            other, other_writer = await head.raw()
            await other.readline()
            assert await other.read() == b""
            assert await worker.exchange() is None
            for stranger in (writer, other_writer):
                stranger.close()
            await reader.readline()
            await worker.leave()

    run(test)


def test_a_worker_that_falls_silent_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with listening("algo-2", "algo-3") as head:
            monkeypatch.setattr(control, "SILENCE_SECONDS", 0.05)
            silent, gone = await head.worker("algo-2"), await head.worker("algo-3")
            assert sorted([await head.server.lost.get(), await head.server.lost.get()]) == ["algo-2", "algo-3"]
            for worker in (silent, gone):
                with pytest.raises(OSError, match=r"connection closed|reset by peer"):
                    await worker.exchange()
                await worker.leave()

    run(test)


def test_a_head_that_falls_silent_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with listening("algo-2") as head:
            worker = await head.worker("algo-2")
            monkeypatch.setattr(control, "SILENCE_SECONDS", 0.05)
            monkeypatch.setattr(Channel, "send", swallow)
            with pytest.raises(TimeoutError):
                await worker.exchange()
            await worker.leave()

    async def swallow(*_: object) -> None:
        """Nothing reaches anybody any more, as on a link that is down."""

    run(test)


def test_messages_of_another_version_cost_the_connection_only(capsys: pytest.CaptureFixture[str]) -> None:
    async def test() -> None:
        async with listening("algo-2") as head:
            worker = await head.worker("algo-2")
            with pytest.raises(ConnectionError):
                await worker.exchange(sample={"gpu": 1})
            assert await head.server.lost.get() == "algo-2"
            again = await head.worker("algo-2")
            assert await again.exchange(sample=asdict(SAMPLE)) is None
            for client in (worker, again):
                await client.leave()

    run(test)
    assert capsys.readouterr().err == ""


def test_a_worker_that_connects_again_takes_the_place_of_its_old_connection() -> None:
    async def test() -> None:
        async with listening("algo-2") as head:
            worker = await head.worker("algo-2")
            await worker.exchange()
            await worker.connect(head.address)
            assert await worker.exchange(joined="10.0.0.2") is None
            assert head.server.lost.empty()
            outcome, unconfirmed = await asyncio.gather(confirm(worker), head.finish(FAILURE))
            assert (outcome, unconfirmed) == (FAILURE, [])

    run(test)


def test_a_worker_that_connects_only_now_hears_the_outcome() -> None:
    async def test() -> None:
        async with listening("algo-2", "algo-3") as head:
            finishing = asyncio.create_task(head.finish(FAILURE))
            await asyncio.sleep(0)  # the outcome is known, and nobody has ever connected
            assert [await confirm(await head.worker(name)) for name in ("algo-3", "algo-2")] == [FAILURE, FAILURE]
            assert await finishing == []

    run(test)


def test_those_who_did_not_confirm_are_reported() -> None:
    async def test() -> None:
        async with listening("algo-2", "algo-3", "algo-4") as head:
            heard, deaf = await head.worker("algo-2"), await head.worker("algo-3")
            outcome, unconfirmed = await asyncio.gather(confirm(heard), head.finish(timeout_seconds=0.3))
            assert (outcome, unconfirmed) == (SUCCESS, ["algo-3", "algo-4"])
            await deaf.leave()

    run(test)


def test_a_server_that_never_listened_waits_for_nobody() -> None:
    async def test() -> None:
        assert await Head("algo-2").finish(timeout_seconds=3600) == ["algo-2"]

    run(test)


def test_who_is_still_connected_at_the_end_leaves_no_traceback(caplog: pytest.LogCaptureFixture) -> None:
    with socket.socket() as stranger:
        stranger.setblocking(False)

        async def test() -> None:
            async with listening("algo-2") as head:
                loop = asyncio.get_running_loop()
                await loop.sock_connect(stranger, (head.address, CONTROL_PORT))
                assert b"challenge" in await loop.sock_recv(stranger, 1000)

        run(test)
    assert caplog.records == []


def test_a_reason_of_any_length_fits_into_one_line() -> None:
    async def test() -> None:
        async with listening("algo-2") as head:
            worker = await head.worker("algo-2")
            reason = "\U0001f40d" * LINE_LIMIT_BYTES
            outcome, _ = await asyncio.gather(confirm(worker), head.finish(Outcome(exit_code=1, reason=reason)))
            assert outcome == Outcome(exit_code=1, reason=reason[:1024])

    run(test)


def test_leaving_before_the_end_is_a_loss() -> None:
    async def test() -> None:
        async with listening("algo-2") as head:
            worker = await head.worker("algo-2")
            await worker.leave(failed="OSError: disk full")
            assert await head.server.lost.get() == "algo-2"
            assert head.server.failed == {"algo-2": "OSError: disk full"}
            assert await head.finish(timeout_seconds=0.0) == ["algo-2"]

    run(test)


def test_a_worker_that_must_stop_is_heard_once(capsys: pytest.CaptureFixture[str]) -> None:
    async def test() -> None:
        async with listening("algo-2") as head:
            worker = await head.worker("algo-2")
            for _ in range(3):
                assert await worker.exchange(stopping=True) is None
            assert head.num_stops == 1
            await worker.leave()

    run(test)
    assert capsys.readouterr().out.count("event=host_stopping host=algo-2") == 1


def resolving(monkeypatch: pytest.MonkeyPatch, addresses: dict[str, list[str]]) -> None:
    monkeypatch.setattr(socket, "gethostbyname_ex", lambda name: (name, [], addresses[name]))


def test_isolated_hosts_get_the_token_from_their_head(monkeypatch: pytest.MonkeyPatch) -> None:
    resolving(monkeypatch, {"algo-2": ["127.0.0.1"]})

    async def test() -> None:
        async with listening("algo-2", hands_token_over=True) as head:
            for _ in range(2):  # a host that was restarted asks again
                assert await ask_for_token(head.address, CONTROL_PORT, host="algo-2") == TOKEN
            worker = await head.worker("algo-2")
            assert await worker.exchange(joined="10.0.0.2") is None
            await worker.leave()

    run(test)


@pytest.mark.parametrize("name", ["algo-2", "algo-3", "localhost"])
def test_nobody_else_gets_it(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str) -> None:
    """A stranger with the name of a host, another host's name that is none of this job, and one that would resolve."""
    resolving(monkeypatch, {"algo-2": ["10.0.0.2"], "localhost": ["127.0.0.1"]})

    async def test() -> None:
        async with listening("algo-2", hands_token_over=True) as head:
            with pytest.raises(ConnectionError, match="gives no token: not the address of a host of this job"):
                await ask_for_token(head.address, CONTROL_PORT, host=name)

    run(test)
    said = capsys.readouterr().out
    assert f"asked for the token as {name}" in said
    assert TOKEN not in said


def test_a_token_from_secrets_manager_is_handed_to_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    resolving(monkeypatch, {"algo-2": ["127.0.0.1"]})

    async def test() -> None:
        async with listening("algo-2") as head:
            with pytest.raises(ConnectionError, match="the head gives no token: wrong token"):
                await ask_for_token(head.address, CONTROL_PORT, host="algo-2")

    run(test)
