"""A service's configuration: one frozen tree, read once from a TOML file and the environment.

The environment wins: `REIN_<SERVICE>__SECTION__FIELD`, e.g. `REIN_GATEWAY__KAFKA__SERVERS`. A key or variable nobody
knows is refused with its place and the nearest valid name. The only module of Rein that reads the environment.
"""

import difflib
import os
import socket
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

import tomlkit
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings, EnvSettingsSource, PydanticBaseSettingsSource, SettingsConfigDict

from rein_blobs.settings import BlobSettings
from rein_bus.settings import KafkaSettings
from rein_service.errors import ConfigRejected

NESTING = "__"

S = TypeVar("S", bound="Settings")
M = TypeVar("M", bound=BaseModel)


class AdminSettings(BaseModel):
    """Where the service answers gRPC: Admin, health, reflection and its own services."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    host: str = "127.0.0.1"
    """Address to listen on; 0.0.0.0 in a container."""

    port: int = 0
    """0 = any free port, logged at start."""


class Settings(BaseSettings):
    """A frozen tree of settings. Constructing one in code reads nothing from outside; `load_config` does."""

    model_config = SettingsConfigDict(
        frozen=True, extra="forbid", use_attribute_docstrings=True, protected_namespaces=()
    )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return (init_settings,)


class ServiceConfig(Settings):
    """What every service's configuration has; services add their own fields."""

    kafka: KafkaSettings = KafkaSettings()
    """The bus."""

    blobs: BlobSettings = BlobSettings()
    """The blob store."""

    admin: AdminSettings = AdminSettings()
    """The gRPC port."""

    metrics_port: int = 0
    """Prometheus port on `admin.host`; 0 = none."""

    drain_s: float = 30.0
    """How long work in hand may take after a stop was asked for, seconds; overrun = exit status 1."""

    instance: str = Field(default_factory=lambda: f"{socket.gethostname()}-{os.getpid()}")
    """Name of this process among its like; default: host name and process id."""

    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Least severe level that is written."""

    log_format: Literal["json", "plain"] = "json"
    """JSON lines for machines, plain lines for a terminal."""


def load_config(config_class: type[S], *, service: str, file: Path | None) -> S:
    """File, then environment on top. Raises ConfigRejected with one line."""
    prefix = f"REIN_{service.upper()}{NESTING}"
    from_env = _from_environment(config_class, prefix=prefix)
    values = _merged(_read(file) if file else {}, from_env)
    try:
        return config_class(**values)
    except ValidationError as error:
        place = _place(_first_of(error), from_env=from_env, file=file, prefix=prefix)
        raise ConfigRejected(_explain(error, model=config_class, place=place)) from error


def load_file(model: type[M], *, file: Path) -> M:
    """A TOML file that is no service's configuration, with the same errors. Raises ConfigRejected with one line."""
    try:
        return model.model_validate(_read(file))
    except ValidationError as error:
        raise ConfigRejected(_explain(error, model=model, place=str(file))) from error


def redacted_toml(config: BaseModel) -> str:
    """The whole configuration as TOML, secrets as stars, unset values left out."""
    return tomlkit.dumps(config.model_dump(mode="json", exclude_none=True))


def nearest(word: str, *, among: Iterable[str]) -> str:
    """ ", did you mean 'x'?" for the closest name, else the names there are: the tail of every misspelling's error."""
    names = sorted(among)
    close = difflib.get_close_matches(word, names, n=1, cutoff=0.6)
    return f"; did you mean {close[0]!r}?" if close else f"; valid: {', '.join(names)}"


def _read(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text())
    except OSError as error:
        raise ConfigRejected(f"cannot read {file}: {error.strerror}; name an existing file") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigRejected(f"{file} is not TOML: {error}; correct the file") from error


def _from_environment(config_class: type[BaseSettings], *, prefix: str) -> dict[str, Any]:
    for variable in os.environ:
        if variable.startswith(prefix):
            field = variable.removeprefix(prefix).split(NESTING)[0].lower()
            if field not in config_class.model_fields:
                hint = nearest(field, among=config_class.model_fields)
                raise ConfigRejected(f"unknown key {field!r} in the environment variable {variable}{hint}")
    return EnvSettingsSource(config_class, env_prefix=prefix, env_nested_delimiter=NESTING)()


def _merged(low: Mapping[str, Any], high: Mapping[str, Any]) -> dict[str, Any]:
    both = dict(low)
    for key, value in high.items():
        below = both.get(key)
        both[key] = _merged(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
    return both


def _place(error: ErrorDetails, *, from_env: Mapping[str, Any], file: Path | None, prefix: str) -> str:
    value: Any = from_env
    for part in error["loc"]:
        if not isinstance(value, Mapping) or part not in value:
            return str(file) if file else "the configuration (no --config file was given)"
        value = value[part]
    return f"the environment variable {prefix}{NESTING.join(map(str, error['loc'])).upper()}"


def _first_of(error: ValidationError) -> ErrorDetails:
    """The error to show. A misspelt key is also a missing one: the misspelling explains both."""
    return min(error.errors(), key=lambda each: each["type"] != "extra_forbidden")


def _explain(error: ValidationError, *, model: type[BaseModel], place: str) -> str:
    first = _first_of(error)
    more = f" ({error.error_count() - 1} more after this)" if error.error_count() > 1 else ""
    *section, word = map(str, first["loc"]) if first["loc"] else ("",)
    key = ".".join([*section, word])
    holder = _model_at(model, section)
    if first["type"] == "extra_forbidden":
        return f"unknown key {key!r} in {place}{nearest(word, among=holder.model_fields)}{more}"
    if first["type"] == "missing":
        return f"key {key!r} is missing in {place}; set it{_meaning(holder, word)}{more}"
    shown = "" if isinstance(first["input"], Mapping) else f" is {first['input']!r}:"
    return f"key {key!r} in {place}{shown} {first['msg'].lower()}; correct it{_meaning(holder, word)}{more}"


def _model_at(model: type[BaseModel], section: list[str]) -> type[BaseModel]:
    """The model whose keys stand at `section`; sections inside a container or union are looked into too."""
    for name in section:
        annotation = model.model_fields[name].annotation if name in model.model_fields else None
        model = next((t for t in _types_in(annotation) if isinstance(t, type) and issubclass(t, BaseModel)), model)
    return model


def _types_in(annotation: Any) -> list[Any]:
    return [annotation, *(inner for argument in get_args(annotation) for inner in _types_in(argument))]


def _meaning(model: type[BaseModel], word: str) -> str:
    """What the key is for, from its docstring."""
    field = model.model_fields.get(word)
    return f" ({' '.join(field.description.split())})" if field and field.description else ""
