"""Stand-in harnesses: they keep a history and send it back the way real ones do. For tests and benchmarks.

`Claude` streams Anthropic messages with moving cache marks, a changing billing header and defaults added to tool
arguments; `Mini` speaks chat completions whole and sends arguments back written anew.
"""

from typing import Any

import orjson

from rein_gateway.testing import Reply, Stage

MESSAGES, CHAT = "/any/prefix/v1/messages?beta=true", "/any/prefix/v1/chat/completions"

_SCHEMA = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}
CLAUDE_TOOLS = [{"name": "Bash", "description": "execute shell commands", "input_schema": _SCHEMA}]
CHAT_TOOLS = [{"type": "function", "function": {"name": "Bash", "parameters": _SCHEMA}}]


def call_of(command: str, *, before: str = "") -> str:
    """What a policy writes to run a command."""
    arguments = orjson.dumps({"command": command}).decode()
    return f'{before}<tool_call>\n{{"name": "Bash", "arguments": {arguments}}}\n</tool_call>'


class Claude:
    """One conversation in Anthropic's dialect."""

    def __init__(self, stage: Stage, *, task: str = "Line 2 of a.py is wrong.", **settings: Any) -> None:
        """`settings` are further fields of each body; `grant` is taken out of them."""
        self._stage = stage
        self._grant = settings.pop("grant", None)
        self._settings = settings
        self._num_asked = 0
        self.messages: list[dict[str, Any]] = [{"role": "user", "content": [{"type": "text", "text": task}]}]

    def body(self) -> dict[str, Any]:
        system = [
            {"type": "text", "text": f"x-anthropic-billing-header: cc_version=2.1.197; cch={self._num_asked:05}"},
            {"type": "text", "text": "You repair code.", "cache_control": {"type": "ephemeral"}},
        ]
        usual = {"model": "policy", "max_tokens": 32000, "system": system, "tools": CLAUDE_TOOLS, "stream": True}
        return {**usual, "messages": self._marked(), **self._settings}

    async def ask(self, **headers: str) -> Reply:
        """One call; an answer becomes part of the history."""
        self._num_asked += 1
        reply = await self._stage.post(MESSAGES, self.body(), grant=self._grant, **headers)
        if reply.status == 200:
            self.messages.append({"role": "assistant", "content": self._echoed(reply)})
        return reply

    def tell(self, text: str) -> None:
        """Results of the calls just made, or else a word from the user."""
        blocks = self.messages[-1]["content"]
        results = [
            {"type": "tool_result", "tool_use_id": block["id"], "content": text, "is_error": False}
            for block in blocks
            if block["type"] == "tool_use"
        ]
        self.messages.append({"role": "user", "content": results or [{"type": "text", "text": text}]})

    def _marked(self) -> list[dict[str, Any]]:
        *earlier, last = self.messages
        marked = {**last["content"][-1], "cache_control": {"type": "ephemeral"}}
        return [*earlier, {**last, "content": [*last["content"][:-1], marked]}]

    def _echoed(self, reply: Reply) -> list[dict[str, Any]]:
        if not self._settings.get("stream", True):
            return list(reply.json["content"])
        blocks: list[dict[str, Any]] = []
        for event in reply.events:
            if event["type"] == "content_block_start":
                blocks.append(dict(event["content_block"]))
            delta = event.get("delta", {})
            if "text" in delta:
                blocks[-1]["text"] += delta["text"]
            if "partial_json" in delta:
                blocks[-1]["input"] = {**orjson.loads(delta["partial_json"]), "replace_all": False}
        return blocks


class Mini:
    """One conversation in chat completions."""

    def __init__(
        self, stage: Stage, *, task: str = "Line 2 of a.py is wrong.", system: str = "", **settings: Any
    ) -> None:
        """`settings` are further fields of each body; `grant` is taken out of them."""
        self._stage = stage
        self._grant = settings.pop("grant", None)
        self._settings = settings
        first = [{"role": "system", "content": system}] if system else []
        self.messages: list[dict[str, Any]] = [*first, {"role": "user", "content": task}]

    def body(self) -> dict[str, Any]:
        return {"model": "policy", "messages": self.messages, "tools": CHAT_TOOLS, **self._settings}

    async def ask(self, **headers: str) -> Reply:
        """One call; an answer becomes part of the history."""
        reply = await self._stage.post(CHAT, self.body(), grant=self._grant, **headers)
        if reply.status == 200:
            message = reply.json["choices"][0]["message"]
            for call in message.get("tool_calls", []):
                arguments = orjson.loads(call["function"]["arguments"])
                call["function"]["arguments"] = orjson.dumps(arguments, option=orjson.OPT_INDENT_2).decode()
            self.messages.append(message)
        return reply

    def tell(self, text: str) -> None:
        """Results of the calls just made, or else a word from the user."""
        calls = self.messages[-1].get("tool_calls", [])
        self.messages += [{"role": "tool", "tool_call_id": call["id"], "content": text} for call in calls]
        if not calls:
            self.messages.append({"role": "user", "content": text})
