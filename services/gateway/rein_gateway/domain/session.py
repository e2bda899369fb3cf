"""One attempt's session: its turns, and which of them a new request continues.

A turn continues its parent only by tokens: parent's prompt + parent's sample + the ids between. Which turn is the
parent is found by the history's digest; the deepest one wins, so interleaved conversations of one attempt (sub-agents)
stay apart. Turns are numbered in order of recording, without gaps.
"""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field

from rein_dialects.neutral import Answer, Message, Request
from rein_gateway.domain import canonical


@dataclass(frozen=True, slots=True)
class Turn:
    """A recorded turn; `prompt_ids` is what its prompt adds to the parent's prompt and sample."""

    index: int
    parent: "Turn | None"
    prompt_ids: array[int]
    sampled_ids: array[int]
    num_tokens: int
    """Length of prompt and sample together."""
    has_ended: bool
    """The sample ended with the end of the turn."""

    def token_ids(self) -> list[int]:
        """Prompt and sample, whole."""
        chain: list[Turn] = []
        turn: Turn | None = self
        while turn is not None:
            chain.append(turn)
            turn = turn.parent
        ids: list[int] = []
        for turn in reversed(chain):
            ids.extend(turn.prompt_ids)
            ids.extend(turn.sampled_ids)
        return ids


@dataclass(frozen=True, slots=True)
class Lineage:
    """What a request continues: `new` are the messages after the parent's answer; no parent = a new segment."""

    parent: Turn | None
    new: tuple[Message, ...]
    digest: canonical.Digest
    """Of the request's whole history."""


@dataclass(slots=True)
class Session:
    """State of one attempt."""

    num_turns: int = 0
    num_calls: int = 0
    """Model calls begun, recorded or not."""
    limit: str | None = None
    """Budget that ended the rollout: "turns" or "tokens"."""
    is_closed: bool = False
    is_lost: bool = False
    """Whether its last turn reached the log is not known."""
    has_tools: bool = False
    touched_s: float = 0.0
    _by_digest: dict[canonical.Digest, Turn] = field(default_factory=dict)

    def lineage(self, request: Request) -> Lineage:
        """The deepest recorded turn whose conversation this request goes on."""
        digests = canonical.history(request.messages, tools=request.tools)
        for end in range(len(request.messages), 0, -1):
            if request.messages[end - 1].role == "assistant" and (parent := self._by_digest.get(digests[end])):
                return Lineage(parent, request.messages[end:], digests[-1])
        return Lineage(None, request.messages, digests[-1])

    def record(
        self,
        lineage: Lineage,
        *,
        answer: Answer,
        prompt_ids: Sequence[int],
        sampled_ids: Sequence[int],
        has_ended: bool,
    ) -> Turn:
        """Add the turn that was just acknowledged by the bus."""
        parent = lineage.parent
        before = parent.num_tokens if parent else 0
        turn = Turn(
            index=self.num_turns,
            parent=parent,
            prompt_ids=array("I", prompt_ids),
            sampled_ids=array("I", sampled_ids),
            num_tokens=before + len(prompt_ids) + len(sampled_ids),
            has_ended=has_ended,
        )
        self.num_turns += 1
        self._by_digest[canonical.extend(lineage.digest, message=answer.message())] = turn
        return turn

    def is_fork(self, lineage: Lineage) -> bool:
        """A new segment although the session has turns."""
        return lineage.parent is None and self.num_turns > 0
