"""One model call: from a parsed request to a recorded turn and an answer.

Invariants: ids and log-probabilities come from the generating call; an earlier prompt or sample is never tokenised
again; a turn is acknowledged by the bus before its answer is handed out. A call that is given up (client gone, attempt
over) cancels its generation and records nothing.
"""

from dataclasses import dataclass, replace
from http import HTTPStatus
from uuid import uuid4

from rein_dialects.dialect import Dialect
from rein_dialects.neutral import Answer, Request, Usage
from rein_dialects.samples import parse
from rein_gateway import metrics
from rein_gateway.attempts import Attempt
from rein_gateway.domain.events import Captured
from rein_gateway.domain.session import Ids, Lineage, Sample, ids_of
from rein_gateway.errors import CallDelayed, CallRefused
from rein_gateway.flights import Flight
from rein_gateway.ports import Rendering
from rein_gateway.recording import Recorder
from rein_gateway.sampling import Sampled, Sampler, Wanted
from rein_service.clock import Clock


@dataclass(frozen=True, slots=True)
class Call:
    """One request of one attempt."""

    attempt: Attempt
    request: Request
    dialect: Dialect
    is_retry: bool
    """The client itself says that it sent this before."""

    def overlong(self, num_prompt_tokens: int, limit: int) -> str:
        return self.dialect.overlong(prompt_tokens=num_prompt_tokens, limit=limit)


@dataclass(frozen=True, slots=True)
class Prompt:
    """What is sent to an engine."""

    lineage: Lineage
    added_ids: list[int]
    """After the parent's prompt and sample."""
    token_ids: Ids


class Calls:
    """Makes model calls."""

    def __init__(self, *, recorder: Recorder, sampler: Sampler, renderer: Rendering, clock: Clock) -> None:
        self._recorder = recorder
        self._sampler = sampler
        self._renderer = renderer
        self._clock = clock

    def begin(self, call: Call) -> Flight:
        """The call under way, or an earlier one that this one repeats. Raises CallRefused, RequestRefused."""
        attempt = call.attempt
        lineage = attempt.record.session.lineage(call.request)
        key = (lineage.digest, call.request.max_tokens)
        if call.is_retry:
            for flight in attempt.flights:
                if flight.key == key and flight.may_be_joined():
                    return flight
        undelivered = attempt.record.pending
        if undelivered is None or undelivered.key != key:
            _check_turns(attempt)
        prompt = self._prompt(lineage, call.request)
        answer_id = call.dialect.ANSWER_ID_PREFIX + uuid4().hex[:24]
        flight = Flight(key, answer_id=answer_id, num_prompt_tokens=len(prompt.token_ids))
        flight.start(self._work(call, prompt, flight))
        attempt.add(flight)
        return flight

    def count_tokens(self, request: Request) -> int:
        """Prompt tokens of a request, without a turn. Raises RequestRefused."""
        return len(self._renderer.opening(request.messages, tools=request.tools))

    def _prompt(self, lineage: Lineage, request: Request) -> Prompt:
        """Recorded ids and the ids of the new messages; all of it rendered only where nothing recorded fits."""
        parent = lineage.parent
        if parent is not None:
            added = self._renderer.continuation(lineage.new, tools=request.tools, has_ended=parent.has_ended)
            if added is not None:
                return Prompt(lineage, added, parent.continued(added))
            lineage = replace(lineage, parent=None, new=request.messages)
        ids = self._renderer.opening(request.messages, tools=request.tools)
        return Prompt(lineage, ids, ids_of(ids))

    async def _work(self, call: Call, prompt: Prompt, flight: Flight) -> Answer:
        started_s, attempt = self._clock.monotonic(), call.attempt
        undelivered = attempt.record.pending
        if undelivered is not None:
            await self._recorder.flush(attempt.record)
            if undelivered.key == flight.key:
                return replace(undelivered.captured.sample.answer, id=flight.answer_id)
        wanted = Wanted(attempt, prompt.token_ids, call.request.max_tokens, call.overlong, flight.note_generating)
        captured = self._captured(call, prompt, await self._sampler.sample(wanted), flight.answer_id)
        await self._recorder.record(attempt.record, captured=captured, key=flight.key)
        if not captured.generation.token_ids:
            raise CallDelayed("inference.no_tokens", "the engine reported no tokens for this call; try again")
        if attempt.limit == "tokens":
            attempt.limit = None  # the harness made room and went on
        metrics.CALL_SECONDS.observe(self._clock.monotonic() - started_s)
        return captured.sample.answer

    def _captured(self, call: Call, prompt: Prompt, sampled: Sampled, answer_id: str) -> Captured:
        """The sample read as an answer, with everything that is known of it."""
        ids = sampled.generation.token_ids
        parsed = parse(
            self._renderer.read(ids),
            new_id=lambda: call.dialect.TOOL_ID_PREFIX + uuid4().hex[:24],
            is_thinking=self._renderer.opens_reasoning,
        )
        answer = Answer(
            id=answer_id,
            content=parsed.content,
            reasoning=parsed.reasoning,
            tool_calls=parsed.tool_calls,
            is_cut=sampled.generation.finish_reason == "length",
            usage=Usage(len(prompt.token_ids), len(ids)),
        )
        sample = Sample(
            answer,
            added_ids=prompt.added_ids,
            token_ids=ids,
            has_ended=bool(ids) and ids[-1] == self._renderer.end_of_turn_id,
            has_tools=bool(call.request.tools),
        )
        return Captured(
            grant=call.attempt.grant,
            request=call.request,
            dialect=call.dialect.NAME,
            lineage=prompt.lineage,
            num_prompt_tokens=len(prompt.token_ids),
            generation=sampled.generation,
            sampling=sampled.sampling,
            node=sampled.node,
            sample=sample,
            problems=parsed.problems,
            queued_s=sampled.queued_s,
            generated_s=sampled.generated_s,
        )


def _check_turns(attempt: Attempt) -> None:
    limit = attempt.grant.limits.turns
    if limit and attempt.record.num_turns + len(attempt.under_way) >= limit:
        attempt.limit = "turns"
        detail = f"all {limit} model calls of this attempt are spent"
        raise CallRefused("limit.turns", detail, status=HTTPStatus.FORBIDDEN)
