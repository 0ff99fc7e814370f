"""Background work: it is ended in order, its failures are seen, and a blocked call delays nobody."""

import asyncio
import threading

import pytest

from container.bootstrap import tasks
from container.bootstrap.tasks import abandon, in_thread, say_if_failed


def test_abandoned_tasks_have_cleaned_up_and_their_errors_are_nobodys() -> None:
    cleaned = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            cleaned.append("work")

    async def fail() -> None:
        raise ValueError("nobody asked")

    async def run() -> None:
        started = [asyncio.create_task(work()), asyncio.create_task(fail()), None]
        await asyncio.sleep(0)
        await abandon(*started)
        await abandon()

    asyncio.run(run())
    assert cleaned == ["work"]


def test_a_task_that_ignores_every_cancellation_is_named_and_left(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tasks, "CANCEL_AGAIN_SECONDS", 0.01)
    num_cancellations = 0

    async def stubborn(release: asyncio.Event) -> None:
        nonlocal num_cancellations
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                num_cancellations += 1

    async def run() -> None:
        release = asyncio.Event()
        task = asyncio.create_task(stubborn(release), name="chore")
        await asyncio.sleep(0)
        await abandon(task)
        assert not task.done()
        release.set()
        await task

    asyncio.run(run())
    assert num_cancellations == tasks.MAX_CANCELS
    assert capsys.readouterr().out == "counterpoise: event=task_left task=chore cancellations=10\n"


def test_the_failure_of_a_background_task_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    async def fail() -> None:
        raise OSError(28, "No space left")

    async def run() -> None:
        for coroutine in (fail(), asyncio.sleep(600), asyncio.sleep(0)):
            task = asyncio.create_task(coroutine, name="chore")
            task.add_done_callback(say_if_failed)
            await asyncio.wait({task}, timeout=0.01)
            await abandon(task)

    asyncio.run(run())
    assert capsys.readouterr().out == (
        'counterpoise: event=task_failed task=chore reason="OSError: [Errno 28] No space left"\n'
    )


def test_a_call_in_a_thread_gives_its_result_or_its_error() -> None:
    async def run() -> None:
        assert await in_thread(divmod, 7, 2) == (3, 1)
        with pytest.raises(ZeroDivisionError):
            await in_thread(divmod, 7, 0)

    asyncio.run(run())


def test_the_end_does_not_wait_for_a_blocked_call() -> None:
    is_released, has_ended = threading.Event(), threading.Event()

    def block() -> None:
        is_released.wait()
        has_ended.set()

    async def run() -> None:
        task = asyncio.create_task(in_thread(block))
        await asyncio.sleep(0)
        await abandon(task)

    asyncio.run(run())
    assert not has_ended.is_set()
    is_released.set()
    assert has_ended.wait(60)
