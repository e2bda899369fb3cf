"""Generate `rein.v1` (messages, type stubs, gRPC) from `protos/` into a folder; `make protos` calls it.

Usage: python deploy/protos.py [OUT]   (default: libs/contracts). Output is deterministic; a test compares it with what
is committed.
"""

import sys
from importlib.resources import files
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).resolve().parent.parent

#: Beside the interpreter, which need not be on PATH.
PLUGINS = ("protoc-gen-mypy", "protoc-gen-mypy_grpc")


def generate(out: Path) -> None:
    """Write `rein/v1/*_pb2.py`, `*_pb2.pyi`, `*_pb2_grpc.py(i)` under `out`. Raises SystemExit on a bad .proto."""
    sources = sorted(path for path in (ROOT / "protos").rglob("*.proto"))
    status = protoc.main(
        [
            "protoc",
            f"-I{ROOT / 'protos'}",
            f"-I{files('grpc_tools') / '_proto'}",
            f"--python_out={out}",
            f"--grpc_python_out={out}",
            *(f"--plugin={name}={Path(sys.executable).with_name(name)}" for name in PLUGINS),
            f"--mypy_out=quiet:{out}",
            f"--mypy_grpc_out=quiet:{out}",
            *map(str, sources),
        ]
    )
    if status != 0:
        raise SystemExit(f"protoc failed with status {status}: see the lines above")
    (out / "rein" / "py.typed").touch()


if __name__ == "__main__":
    generate(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "libs" / "contracts")
