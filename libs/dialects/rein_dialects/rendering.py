"""Messages to token ids by the model's own chat template, without ever rendering the past again.

`opening` renders a whole prompt. `continuation` renders only what comes after a recorded sample: the template is run
over a short stand-in conversation that ends in an assistant message, once alone and once with the new messages, and
the difference is what the template puts between that message's end and the next sample. A template whose longer
rendering does not begin with the shorter one rewrites the past; then there is no continuation (None).
"""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

from jinja2 import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer

from rein_dialects.neutral import JsonObject, Message

_STAND_IN = "\u27eaassistant said\u27eb"


class ModelFolderBroken(ValueError):
    """A model folder lacks or damages what rendering needs; the text names the file."""


class TemplateRefused(ValueError):
    """The model's chat template does not take these messages."""


class Renderer:
    """Tokenizer and template of one model folder; read once, never changed."""

    def __init__(self, folder: Path) -> None:
        template, config = _template(folder)
        try:
            self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        except Exception as error:
            raise ModelFolderBroken(f"{folder / 'tokenizer.json'}: {error}") from error
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
        environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
        environment.globals["raise_exception"] = _raise
        self._template = environment.from_string(template)
        self._special = {
            name: text for name, text in config.items() if name.endswith("_token") and isinstance(text, str)
        }
        self.end_of_turn = self._special.get("eos_token", "")
        self.end_of_turn_id = self._tokenizer.token_to_id(self.end_of_turn)
        tokenizer_bytes = (folder / "tokenizer.json").read_bytes()
        self.digest = hashlib.sha256(template.encode() + tokenizer_bytes).hexdigest()

    def opening(self, messages: Sequence[Message], *, tools: Sequence[JsonObject]) -> list[int]:
        """Ids of a whole prompt, ready for a sample."""
        return self._ids(self._text(messages, tools, ready=True))

    def continuation(self, new: Sequence[Message], *, tools: Sequence[JsonObject], has_ended: bool) -> list[int] | None:
        """Ids between a sample's end and the next sample; None = the template rewrites the past.

        `has_ended`: the sample's last token was the end of the turn, so that it is not written again.
        """
        past = [Message("user", "."), Message("assistant", _STAND_IN)]
        before = self._text(past, tools, ready=False)
        after = self._text([*past, *new], tools, ready=True)
        if not after.startswith(before):
            return None
        bridge = after[after.index(_STAND_IN) + len(_STAND_IN) :]
        if has_ended and not bridge.startswith(self.end_of_turn):
            return None
        return self._ids(bridge[len(self.end_of_turn) :] if has_ended else bridge)

    def read(self, token_ids: Sequence[int]) -> str:
        """Text of a sample, its end of turn left out."""
        ids = token_ids[:-1] if token_ids and token_ids[-1] == self.end_of_turn_id else token_ids
        return self._tokenizer.decode(list(ids), skip_special_tokens=False)

    def _text(self, messages: Sequence[Message], tools: Sequence[JsonObject], *, ready: bool) -> str:
        try:
            return self._template.render(
                messages=[message.for_template() for message in messages],
                tools=list(tools) or None,
                add_generation_prompt=ready,
                **self._special,
            )
        except TemplateError as error:
            raise TemplateRefused(f"the chat template refuses these messages: {error}") from error

    def _ids(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)


def _template(folder: Path) -> tuple[str, JsonObject]:
    try:
        config = json.loads((folder / "tokenizer_config.json").read_text())
        beside = folder / "chat_template.jinja"
        template = beside.read_text() if beside.exists() else config["chat_template"]
    except (OSError, ValueError, KeyError) as error:
        raise ModelFolderBroken(
            f"{folder}: no chat template in chat_template.jinja or tokenizer_config.json ({error})"
        ) from error
    return template, config


def _raise(message: str) -> None:
    raise TemplateError(message)
