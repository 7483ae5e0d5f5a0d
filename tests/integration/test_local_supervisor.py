"""The supervisor: order, restarts, crash loops, and an end that leaves no process behind."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.local.folders import prepare_home
from infra.local.processes import is_alive, spawn
from tests.integration.test_local_postgres import ROOT, wait_until

# Each service writes its number to a file and lives on; what it does besides stands in its script.
SUPERVISE = """
import json, sys
from pathlib import Path
from infra.local import supervisor as module
from infra.local.folders import prepare_home
from infra.local.supervisor import Service, Stopped, Supervisor
home, plan = Path(sys.argv[1]), json.loads(sys.argv[2])
module.FIRST_RESTART = 0.01
def say(text):
    print(text, flush=True)
prepare_home(home)
supervisor = Supervisor(home, say, verbose=plan.get("verbose", False))
with supervisor.signals():
    try:
        services = [
            Service(name=name, argv=[sys.executable, "-c", script, str(home), name], environment={},
                    tier=plan.get("tiers", {}).get(name, 0),
                    ready=(home / f"{name}.ready").exists, stop_seconds=plan.get("stop", {}).get(name, 60.0))
            for name, script in plan["services"].items()
        ]
        supervisor.start(*services)
        say("ready")
        supervisor.run()
    except Stopped:
        say("stopped while starting")
    finally:
        supervisor.stop()
say("end")
"""

LIVE = """
import os, signal, sys, time
home, name = sys.argv[1:]
def end(number, frame):
    with open(home + "/order", "a") as order:
        order.write(name + "\\n")
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
with open(f"{home}/{name}.pids", "a") as pids:
    pids.write(f"{os.getpid()}\\n")
print(name, "says hello", flush=True)
open(f"{home}/{name}.ready", "w").close()
while True:
    time.sleep(600)
"""

# It says that it was asked to end, and lives on.
STUBBORN = LIVE.replace("    sys.exit(0)\n", "").replace('"/order"', '"/asked"')

WITH_CHILD = "import subprocess, sys; subprocess.Popen(['sleep', '600'])\n" + LIVE


def _supervise(home: Path, services: dict[str, str], **options: object) -> subprocess.Popen[str]:
    prepare_home(home)
    return subprocess.Popen(
        [sys.executable, "-c", SUPERVISE, home, json.dumps({"services": services, **options})],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE if options.get("verbose") else None,
        text=True,
        cwd=ROOT,
    )


@contextlib.contextmanager
def supervised(home: Path, services: dict[str, str], **options: object) -> Iterator[subprocess.Popen[str]]:
    process = _supervise(home, services, **options)
    try:
        _expect(process, "ready")
        yield process
    finally:
        process.kill()
        process.communicate()


def _expect(process: subprocess.Popen[str], text: str) -> str:
    assert process.stdout is not None
    seen = ""
    while text not in seen:
        line = process.stdout.readline()
        assert line, f"it ended after: {seen}"
        seen += line
    return seen


def _pids(home: Path, name: str) -> list[int]:
    return [int(line) for line in (home / f"{name}.pids").read_text().split()]


def _state(home: Path) -> dict[str, dict[str, object]]:
    found: dict[str, dict[str, object]] = json.loads((home / "run" / "state.json").read_text())["services"]
    return found


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_one_stop_signal_ends_everything_what_others_depend_on_last(home: Path, number: int) -> None:
    with supervised(home, {"first": LIVE, "second": LIVE, "third": LIVE}, tiers={"second": 1, "third": 2}) as process:
        process.send_signal(number)
        assert "end" in process.communicate(timeout=30)[0]
    assert process.returncode == 0
    assert (home / "order").read_text().split() == ["third", "second", "first"]
    assert not any(is_alive(pid) for name in ("first", "second", "third") for pid in _pids(home, name))
    assert not (home / "run" / "state.json").exists()


def test_no_service_outlives_a_supervisor_that_is_killed(home: Path) -> None:
    with supervised(home, {"first": LIVE, "second": LIVE}) as process:
        process.kill()
        process.wait()
        wait_until(lambda: not any(is_alive(pid) for name in ("first", "second") for pid in _pids(home, name)))


def test_a_service_that_steps_back_leaves_the_processors_to_the_others(tmp_path: Path) -> None:
    said = tmp_path / "said"
    with said.open("wb") as output:
        look = """if True:
            import os, pathlib
            session = pathlib.Path("/proc/self/autogroup")
            print(os.nice(0), session.read_text().split()[-1] if session.exists() else 7)
        """
        process = spawn([sys.executable, "-c", look], output=output, environment={}, nice=7)
        assert process.wait(30) == 0
    assert said.read_text().split() == ["7", "7"]


def test_a_service_that_crashes_is_started_again_and_the_others_never_notice(home: Path) -> None:
    with supervised(home, {"first": LIVE, "second": LIVE}) as process:
        os.kill(_pids(home, "second")[0], signal.SIGKILL)
        assert "second stopped (signal SIGKILL); it is started again" in _expect(process, "started again")
        wait_until(lambda: len(_pids(home, "second")) == 2)
        wait_until(lambda: _state(home)["second"]["restarts"] == 1)
        assert len(_pids(home, "first")) == 1
        assert _state(home)["first"]["restarts"] == 0


def test_a_crash_loop_is_reported_once_with_its_last_words_and_stays_visible(home: Path) -> None:
    with supervised(home, {"steady": LIVE, "shaky": LIVE + "\n"}) as process:
        for count in range(1, 6):
            wait_until(lambda count=count: len(_pids(home, "shaky")) == count)  # type: ignore[misc]
            os.kill(_pids(home, "shaky")[-1], signal.SIGKILL)
        said = _expect(process, "shaky says hello")
        assert "shaky stopped 5 times within 60 s (signal SIGKILL)" in said
        wait_until(lambda: _state(home)["shaky"]["state"] == "failing")
        assert _state(home)["steady"]["state"] == "running"
        assert is_alive(_pids(home, "steady")[0])


def test_a_service_that_cannot_start_ends_the_start_with_its_last_words(home: Path) -> None:
    broken = """if True:
        import pathlib, sys, time
        while not pathlib.Path(sys.argv[1], "first.ready").exists():
            time.sleep(0.01)
        print("the key is missing", flush=True)
        sys.exit(7)
    """
    process = _supervise(home, {"first": LIVE, "broken": broken})
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "ready" not in said
    assert not is_alive(_pids(home, "first")[0])
    assert "the key is missing" in (home / "logs" / "broken.log").read_text()


def test_nothing_is_ready_while_a_service_dies_again_and_again_though_it_was_up_each_time(home: Path) -> None:
    dies = LIVE.replace("time.sleep(600)", "raise SystemExit('no ledger')")
    never_ready = LIVE.replace(".ready", ".never")
    process = _supervise(home, {"shaky": dies, "slow": never_ready})
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "ready" not in said.split()
    assert len(_pids(home, "shaky")) == 3


def test_a_stop_signal_during_the_start_is_obeyed(home: Path) -> None:
    never_ready = LIVE.replace(".ready", ".never")
    process = _supervise(home, {"first": LIVE, "slow": never_ready})
    wait_until(lambda: (home / "slow.never").exists() and (home / "first.ready").exists())
    process.send_signal(signal.SIGINT)
    assert "stopped while starting" in process.communicate(timeout=30)[0]
    assert not any(is_alive(pid) for name in ("first", "slow") for pid in _pids(home, name))


def test_a_service_that_ignores_the_stop_is_ended_when_its_time_is_over(home: Path) -> None:
    with supervised(home, {"first": LIVE, "stubborn": STUBBORN}, stop={"stubborn": 0.3}) as process:
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=30)[0]
    assert "stubborn did not stop" in said
    assert not is_alive(_pids(home, "stubborn")[0])
    assert (home / "order").read_text().split() == ["first"]


def test_a_second_stop_signal_ends_everything_at_once(home: Path) -> None:
    with supervised(home, {"stubborn": STUBBORN}, stop={"stubborn": 600.0}) as process:
        process.send_signal(signal.SIGINT)
        wait_until((home / "asked").exists)  # two signals at the same moment are one
        process.send_signal(signal.SIGINT)
        assert "Ended at once" in process.communicate(timeout=60)[0]
    assert not is_alive(_pids(home, "stubborn")[0])


def test_what_a_crashed_service_left_in_its_group_goes_with_it(home: Path) -> None:
    with supervised(home, {"parent": WITH_CHILD}):
        first = _pids(home, "parent")[0]
        children = subprocess.run(["ps", "-o", "pid=", "--ppid", str(first)], capture_output=True, text=True, check=True)
        child = int(children.stdout.split()[0])
        os.kill(first, signal.SIGKILL)
        wait_until(lambda: not is_alive(child))


def test_verbose_shows_the_logs_under_the_services_names(home: Path) -> None:
    process = _supervise(home, {"talker": LIVE}, verbose=True)
    _expect(process, "ready")
    assert process.stderr is not None
    assert process.stderr.readline() == "   talker | talker says hello\n"
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)
