"""Every configuration loads: each service's own defaults, and every file `rein up` writes."""

import importlib
from pathlib import Path

import pytest

from rein_bus.settings import KafkaSettings
from rein_cli.config import load as load_cli
from rein_cli.stack.home import Home
from rein_cli.stack.plan import SERVICES
from rein_cli.stack.settings import StackFile, read_plan, write_configs
from rein_service import ServiceConfig
from rein_service.config import load_config


def config_class(service: str) -> type[ServiceConfig]:
    """The one configuration class a service's config.py defines."""
    module = importlib.import_module(f"rein_{service}.config")
    (found,) = [
        each
        for each in vars(module).values()
        if isinstance(each, type) and issubclass(each, ServiceConfig) and each.__module__ == module.__name__
    ]
    return found


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """A stack of two nodes on somebody else's cluster, with a password and a setting of the user's own."""
    home = Home(tmp_path)
    kafka = KafkaSettings.model_validate({"servers": "kafka:9093", "sasl_password": "hush"})
    stack = StackFile(model=tmp_path / "model", nodes=2, port_offset=7, kafka=kafka)
    write_configs(stack, home=home, overrides=["runner.capacity=3", "gateway.kafka.prefix=mine"])
    return home


def test_every_file_of_a_stack_loads_as_its_service_reads_it(home: Home) -> None:
    for part in read_plan(home).parts():
        config = load_config(config_class(part.service), service=part.service, file=home.config(part.name))
        assert config.kafka.servers == "kafka:9093"
        assert config.kafka.sasl_password is not None
        assert config.kafka.sasl_password.get_secret_value() == "hush"
        assert config.admin.port == read_plan(home).ports.admin(part.service, node=part.node)


def test_a_users_own_settings_reach_the_service_they_name(home: Home) -> None:
    runner = load_config(config_class("runner"), service="runner", file=home.config("runner"))
    gateway = load_config(config_class("gateway"), service="gateway", file=home.config("gateway"))
    assert getattr(runner, "capacity") == 3  # noqa: B009 - the class is found at run time
    assert (gateway.kafka.prefix, runner.kafka.prefix) == ("mine", "rein")


def test_runner_and_gateway_share_the_secret_and_nobody_else_may_read_it(home: Home) -> None:
    secrets = {
        service: load_config(config_class(service), service=service, file=home.config(service)).model_dump()[
            "grant_secret"
        ]
        for service in ("runner", "gateway")
    }
    assert secrets["runner"].get_secret_value() == secrets["gateway"].get_secret_value() != ""
    assert {home.config(name).stat().st_mode & 0o077 for name in ("runner", "gateway")} == {0}


def test_the_commands_find_the_stack_by_its_home(home: Home) -> None:
    config = load_cli(home.path)
    assert config.dispatcher == "127.0.0.1:9728"
    assert set(config.services) == {part.name for part in read_plan(home).parts()}


@pytest.mark.parametrize("service", SERVICES)
def test_every_key_of_a_service_says_what_it_is(service: str) -> None:
    silent = [name for name, field in config_class(service).model_fields.items() if not field.description]
    assert not silent
