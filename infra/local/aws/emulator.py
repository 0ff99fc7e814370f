"""`python -m infra.local.aws.emulator SETTINGS`: MiniStack with SageMaker, mended, in this one process."""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import Any

from hypercorn.asyncio import serve
from hypercorn.config import Config
from ministack import app as ministack_app

from infra.local.aws.control import PREFIX, Control, to_body
from infra.local.aws.gaps import mend
from infra.local.aws.sagemaker_api import SageMaker
from infra.local.aws.settings import HOST, EmulatorSettings

RUNNER_GRACE_SECONDS = 5.0  # to take its hosts down; nobody needs their results any more
_ENDS = (signal.SIGTERM, signal.SIGINT)
Scope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]


def main(settings: EmulatorSettings) -> None:
    """Serves until SIGTERM, SIGINT or the end of standard input, whose other end is held by whoever started this."""
    settings.jobs_dir.mkdir(parents=True, exist_ok=True)
    control = Control()
    sagemaker = SageMaker(settings, control)
    mend(sagemaker)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDS)  # whoever started this may have blocked them
    asyncio.run(_serve(settings, control, sagemaker))


async def _serve(settings: EmulatorSettings, control: Control, sagemaker: SageMaker) -> None:
    over = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in _ENDS:
        loop.add_signal_handler(number, over.set)
    loop.add_reader(sys.stdin.fileno(), _watch_starter, loop, over)
    config = Config()
    config.bind = [f"{HOST}:{settings.port}"]
    config.accesslog = None
    config.loglevel = logging.getLevelName(logging.getLogger().level)
    if settings.is_iam_enforced:
        from ministack.core import tls

        config.certfile, config.keyfile = tls.resolve_tls_material()

    async def shut_down() -> None:
        await over.wait()
        await asyncio.to_thread(sagemaker.end, RUNNER_GRACE_SECONDS)
        os._exit(0)  # all state is in memory; a graceful end would wait for connections that clients keep open

    await serve(_with_control(control), config, shutdown_trigger=shut_down)


def _watch_starter(loop: asyncio.AbstractEventLoop, over: asyncio.Event) -> None:
    if not sys.stdin.buffer.read1(1):  # type: ignore[union-attr]
        loop.remove_reader(sys.stdin.fileno())
        over.set()


def _with_control(control: Control) -> Callable[[Scope, Receive, Send], Awaitable[None]]:
    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not scope["path"].startswith(PREFIX):
            await ministack_app.app(scope, receive, send)
            return
        body = b""
        while (message := await receive())["type"] == "http.request":
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        status, answer = control.answer(scope["method"], scope["path"], scope["query_string"].decode(), body)
        headers = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": to_body(answer)})

    return application


if __name__ == "__main__":
    main(EmulatorSettings.from_json(sys.argv[1]))
