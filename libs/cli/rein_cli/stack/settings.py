"""The files of a stack: `stack.toml` says what it is, one file per service process what that process gets.

Files are for this user only: the key that signs grants and the cluster's password stand in them.
"""

import secrets
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import tomlkit
from pydantic import BaseModel, ConfigDict, SecretStr

from rein_bus.settings import KafkaSettings
from rein_cli.checks import longest_context_tokens
from rein_cli.errors import CannotDo
from rein_cli.stack.home import Home
from rein_cli.stack.plan import MAX_NODES, SERVICES, Plan, Ports
from rein_cli.stack.services import settings_of
from rein_service.config import load_file, nearest

Values = dict[str, Any]

#: A longer context than this has to be asked for (`--set inference.engine.max_context_tokens=N`): it costs memory.
MOST_CONTEXT_TOKENS = 8192


class StackFile(BaseModel):
    """What `rein up` was asked for."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    model: Path
    """The policy's folder."""

    nodes: int = 1
    """Inference nodes."""

    port_offset: int = 0
    """Shifts every port."""

    installed: Path = Path("var")
    """Where `make setup` put Kafka, harnesses and the sandboxes' base root."""

    kafka: KafkaSettings | None = None
    """An existing cluster; unset = a broker of the stack's own."""


def read_plan(home: Home) -> Plan:
    """The plan `stack.toml` describes. Raises ConfigRejected, CannotDo."""
    stack = load_file(StackFile, file=home.config("stack"))
    if not 1 <= stack.nodes <= MAX_NODES:
        raise CannotDo("up.nodes", f"nodes is {stack.nodes} in {home.config('stack')}; it must be 1 to {MAX_NODES}")
    ports = Ports(stack.port_offset)
    own = KafkaSettings(servers=f"127.0.0.1:{ports.broker}")
    return Plan(
        home=home,
        kafka=stack.kafka or own,
        owns_broker=stack.kafka is None,
        model=stack.model.resolve(),
        installed=stack.installed.resolve(),
        context_tokens=min(MOST_CONTEXT_TOKENS, longest_context_tokens(stack.model) or MOST_CONTEXT_TOKENS),
        num_nodes=stack.nodes,
        ports=ports,
    )


def write_configs(stack: StackFile, *, home: Home, overrides: Iterable[str] = ()) -> None:
    """Write every file anew. `overrides` are `service.key[.key]=value`, the value as in TOML."""
    wanted = [_override(text) for text in overrides]
    home.make()
    _write(home, "stack", plain(stack))
    plan = read_plan(home)
    secret = secrets.token_hex(32)
    for part in plan.parts():
        values = settings_of(plan, part, kafka=plain(plan.kafka), grant_secret=secret)
        for service, keys, value in wanted:
            if service == part.service:
                _set(values, keys, value)
        _write(home, part.name, values)
    _write(home, "cli", _cli(plan))


def plain(model: BaseModel) -> Values:
    """Values of a settings tree as TOML can hold them, secrets in the open, unset ones left out."""
    return {name: _plain(value) for name in type(model).model_fields if (value := getattr(model, name)) is not None}


def _plain(value: object) -> object:
    if isinstance(value, BaseModel):
        return plain(value)
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    return str(value) if isinstance(value, Path) else value


def _cli(plan: Plan) -> Values:
    return {
        "kafka": plain(plan.kafka),
        "blobs": {"url": str(plan.home.blobs)},
        "dispatcher": f"127.0.0.1:{plan.ports.admin('dispatcher')}",
        "page": f"http://127.0.0.1:{plan.ports.page}/",
        "services": {part.name: plan.admin_address(part) for part in plan.parts()},
    }


def _write(home: Home, name: str, values: Mapping[str, Any]) -> None:
    file = home.config(name)
    file.touch(mode=0o600)
    file.write_text(tomlkit.dumps(values))


def _override(text: str) -> tuple[str, list[str], Any]:
    path, _, value = text.partition("=")
    service, *keys = path.split(".")
    if not keys or service not in SERVICES:
        hint = nearest(service, among=SERVICES)
        raise CannotDo("up.bad_setting", f"--set {text!r} is not SERVICE.KEY=VALUE with a known service{hint}")
    try:
        return service, keys, tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return service, keys, value


def _set(values: Values, keys: list[str], value: Any) -> None:
    *sections, last = keys
    for section in sections:
        values = values.setdefault(section, {})
    values[last] = value
