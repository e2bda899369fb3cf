"""The process: what keeps it from starting is one line and status 2."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from rein_bus.settings import KafkaSettings

REIN_GATEWAY = Path(sys.executable).with_name("rein-gateway")


def run(tmp_path: Path, *lines: str) -> tuple[int, str]:
    config = tmp_path / "gateway.toml"
    config.write_text("\n".join(lines))
    done = subprocess.run([REIN_GATEWAY, "--config", config], capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stderr


def test_a_misspelt_key_is_named(tmp_path: Path) -> None:
    status, text = run(tmp_path, 'modl = "x"', 'grant_secret = "s"')
    assert (status, "'modl'" in text, "'model'" in text) == (2, True, True)


@pytest.mark.kafka
def test_a_missing_model_folder_and_a_taken_port_are_named(
    tmp_path: Path, policy_folder: Path, kafka_settings: KafkaSettings
) -> None:
    kafka = ["[kafka]", f'servers = "{kafka_settings.servers}"', f'prefix = "{kafka_settings.prefix}"']
    status, text = run(tmp_path, f'model = "{tmp_path}/none"', 'grant_secret = "s"', *kafka)
    assert (status, f"{tmp_path}/none/tokenizer.json" in text) == (2, True)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        status, text = run(
            tmp_path, f'model = "{policy_folder}"', 'grant_secret = "s"', "[http]", f"port = {port}", *kafka
        )
    assert (status, str(port) in text, "http.port" in text) == (2, True, True)
