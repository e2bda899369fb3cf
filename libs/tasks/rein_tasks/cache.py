"""The packages of a task set on this machine: downloaded once, verified, unpacked once.

<cache>/archives/<file>                         source archives as published
<cache>/packages/<name>-<version>-<sha12>/
    source/                                     what becomes the agent's tree: no test, no test configuration
    tests/                                      what is laid over it for grading
A package folder appears by one rename after its archive's digest was verified, so it is whole or not there.
Nothing of an archive is executed here except what pip runs to read its metadata during the download.
"""

import hashlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath

from uv import find_uv_bin

from rein_tasks.errors import TaskSetBroken
from rein_tasks.model import Package

REMEDY = "run `python -m rein_tasks.build --manifest SET --cache CACHE`"
_TEST_FOLDERS = {"test", "tests", "testing"}
_TEST_FILE = re.compile(r"test_.*\.py|.*_tests?\.py|tests?\.py|conftest\.py|pytest\.ini|tox\.ini|setup\.cfg")


def package_folder(package: Package, *, cache: Path) -> Path:
    """The unpacked package; raises `TaskSetBroken` when the cache does not hold it."""
    folder = cache / "packages" / package.folder_name
    if not folder.is_dir():
        raise TaskSetBroken(
            f"{package.name} {package.version} is not unpacked", file=str(folder), field="package", remedy=REMEDY
        )
    return folder


def fill_cache(packages: Sequence[Package], *, cache: Path, build_backends: Sequence[str]) -> None:
    """Download what is missing, verify, unpack. A filled cache costs a few file look-ups."""
    missing = [package for package in packages if not (cache / "packages" / package.folder_name).is_dir()]
    to_download = [package for package in missing if not (cache / "archives" / package.archive).is_file()]
    if to_download:
        download(to_download, archives=cache / "archives", build_backends=build_backends)
    for package in missing:
        unpack(package, cache=cache)


def download(packages: Sequence[Package], *, archives: Path, build_backends: Sequence[str]) -> None:
    """Let pip fetch the source archives, hash-checked, in an environment that holds their build backends."""
    archives.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="rein-tasks-") as scratch:
        python = Path(scratch, "env", "bin", "python")
        wanted = Path(scratch, "wanted.txt")
        wanted.write_text("".join(f"{p.name}=={p.version} --hash=sha256:{p.sha256}\n" for p in packages))
        uv = find_uv_bin()
        _call([uv, "venv", "--quiet", "--python", sys.executable, str(python.parents[1])])
        _call([uv, "pip", "install", "--quiet", "--python", str(python), "pip", *build_backends])
        pip = [str(python), "-m", "pip", "download", "--quiet", "--no-deps", "--no-build-isolation"]
        _call([*pip, "--no-binary", ":all:", "--require-hashes", "--dest", str(archives), "--requirement", str(wanted)])


def unpack(package: Package, *, cache: Path) -> Path:
    """Verify an archive and lay out its source and tests."""
    archive = cache / "archives" / package.archive
    _verify(package, archive=archive)
    home = cache / "packages"
    home.mkdir(parents=True, exist_ok=True)
    target = home / package.folder_name
    with tempfile.TemporaryDirectory(prefix=".unpacking-", dir=home) as scratch, tarfile.open(archive) as tar:
        made = Path(scratch, package.folder_name)
        members = {_below_top(member.name): member for member in tar.getmembers() if member.isfile()}
        _lay_out(tar, members, layout=package.source, to=made / "source", with_tests=False)
        _lay_out(tar, members, layout=package.tests, to=made / "tests", with_tests=True)
        try:
            made.rename(target)
        except OSError:
            if not target.is_dir():  # else another process has just made the same
                raise
    return target


def _lay_out(
    tar: tarfile.TarFile,
    members: Mapping[str, tarfile.TarInfo],
    *,
    layout: Mapping[str, str],
    to: Path,
    with_tests: bool,
) -> None:
    for origin, target in layout.items():
        chosen = _chosen(members, origin=origin, target=target)
        if not chosen:
            raise TaskSetBroken(
                f"the archive has no {origin}",
                file=str(tar.name),
                field="tests" if with_tests else "source",
                remedy="correct the package's layout",
            )
        for name, path in chosen.items():
            if with_tests or not _is_test(path):
                _extract(tar, members[name], to=to / path)


def _verify(package: Package, *, archive: Path) -> None:
    subject = f"{package.name} {package.version}"
    if not archive.is_file():
        raise TaskSetBroken(f"the archive of {subject} is missing", file=str(archive), field="archive", remedy=REMEDY)
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    if digest != package.sha256:
        raise TaskSetBroken(
            f"{subject} should be {package.sha256} and is {digest}",
            file=str(archive),
            field="sha256",
            remedy=f"delete it and {REMEDY}",
        )


def _below_top(name: str) -> str:
    return str(PurePosixPath(*PurePosixPath(name).parts[1:]))


def _chosen(members: Iterable[str], *, origin: str, target: str) -> dict[str, str]:
    """Archive path -> tree path of one entry of a layout: a file, or all files of a folder."""
    start = PurePosixPath(origin)
    chosen = {}
    for name in members:
        path = PurePosixPath(name)
        if path == start or start in path.parents:
            chosen[name] = str(PurePosixPath(target) / path.relative_to(start))
    return chosen


def _is_test(path: str) -> bool:
    parts = PurePosixPath(path)
    return bool(_TEST_FILE.fullmatch(parts.name)) or any(part in _TEST_FOLDERS for part in parts.parts[:-1])


def _extract(tar: tarfile.TarFile, member: tarfile.TarInfo, *, to: Path) -> None:
    """Contents only: no links, owners, modes or times of the archive."""
    stream = tar.extractfile(member)
    if stream is None or ".." in to.parts:
        raise TaskSetBroken("is no plain file", file=member.name, field="archive", remedy="choose another package")
    to.parent.mkdir(parents=True, exist_ok=True)
    with stream, to.open("wb") as file:
        shutil.copyfileobj(stream, file)


def _call(argv: Sequence[str]) -> None:
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        raise TaskSetBroken(
            f"`{' '.join(argv[:4])} ...` failed: {(done.stderr or done.stdout).strip()[-800:]}",
            file="(download)",
            field="packages",
            remedy="check the network, the package index settings and the set's build_backends, then run it again",
        )
