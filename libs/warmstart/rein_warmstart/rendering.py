"""The policy's chat template, rendered as the gateway renders it: plain Jinja2, `tojson` without HTML escapes."""

import json
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

from jinja2 import Environment

TEMPLATE = files("rein_warmstart").joinpath("chat_template.jinja").read_text()


class Renderer:
    """Messages to text."""

    def __init__(self, template: str = TEMPLATE) -> None:
        environment = Environment(trim_blocks=True, lstrip_blocks=True)
        environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
        self._template = environment.from_string(template)

    def text(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        add_generation_prompt: bool = False,
    ) -> str:
        return self._template.render(messages=messages, tools=tools, add_generation_prompt=add_generation_prompt)
