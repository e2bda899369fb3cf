"""From a `SandboxSpec` to bubblewrap's arguments. Pure; every wall of the sandbox is a line here.

What is visible: /usr and /etc of the base, own /proc with the kernel's settings read-only, a /dev of harmless devices,
/tmp and the home in memory, the spec's mounts and files. Nothing else of the host, no network device but `lo`, no
capability, no way to a new user namespace. `inside_check.sh` proves it from inside before the command starts.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from rein_sandboxes.etc import AGENT_HOME, AGENT_UID, HOST_NAME
from rein_sandboxes.ports import WORKSPACE, SandboxSpec

INIT = PurePosixPath("/opt/rein/init")
CHECK_FILE = Path(__file__).with_name("inside_check.sh")
CHECK_PASSED = b"rein-check ok\n"

_BASE_ENV = {
    "HOME": AGENT_HOME,
    "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
    "LANG": "C.UTF-8",
    "USER": "agent",
    "TMPDIR": "/tmp",
}
#: Files of /proc that a process with the host's root id could write to, or learn about the host from.
_PROC_READ_ONLY = ("sys", "sysrq-trigger", "mtrr", "pressure", "fs")
_PROC_HIDDEN = ("kcore", "keys", "timer_list", "acpi", "scsi")
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")


@dataclass(frozen=True, slots=True)
class Base:
    """The folders shown as /usr and /etc."""

    usr: Path
    etc: Path


def bwrap_arguments(spec: SandboxSpec, *, base: Base, files: Mapping[str, Path]) -> list[str]:
    """Everything after `bwrap` and its file descriptors. `files` maps paths inside to prepared host files."""
    env = environment(spec)
    writable = ":".join(writable_points(spec))
    command = ["/bin/bash", "-p", str(INIT), writable, ":".join([*env, "PWD"]), *spec.argv]
    return [
        *_namespaces(),
        *_environment(env),
        *_system(base),
        *_kernel(spec),
        *_mounts(spec, files=files),
        "--",
        *command,
    ]


def environment(spec: SandboxSpec) -> dict[str, str]:
    """The whole environment inside. Raises ValueError for what an environment cannot hold."""
    env = {**_BASE_ENV, **spec.env}
    for name, value in env.items():
        if not name.isidentifier() or not name.isascii() or "\0" in value or "\n" in value:
            raise ValueError(f"{name!r} is no environment variable of one line")
    return env


def writable_points(spec: SandboxSpec) -> list[str]:
    """Mount points that may be writable."""
    devices = [f"/dev/{name}" for name in (*_DEVICES, "pts", "shm", "console")]
    return ["/proc", "/tmp", AGENT_HOME, *devices, *(str(mount.inside) for mount in spec.mounts if mount.is_writable)]


def _namespaces() -> Iterable[str]:
    yield from ("--unshare-all", "--unshare-user", "--disable-userns", "--assert-userns-disabled", "--cap-drop", "ALL")
    yield from ("--uid", str(AGENT_UID), "--gid", str(AGENT_UID), "--hostname", HOST_NAME)
    yield from ("--die-with-parent", "--new-session", "--as-pid-1")


def _environment(env: Mapping[str, str]) -> Iterable[str]:
    yield "--clearenv"
    for name, value in env.items():
        yield from ("--setenv", name, value)


def _system(base: Base) -> Iterable[str]:
    yield from ("--ro-bind", str(base.usr), "/usr", "--ro-bind", str(base.etc), "/etc")
    for name in ("bin", "sbin", "lib", "lib64", "lib32"):
        if (base.usr / name).exists():
            yield from ("--symlink", f"usr/{name}", f"/{name}")
    yield from ("--dir", "/var/tmp", "--dir", "/run", "--dir", "/opt")
    yield from ("--ro-bind", str(CHECK_FILE), str(INIT))


def _kernel(spec: SandboxSpec) -> Iterable[str]:
    size = str(spec.limits.file_bytes)
    yield from ("--proc", "/proc")
    for name in _PROC_READ_ONLY:
        yield from ("--ro-bind-try", f"/proc/{name}", f"/proc/{name}")
    for name in _PROC_HIDDEN:
        place = Path("/proc", name)
        if place.is_dir():
            yield from ("--tmpfs", str(place), "--remount-ro", str(place))
        elif place.exists():
            yield from ("--ro-bind", "/dev/null", str(place))
    yield from ("--dev", "/dev", "--size", size, "--tmpfs", "/dev/shm", "--remount-ro", "/dev")
    yield from ("--size", size, "--tmpfs", "/tmp", "--size", size, "--tmpfs", AGENT_HOME)


def _mounts(spec: SandboxSpec, *, files: Mapping[str, Path]) -> Iterable[str]:
    for mount in spec.mounts:
        yield from ("--bind" if mount.is_writable else "--ro-bind", str(mount.host), str(mount.inside))
    for inside, host in files.items():
        yield from ("--ro-bind", str(host), inside)
    if any(mount.inside == WORKSPACE for mount in spec.mounts):
        yield from ("--chdir", str(WORKSPACE))
    else:
        yield from ("--chdir", "/tmp")
    yield from ("--remount-ro", "/")
