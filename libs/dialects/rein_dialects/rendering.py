"""Messages to token ids by the model's own chat template, without ever rendering the past again.

`opening` renders a whole prompt. `continuation` renders only what comes after a recorded sample: the template is run
over a short stand-in conversation whose assistant message stands for the sample, followed by the new messages; what it
writes from that message's end of turn on is what lies between the sample and the next one. What it writes *before* that
must be one of the few things it writes there anyway; if the new messages change it (a template that moves system
messages to the front, say), there is no continuation (None) and the caller renders all of it as a new beginning.
"""

import hashlib
import json
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import orjson
from jinja2 import Template, TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer

from rein_dialects.encoding import Encoder
from rein_dialects.neutral import JsonObject, Message, RequestRefused, ToolCall
from rein_dialects.samples import THINK

_STAND_IN = "\u27eaassistant\u27eb"
#: What a template may do with messages it was not made for, beside raising its own error.
_TEMPLATE_ERRORS = (TemplateError, TypeError, ValueError, LookupError, AttributeError)
#: Sets of tools whose stand-in renderings are kept.
_TOOL_SETS = 64


class ModelFolderBroken(ValueError):
    """A model folder lacks or damages what rendering needs; the text names the file."""


class Renderer:
    """Tokenizer and template of one model folder; read once."""

    def __init__(self, folder: Path) -> None:
        tokenizer_bytes = _bytes_of(folder / "tokenizer.json")
        source, config = _template(folder)
        self._tokenizer = Tokenizer.from_buffer(tokenizer_bytes)
        self._encoder = Encoder(self._tokenizer)
        self._template = _compiled(source, place=folder)
        self._special = {
            name: text for name, text in config.items() if name.endswith("_token") and isinstance(text, str)
        }
        self.digest = hashlib.sha256(source.encode() + tokenizer_bytes).hexdigest()
        self.end_of_turn, self.end_of_turn_id = self._find_end_of_turn(folder)
        """The engine must stop at it, whatever it takes for the end of text."""
        self.opens_reasoning = self._text([Message("user", ".")], (), ready=True).rstrip().endswith(THINK)
        """The prompt itself ends with the mark that opens reasoning."""
        self._pasts = lru_cache(maxsize=_TOOL_SETS)(self._make_pasts)
        self._tools_matter = lru_cache(maxsize=_TOOL_SETS)(self._compare)

    def opening(self, messages: Sequence[Message], *, tools: Sequence[JsonObject]) -> list[int]:
        """Ids of a whole prompt, ready for a sample. Raises RequestRefused."""
        return self._encoder.ids(self._text(messages, tools, ready=True), is_shared=True)

    def continuation(self, new: Sequence[Message], *, tools: Sequence[JsonObject], has_ended: bool) -> list[int] | None:
        """Ids between a sample's end and the next sample; None = the template cannot go on from there.

        `has_ended`: the sample's last token was the end of the turn, so it is not written again.
        """
        role = new[0].role if new else "user"
        if not self._tools_matter(orjson.dumps(list(tools)), role):
            tools = ()
        bridge = self._bridge(new, tools, role)
        if bridge is None:
            return None
        return self._encoder.ids(bridge.removeprefix(self.end_of_turn) if has_ended else bridge)

    def read(self, token_ids: Sequence[int]) -> str:
        """Text of a sample, its end of turn left out."""
        has_ended = bool(token_ids) and token_ids[-1] == self.end_of_turn_id
        ids = list(token_ids[:-1] if has_ended else token_ids)
        return str(self._tokenizer.decode(ids, skip_special_tokens=False))

    def _find_end_of_turn(self, folder: Path) -> tuple[str, int]:
        """What the template writes after an assistant's text: one token, the end of its turn."""
        text = self._text([Message("user", "."), Message("assistant", _STAND_IN)], (), ready=False)
        ids = self._encoder.ids(text.partition(_STAND_IN)[2].lstrip())
        end = self._tokenizer.id_to_token(ids[0]) if ids else None
        added = {token.content for token in self._tokenizer.get_added_tokens_decoder().values()}
        if end is None or end not in added:
            raise ModelFolderBroken(
                f"{folder}: the chat template ends an assistant's turn with no special token of tokenizer.json"
            )
        return end, ids[0]

    def _bridge(self, new: Sequence[Message], tools: Sequence[JsonObject], role: str) -> str | None:
        """What the template writes from the stand-in's end of turn on; None = it cannot go on from there."""
        try:
            text = self._text([*_stand_in(role), *new], tools, ready=True)
        except RequestRefused:
            return None
        pasts = self._pasts(orjson.dumps(list(tools)), role)
        return next((text[len(past) :] for past in pasts if text.startswith(past)), None)

    def _compare(self, tools_json: bytes, role: str) -> bool:
        """Whether tools change anything after the stand-in. Most templates write them once, at the very beginning."""
        tools = orjson.loads(tools_json)
        return any(self._bridge(new, tools, role) != self._bridge(new, (), role) for new in _spoken(role))

    def _make_pasts(self, tools_json: bytes, role: str) -> tuple[str, ...]:
        """All that the template may write before the stand-in's end of turn, when `role` speaks next."""
        tools = orjson.loads(tools_json)
        pasts = set[str]()
        for after in ((), *_spoken(role)):
            try:
                text = self._text([*_stand_in(role), *after], tools, ready=bool(after))
            except RequestRefused:
                continue
            end = text.find(self.end_of_turn, max(text.find(_STAND_IN), 0))
            if _STAND_IN in text and end >= 0:
                pasts.add(text[:end])
        return tuple(sorted(pasts, key=len, reverse=True))

    def _text(self, messages: Sequence[Message], tools: Sequence[JsonObject], *, ready: bool) -> str:
        try:
            return self._template.render(
                messages=[message.for_template() for message in messages],
                tools=list(tools) or None,
                add_generation_prompt=ready,
                **self._special,
            )
        except _TEMPLATE_ERRORS as error:
            raise RequestRefused(f"the model's chat template refuses these messages: {error}") from error


_CALL = ToolCall("call00000", _STAND_IN, "{}")


def _stand_in(next_role: str) -> list[Message]:
    """A conversation that a message of `next_role` may continue."""
    calls = (_CALL,) if next_role == "tool" else ()
    return [Message("user", "."), Message("assistant", _STAND_IN, calls)]


def _spoken(role: str) -> tuple[tuple[Message, ...], ...]:
    """What may be said next, small."""
    word = Message(role, ".", tool_call_id=_CALL.id)
    return (word,), (word, Message("user", "."))


def _bytes_of(file: Path) -> bytes:
    """Content of a JSON file. Raises ModelFolderBroken."""
    try:
        data = file.read_bytes()
        orjson.loads(data)
    except (OSError, orjson.JSONDecodeError) as error:
        raise ModelFolderBroken(f"{file} cannot be used: {error}; name a complete Hugging Face model folder") from error
    return data


def _template(folder: Path) -> tuple[str, JsonObject]:
    config = orjson.loads(_bytes_of(folder / "tokenizer_config.json"))
    beside = folder / "chat_template.jinja"
    source = beside.read_text() if beside.exists() else config.get("chat_template")
    if not isinstance(source, str):
        raise ModelFolderBroken(f"{folder}: no chat template in chat_template.jinja or tokenizer_config.json")
    return source, config


def _compiled(source: str, *, place: Path) -> Template:
    """With what templates of the Hugging Face hub expect to find."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise
    try:
        return environment.from_string(source)
    except TemplateError as error:
        raise ModelFolderBroken(f"{place}: the chat template is no Jinja template: {error}") from error


def _to_json(value: Any, ensure_ascii: bool = False, indent: int | None = None, **options: Any) -> str:
    """Plain JSON; Jinja's own filter escapes for HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, **options)


def _raise(message: str) -> None:
    raise TemplateError(message)
