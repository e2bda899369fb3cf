"""Finding harnesses: those shipped here, and a folder of one's own beside them (which wins)."""

import tomllib
from pathlib import Path

from pydantic import ValidationError

from rein_harnesses.errors import HarnessBroken, HarnessUnknown
from rein_harnesses.model import Harness

SHIPPED = Path(__file__).with_name("data")
FILE = "harness.toml"


def harness_names(*, own: Path | None = None) -> tuple[str, ...]:
    """All names, sorted. `own` is a folder with a folder per harness."""
    found = {file.parent.name for place in _places(own) for file in place.glob(f"*/{FILE}")}
    return tuple(sorted(found))


def load_harness(name: str, *, own: Path | None = None) -> Harness:
    """Raises HarnessUnknown, HarnessBroken."""
    for place in _places(own):
        if name in harness_names(own=own) and (place / name / FILE).is_file():
            return _read(place / name / FILE)
    where = f"{own or 'a folder named by the setting `harnesses`'}/{name}/{FILE}"
    raise HarnessUnknown(
        f"there is no harness {name!r}; known: {', '.join(harness_names(own=own))}; one's own goes to {where}"
    )


def _places(own: Path | None) -> tuple[Path, ...]:
    return (own, SHIPPED) if own else (SHIPPED,)


def _read(file: Path) -> Harness:
    try:
        body = tomllib.loads(file.read_text(encoding="utf-8"))
        harness = Harness.model_validate({**body, "name": file.parent.name, "folder": file.parent})
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise HarnessBroken(f"{file} is not TOML: {error}; correct the file") from error
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        raise HarnessBroken(f"{file}: key {key!r}: {first['msg'].lower()}; correct it") from error
    mentioned = [*harness.files.values(), *(harness.install.copies if harness.install else ())]
    if missing := [name for name in mentioned if not (file.parent / name).is_file()]:
        raise HarnessBroken(f"{file} mentions {missing[0]!r}, which is not beside it")
    return harness
