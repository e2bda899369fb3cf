"""What an agent may try from inside, and that it comes to nothing. Every test runs a real sandbox."""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from rein_sandboxes.ports import Ending, SandboxResult

pytestmark = pytest.mark.sandbox

Run = Callable[..., Awaitable[SandboxResult]]


@pytest.mark.parametrize(
    "attempt",
    [
        "python3 -c 'import socket; socket.create_connection((\"10.0.0.1\", 80), 2)'",
        "python3 -c 'import socket; socket.create_connection((\"127.0.0.1\", 22), 2)'",
        "python3 -c 'import socket; socket.getaddrinfo(\"example.org\", 80)'",
        "python3 -c 'import socket; socket.socket(socket.AF_PACKET, socket.SOCK_RAW)'",
        "mount -o remount,rw /usr",
        "mount -t tmpfs none /opt",
        "mount --bind /tmp /usr/bin",
        "umount /proc",
        "touch /usr/bin/mine",
        "touch /etc/mine",
        "touch /mine",
        "touch /opt/mine",
        "echo core > /proc/sys/kernel/core_pattern",
        "echo 1 > /proc/sys/vm/overcommit_memory",
        "echo b > /proc/sysrq-trigger",
        "unshare --user true",
        "unshare --mount true",
        "unshare --net true",
        "chroot /tmp /bin/true",
        "mknod /tmp/disk b 254 0",
        "kill -0 2000000",
        "nsenter --target 1 --mount true",
        "ls /root",
        "ls /var/lib",
        "ls /sys",
        "test -e /dev/vda",
        "test -s /proc/kcore",
        "dmesg",
        "su -c true",
    ],
)
async def test_an_attempt_fails(run: Run, attempt: str) -> None:
    result = await run(f"({attempt}) 2>&1")
    assert result.ending is Ending.EXITED
    assert result.exit_status != 0, result.output.decode()


async def test_no_process_of_the_host_is_visible(run: Run) -> None:
    result = await run("ls -d /proc/[0-9]*")
    assert len(result.output.split()) <= 4


async def test_no_path_of_the_host_is_visible(run: Run, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    result = await run(f"cat {tmp_path}/secret; ls {Path.home()} {Path(__file__).parent}")
    assert b"No such file" in result.output
    assert b"secret\n" not in result.output.replace(b"/secret", b"")


async def test_the_environment_of_the_host_does_not_enter(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REIN_RUNNER__GRANT_SECRET", "s3cret")
    result = await run("env; cat /proc/*/environ", env={"GIVEN": "1"})
    names = {line.partition(b"=")[0] for line in result.output.replace(b"\0", b"\n").splitlines() if b"=" in line}
    assert names <= {b"HOME", b"PATH", b"LANG", b"USER", b"TMPDIR", b"PWD", b"GIVEN", b"OLDPWD", b"SHLVL", b"_"}
    assert b"s3cret" not in result.output


async def test_an_open_file_of_the_host_does_not_enter(run: Run, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    with (tmp_path / "secret").open() as file:
        os.set_inheritable(file.fileno(), True)
        result = await run(f"cat <&{file.fileno()}; ls /proc/self/fd")
    assert b"secret" not in result.output


async def test_a_signal_reaches_nothing_outside(run: Run) -> None:
    bystander = await asyncio.create_subprocess_exec("sleep", "60")
    await run("kill -9 -1")
    assert bystander.returncode is None
    bystander.kill()
    assert await bystander.wait() == -signal.SIGKILL


async def test_a_link_out_of_the_workspace_leads_nowhere(run: Run, tmp_path: Path) -> None:
    (tmp_path / "outside").write_text("content")
    result = await run(f"ln -s {tmp_path}/outside link && cat link; ln -s ../outside near && cat near")
    assert b"content" not in result.output
    assert result.exit_status != 0


async def test_files_given_are_read_only(run: Run) -> None:
    result = await run("cat ~/.given; echo x >> ~/.given", files={"/home/agent/.given": b"hello\n"})
    assert result.output.startswith(b"hello\n")
    assert result.exit_status != 0
