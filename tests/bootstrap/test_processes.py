"""Children: orphans come to process 1 and are collected; what must end ends, and nobody else is touched.

Each test runs in an interpreter of its own, since to adopt orphans and to end all descendants would be felt by others.
"""

import subprocess
import sys
from pathlib import Path

from tests.bootstrap.job import ROOT

PRELUDE = """
import asyncio, os, signal, subprocess, sys, time
import psutil
from container.bootstrap.processes import adopt_orphans, descendants, end_all, reap

def spawn(code):
    process = subprocess.Popen([sys.executable, "-S", "-c", code], stdout=subprocess.PIPE, text=True)
    return process, process.stdout.readline().strip()

def until(is_there):
    deadline = time.monotonic() + 30
    while not is_there():
        assert time.monotonic() < deadline
        time.sleep(0.01)

SLEEP = "import time; print('up', flush=True); time.sleep(600)"
STUBBORN = "import signal, time; signal.signal(15, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"
PARENT = '''
import os, subprocess, sys
child = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(%s)"], stdin=subprocess.DEVNULL)
print(child.pid, flush=True)
'''
"""


def run(code: str, *arguments: str) -> None:
    """Run some lines in a fresh interpreter; an assertion there is one here."""
    ended = subprocess.run(
        [sys.executable, "-c", f"{PRELUDE}\n{code}", *arguments],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr


def test_orphans_are_adopted_and_reaped() -> None:
    run("""
adopt_orphans()
parent, child = spawn(PARENT % "600")
parent.wait()
until(lambda: psutil.Process(int(child)).ppid() == os.getpid())
assert [process.pid for process in descendants()] == [int(child)]
os.kill(int(child), signal.SIGKILL)
until(lambda: psutil.Process(int(child)).status() == psutil.STATUS_ZOMBIE)
assert descendants() == []
reap(awaited=[int(child)])
assert psutil.pid_exists(int(child))
reap(awaited=())
assert not psutil.pid_exists(int(child))
reap(awaited=())
""")


def test_the_living_are_not_reaped_and_the_awaited_keep_their_code() -> None:
    run("""
alive, _ = spawn(SLEEP)
awaited, _ = spawn("import sys; print('up', flush=True); sys.exit(7)")
until(lambda: psutil.Process(awaited.pid).status() == psutil.STATUS_ZOMBIE)
reap(awaited=[awaited.pid])
assert awaited.wait() == 7
assert alive.poll() is None
alive.kill()
""")


def test_what_ignores_sigterm_is_killed() -> None:
    run("""
polite, _ = spawn(SLEEP)
stubborn, _ = spawn(STUBBORN)
signals = {}
true_send = psutil.Process.send_signal
def send(self, number):
    signals.setdefault(self.pid, []).append(number)
    true_send(self, number)
psutil.Process.send_signal = send
asyncio.run(end_all(descendants, grace_seconds=0.3, awaited=[polite.pid, stubborn.pid]))
assert descendants() == []
assert (polite.wait(), stubborn.wait()) == (-15, -9)
assert signals == {polite.pid: [15], stubborn.pid: [15, 9]}, signals
""")


def test_what_is_started_meanwhile_ends_too() -> None:
    run("""
adopt_orphans()
process, _ = spawn('''
import signal, subprocess, sys, time
def multiply(*_):
    subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(600)"])
    sys.exit(0)
signal.signal(15, multiply)
print("up", flush=True)
time.sleep(600)
''')
asyncio.run(end_all(descendants, grace_seconds=5.0))
assert psutil.Process().children(recursive=True) == []
""")


def test_nobody_else_is_touched(tmp_path: Path) -> None:
    stranger = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(600)"], cwd=tmp_path)
    try:
        run(
            """
mine, _ = spawn(SLEEP)
assert int(sys.argv[1]) not in [process.pid for process in descendants()]
asyncio.run(end_all(descendants, grace_seconds=5.0, awaited=[mine.pid]))
assert mine.wait() == -15
""",
            str(stranger.pid),
        )
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_rays_processes_are_all_but_the_drivers() -> None:
    run("""
from container.bootstrap.ray_node import RayNode
adopt_orphans()
command = [sys.executable, "-S", "-c", PARENT % "600" + "import time; time.sleep(600)"]
driver = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
child = int(driver.stdout.readline())
daemon, _ = spawn(SLEEP)
assert {process.pid for process in descendants()} == {driver.pid, child, daemon.pid}
node = RayNode(None, spared=lambda: {driver.pid})
asyncio.run(node.stop())
assert {process.pid for process in descendants()} == {driver.pid, child}
driver.kill()
driver.wait()
asyncio.run(end_all(descendants, grace_seconds=5.0))
""")


def test_a_start_of_ray_that_nobody_wants_any_more_is_ended() -> None:
    run("""
from container.bootstrap.ray_node import RayNode
class Settings:
    address = "127.0.0.1"
    environment = os.environ
    process_options = {}
    is_head = False
    def command(self):
        return [sys.executable, "-S", "-c", "import time; time.sleep(600)"]
async def main():
    node = RayNode(Settings())
    starting = asyncio.create_task(node.start(deadline=asyncio.get_running_loop().time() + 600))
    while not node.awaited_pids:
        await asyncio.sleep(0.01)
    assert len(descendants()) == 1
    starting.cancel()
    await asyncio.gather(starting, return_exceptions=True)
    assert starting.cancelled()
    assert (descendants(), node.awaited_pids, node.is_alive) == ([], set(), False)
asyncio.run(main())
""")


def test_a_start_of_ray_has_a_deadline() -> None:
    run("""
from container.bootstrap.errors import HostError
from container.bootstrap.ray_node import RayNode
class Settings:
    address = "127.0.0.1"
    environment = os.environ
    process_options = {}
    is_head = False
    def command(self):
        return [sys.executable, "-S", "-c", "import time; time.sleep(600)"]
async def main():
    loop = asyncio.get_running_loop()
    reasons = {0.2: "its start did not end within 0 s", -1: "no attempt was possible before the deadline"}
    for seconds, reason in reasons.items():
        try:
            await RayNode(Settings()).start(deadline=loop.time() + seconds)
        except HostError as error:
            assert (error.exit_code, error.reason) == (3, f"Ray did not start on 127.0.0.1: {reason}"), error
        else:
            raise AssertionError("it started")
        assert descendants() == []
asyncio.run(main())
""")
