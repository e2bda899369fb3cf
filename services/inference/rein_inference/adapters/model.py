"""Looks at the model's folder and the engine's port before half a minute of imports does."""

import json
import socket
from pathlib import Path

from rein_service import SetupError


def check_model(folder: Path, *, max_context_tokens: int) -> None:
    """Raises SetupError naming what does not fit."""
    if not folder.is_dir():
        raise _unfit(folder, "does not exist", "name a folder as transformers' save_pretrained writes it")
    try:
        config = json.loads((folder / "config.json").read_text())
    except FileNotFoundError as error:
        raise _unfit(folder, "has no config.json", "name the folder of a model") from error
    except (OSError, ValueError) as error:
        raise _unfit(folder, f"has an unreadable config.json ({error})", "save the model again") from error
    if not isinstance(config, dict) or not config.get("architectures"):
        raise _unfit(folder, "has a config.json without architectures", "save the model again with transformers")
    if not list(folder.glob("*.safetensors")):
        raise _unfit(folder, "has no .safetensors file", "save the weights as safetensors")
    if not (folder / "tokenizer.json").exists() and not (folder / "tokenizer_config.json").exists():
        raise _unfit(folder, "has no tokenizer", "save the tokenizer into the same folder")
    longest = config.get("max_position_embeddings")
    if isinstance(longest, int) and longest < max_context_tokens:
        raise SetupError(
            "model.context_too_long",
            f"engine.max_context_tokens is {max_context_tokens}, the model in {folder} takes {longest}; lower it",
        )


def check_port(host: str, *, port: int) -> None:
    """Raises SetupError when the engine could not listen there."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise SetupError(
                "engine.port_taken",
                f"the engine cannot listen on {host}:{port} (key engine.port): {error.strerror}; stop its owner "
                "or set another port",
            ) from error


def _unfit(folder: Path, what: str, remedy: str) -> SetupError:
    return SetupError("model.unfit", f"the model folder {folder} (key model) {what}; {remedy}")
