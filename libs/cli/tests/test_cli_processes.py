"""Processes of a stack: recorded, stopped with all they left behind, never mistaken for another."""

import sys
from pathlib import Path

import psutil
import pytest

from rein_cli.stack.home import Home
from rein_cli.stack.processes import Recorded, error_line, record, recorded, start, stop
from rein_cli.stack.teardown import take_down

FOR_EVER = "import signal; signal.pause()"
DEAF = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); signal.pause()"


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path)
    home.make()
    return home


def test_a_process_is_stopped_and_its_record_dropped(home: Home) -> None:
    process = start(home, "gateway", order=1, command=[sys.executable, "-c", FOR_EVER])
    (entry,) = recorded(home)
    assert entry.pid == process.pid
    assert stop(home, entry, patience_s=10)
    process.wait(5)
    assert not psutil.pid_exists(process.pid)
    assert recorded(home) == []


def test_a_deaf_process_and_its_children_are_killed(home: Home) -> None:
    code = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {DEAF!r}])\n{DEAF}"
    process = start(home, "runner", order=1, command=[sys.executable, "-c", code])
    while home.log("runner").read_text().count("deaf") < 2:
        assert process.poll() is None
    family = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
    assert len(family) == 2
    (entry,) = recorded(home)
    assert not stop(home, entry, patience_s=0.1)
    process.wait(5)
    assert not [member for member in family if member.is_running() and member.status() != psutil.STATUS_ZOMBIE]


def test_a_number_that_belongs_to_another_process_by_now_is_left_alone(home: Home) -> None:
    me = psutil.Process()
    record(home, Recorded("gateway", order=0, pid=me.pid, created_s=me.create_time() - 100))
    assert take_down(home, said=print) == {}
    assert recorded(home) == []
    assert me.is_running()


def test_the_stack_goes_down_in_reverse_order(home: Home) -> None:
    names = ["weightserver", "gateway", "dispatcher"]
    processes = [
        start(home, name, order=order, command=[sys.executable, "-c", FOR_EVER]) for order, name in enumerate(names)
    ]
    assert list(take_down(home, said=print)) == names[::-1]
    for process in processes:
        process.wait(5)


def test_the_error_line_is_what_the_service_said_of_itself(home: Home) -> None:
    home.log("gateway").write_text('{"event": "x"}\nrein-gateway: key is missing\n{"event": "service.stopped"}\n')
    assert error_line(home.log("gateway"), service="gateway") == "rein-gateway: key is missing"
    assert error_line(home.log("nobody"), service="nobody") == "(its log is empty)"
