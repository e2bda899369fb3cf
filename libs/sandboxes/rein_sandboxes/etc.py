"""The few files of /etc that programs in a sandbox look for. Nothing of the host's /etc is shown.

The account is `agent`, id 1000, whatever the id of the process outside.
"""

import shutil
import tempfile
from pathlib import Path

AGENT_UID = 1000
AGENT_HOME = "/home/agent"
HOST_NAME = "sandbox"

FILES = {
    "passwd": (
        f"root:x:0:0:root:/root:/usr/sbin/nologin\nagent:x:{AGENT_UID}:{AGENT_UID}:agent:{AGENT_HOME}:/bin/bash\n"
        "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
    ),
    "group": f"root:x:0:\nagent:x:{AGENT_UID}:\nnogroup:x:65534:\n",
    "hosts": f"127.0.0.1 localhost {HOST_NAME}\n",
    "hostname": f"{HOST_NAME}\n",
    "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
    "resolv.conf": "",
    "shells": "/bin/sh\n/bin/bash\n",
}


def write_etc(folder: Path) -> None:
    """Write (or overwrite) these files in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in FILES.items():
        place = folder / name
        if place.is_symlink():
            place.unlink()
        place.write_text(text)


def host_etc(home: Path) -> Path:
    """An /etc for the host's own /usr: these files, and what its libraries and commands are found by."""
    cache = Path("/etc/ld.so.cache")
    target = home / f"etc-host-{cache.stat().st_mtime_ns if cache.exists() else 0}"
    if target.is_dir():
        return target
    with tempfile.TemporaryDirectory(prefix=".etc-", dir=home) as scratch:
        made = Path(scratch, "etc")
        write_etc(made)
        if cache.exists():
            shutil.copyfile(cache, made / "ld.so.cache")
        (made / "alternatives").mkdir()
        for link in Path("/etc/alternatives").glob("*"):
            if link.is_symlink():
                (made / "alternatives" / link.name).symlink_to(link.readlink())
        try:
            made.rename(target)
        except OSError:
            if not target.is_dir():  # else another service has just made the same
                raise
    return target
