"""One attempt's session: its turns, and which of them a new request continues.

A turn continues its parent only by tokens: parent's prompt + parent's sample + the ids between. Which turn is the
parent is found by the history's digest; the deepest one wins, so interleaved conversations of one attempt (sub-agents)
stay apart. Turns are numbered in order of recording, without gaps. Nothing here knows of time or of the network.
"""

from array import array
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from rein_dialects.neutral import Answer, JsonObject, Message, Request
from rein_gateway.domain.canonical import Digest, History

#: Conversations of one attempt whose histories are not read from the start each time.
_KEPT_BEGINNINGS = 8

Ids = NDArray[np.uint32]


def ids_of(ids: Sequence[int]) -> Ids:
    return np.frombuffer(array("I", ids), dtype=np.uint32)  # three times as fast as from a list


@dataclass(frozen=True, slots=True, eq=False)
class Turn:
    """A recorded turn; `prompt_ids` is what its prompt adds to the parent's prompt and sample."""

    index: int
    parent: "Turn | None"
    prompt_ids: Ids
    sampled_ids: Ids
    has_ended: bool
    """The sample ended with the end of the turn."""

    def continued(self, added_ids: Sequence[int]) -> Ids:
        """Prompt and sample of this turn, whole, and the added ids."""
        parts = [ids_of(added_ids)]
        turn: Turn | None = self
        while turn is not None:
            parts += (turn.sampled_ids, turn.prompt_ids)
            turn = turn.parent
        return np.concatenate(parts[::-1])


@dataclass(frozen=True, slots=True)
class Lineage:
    """What a request continues: `new` are the messages after the parent's answer; no parent = a new segment."""

    parent: Turn | None
    new: tuple[Message, ...]
    digest: Digest
    """Of the request's whole history."""
    history: History

    @property
    def is_rewritten(self) -> bool:
        """The history holds answers that were not sampled here, or not like this."""
        return any(message.role == "assistant" for message in self.new)


@dataclass(frozen=True, slots=True)
class Sample:
    """What makes a turn of a request."""

    answer: Answer
    added_ids: Sequence[int]
    """What its prompt adds to the parent's prompt and sample."""
    token_ids: Sequence[int]
    has_ended: bool
    has_tools: bool


@dataclass(frozen=True, slots=True)
class _Beginning:
    """All of a request's history but its last message, as far as it was compared.

    Kept only if no answer in it after the deepest recorded turn was made elsewhere: one sampled later might equal it.
    """

    tools: tuple[JsonObject, ...]
    messages: tuple[Message, ...]
    history: History
    answered: Digest | None
    """Of the history up to the answer of the deepest recorded turn in it."""
    num_answered: int
    """Messages up to that answer."""

    def begins(self, request: Request) -> bool:
        num = len(self.messages)
        return num < len(request.messages) and self.messages == request.messages[:num] and self.tools == request.tools


@dataclass(slots=True)
class Session:
    """State of one attempt."""

    num_turns: int = 0
    has_tools: bool = False
    """Some turn came with tools."""
    _minted: set[str] = field(default_factory=set)
    _continued: set[int] = field(default_factory=set)
    """Turns that are a parent."""
    _by_digest: dict[Digest, Turn] = field(default_factory=dict)
    _beginnings: deque[_Beginning] = field(default_factory=lambda: deque(maxlen=_KEPT_BEGINNINGS))

    def lineage(self, request: Request) -> Lineage:
        """The deepest recorded turn whose conversation this request goes on."""
        read = self._read_before(request)
        history, answered, num_answered = read.history.copy(), read.answered, read.num_answered
        last, has_foreign = len(request.messages) - 1, False
        for number in range(len(read.messages), last + 1):
            message = request.messages[number]
            if number == last and not has_foreign:
                beginning = _Beginning(request.tools, request.messages[:last], history.copy(), answered, num_answered)
                self._beginnings.append(beginning)
            history.add(message)
            if message.role != "assistant":
                continue
            digest = history.digest()
            has_foreign = digest not in self._by_digest
            if not has_foreign:
                answered, num_answered = digest, number + 1
        parent = self._by_digest[answered] if answered else None
        return Lineage(parent, request.messages[num_answered:], history.digest(), history)

    def record(self, lineage: Lineage, *, sample: Sample) -> Turn:
        """Add the turn that was just acknowledged by the bus."""
        turn = Turn(
            index=self.num_turns,
            parent=lineage.parent,
            prompt_ids=ids_of(sample.added_ids),
            sampled_ids=ids_of(sample.token_ids),
            has_ended=sample.has_ended,
        )
        self.num_turns += 1
        self.has_tools |= sample.has_tools
        if lineage.parent is not None:
            self._continued.add(lineage.parent.index)
        self._minted.update(call.id for call in sample.answer.tool_calls)
        self._by_digest[lineage.history.with_answer(sample.answer.message())] = turn
        return turn

    def _read_before(self, request: Request) -> _Beginning:
        """The longest beginning of this request's history that need not be read again."""
        fitting = [each for each in self._beginnings if each.begins(request)]
        if fitting:
            return max(fitting, key=lambda each: len(each.messages))
        return _Beginning(request.tools, (), History(request.tools, minted=self._minted), None, 0)

    def is_continued(self, turn: Turn) -> bool:
        """Some recorded turn goes on from it already."""
        return turn.index in self._continued

    def is_side(self, request: Request) -> bool:
        """Titles and summaries come without the tools the session's other calls have."""
        return self.has_tools and not request.tools
