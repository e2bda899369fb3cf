"""The gateway's core: one model call, from a parsed request to a recorded turn and an answer.

Invariants: ids and log-probabilities come from the generating call; a turn is acknowledged by the bus before its answer
is handed out; turns of an attempt are numbered without gaps; nothing is invented for what an engine left out. A call
that ends early (client gone, attempt ended or fenced) cancels its generation and records nothing.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from uuid import uuid4

from rein.v1 import events_pb2 as ev
from rein.v1 import identity_pb2 as pb
from rein_bus.errors import BusTransient
from rein_bus.ports import Bus
from rein_contracts.ids import AttemptId, attempt_id
from rein_dialects import hermes
from rein_dialects.dialect import Dialect
from rein_dialects.neutral import Answer, Request, Usage
from rein_dialects.rendering import TemplateRefused
from rein_gateway import metrics
from rein_gateway.domain.generation import Generation
from rein_gateway.domain.nodes import Nodes
from rein_gateway.domain.session import Lineage, Session
from rein_gateway.errors import CallDelayed, CallRefused
from rein_gateway.ports import Engine, Rendering
from rein_service.clock import Clock

log = logging.getLogger(__name__)

#: Finished answers kept per session for a client's marked retry.
KEPT_ANSWERS = 4
NODE_POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class Settings:
    """See rein_gateway.config."""

    instance: str
    node_patience_s: float
    bus_patience_s: float
    spill_calls: int
    session_idle_s: float


@dataclass(frozen=True, slots=True)
class Call:
    """One request of one attempt."""

    grant: pb.AttemptGrant
    request: Request
    dialect: Dialect
    body_digest: bytes
    is_retry: bool
    """The client itself says that it sent this before."""

    @property
    def attempt(self) -> AttemptId:
        return attempt_id(self.grant.identity)


@dataclass(slots=True)
class _Live:
    """A session and what runs in it."""

    session: Session = field(default_factory=Session)
    recording: asyncio.Lock = field(default_factory=asyncio.Lock)
    tasks: set[asyncio.Task[Answer]] = field(default_factory=set)
    answers: deque[tuple[bytes, asyncio.Task[Answer]]] = field(default_factory=lambda: deque(maxlen=KEPT_ANSWERS))


@dataclass(frozen=True, slots=True)
class _Prompt:
    lineage: Lineage
    added_ids: list[int]
    token_ids: list[int]


class Gateway:
    """All sessions this process serves."""

    def __init__(
        self, *, bus: Bus, engine: Engine, renderer: Rendering, nodes: Nodes, clock: Clock, settings: Settings
    ) -> None:
        self._bus = bus
        self._engine = engine
        self._renderer = renderer
        self._nodes = nodes
        self._clock = clock
        self._settings = settings
        self._live: dict[AttemptId, _Live] = {}
        self._fenced: set[AttemptId] = set()
        self._started_at_s = clock.now().timestamp()

    async def answer(self, call: Call) -> Answer:
        """Sample, record, answer. Raises CallRefused, CallDelayed."""
        live = self._session_of(call.grant)
        if call.is_retry:
            for digest, earlier in live.answers:
                if digest == call.body_digest and not (earlier.done() and (earlier.cancelled() or earlier.exception())):
                    return await asyncio.shield(earlier)
        task = asyncio.create_task(self._work(call, live), name=f"call {call.attempt}")
        live.tasks.add(task)
        task.add_done_callback(live.tasks.discard)
        live.answers.append((call.body_digest, task))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.cancel()
            if live.session.is_closed:
                raise CallRefused("attempt.ended", "this attempt has ended", status=HTTPStatus.FORBIDDEN) from None
            raise

    async def end(self, grant: pb.AttemptGrant) -> Session | None:
        """Close the attempt's session, its calls aborted; None = not known here, or a turn's fate is not known."""
        live = self._live.pop(attempt_id(grant.identity), None)
        if live is None:
            return None
        await self._close(live)
        return None if live.session.is_lost else live.session

    async def fence(self, attempt: AttemptId) -> None:
        """Nothing more is sampled or recorded for this attempt."""
        self._fenced.add(attempt)
        live = self._live.pop(attempt, None)
        if live is not None:
            await self._close(live)

    def count_tokens(self, request: Request) -> int:
        """Prompt tokens of a request, without a turn."""
        with _readable():
            return len(self._renderer.opening(request.messages, tools=request.tools))

    def num_calls(self) -> int:
        return sum(len(live.tasks) for live in self._live.values())

    def details(self) -> dict[str, str]:
        return {"sessions": str(len(self._live)), "fenced": str(len(self._fenced))}

    async def drop_idle(self) -> None:
        """For ever: forget sessions nobody has touched for long."""
        while True:
            await self._clock.sleep(self._settings.session_idle_s / 10)
            oldest_s = self._clock.monotonic() - self._settings.session_idle_s
            for attempt in [
                a for a, live in self._live.items() if live.session.touched_s < oldest_s and not live.tasks
            ]:
                del self._live[attempt]

    async def _close(self, live: _Live) -> None:
        live.session.is_closed = True
        for task in list(live.tasks):
            task.cancel()
        if live.tasks:
            await asyncio.wait(list(live.tasks))
        async with live.recording:
            return

    def _session_of(self, grant: pb.AttemptGrant) -> _Live:
        attempt = attempt_id(grant.identity)
        if attempt in self._fenced:
            raise CallRefused("attempt.fenced", "this attempt was given up", status=HTTPStatus.FORBIDDEN)
        live = self._live.get(attempt)
        if live is None:
            if grant.issued_at_s < self._started_at_s:
                detail = "this gateway started after the attempt and may have missed turns of it"
                raise CallRefused("attempt.session_lost", detail, status=HTTPStatus.FORBIDDEN)
            live = self._live[attempt] = _Live()
        live.session.touched_s = self._clock.monotonic()
        return live

    async def _work(self, call: Call, live: _Live) -> Answer:
        started_s = self._clock.monotonic()
        session = live.session
        self._spend_turn(call, session)
        node = await self._node(call)
        with _readable():
            prompt = self._prompt(call.request, session)
        sampling = self._sampling(call, session, num_prompt=len(prompt.token_ids), node=node)
        self._nodes.begin(node)
        generating_s = self._clock.monotonic()
        try:
            generation = await self._engine.generate(
                self._nodes.url(node),
                token_ids=prompt.token_ids,
                sampling=sampling,
                cache_salt=str(self._nodes.version(node)),
            )
        except asyncio.CancelledError:
            metrics.TOKENS_WASTED.inc(len(prompt.token_ids))
            raise
        finally:
            self._nodes.end(node)
        times = (generating_s - started_s, self._clock.monotonic() - generating_s)
        answer, problems = self._read(call, prompt, generation)
        await self._record(call, live, _Sample(prompt, generation, answer, sampling, node, times, problems))
        metrics.CALL_SECONDS.observe(self._clock.monotonic() - started_s)
        return answer

    def _spend_turn(self, call: Call, session: Session) -> None:
        limit = call.grant.limits.turns
        if limit and session.num_calls >= limit:
            session.limit = "turns"
            raise CallRefused(
                "limit.turns", f"this attempt's {limit} model calls are spent", status=HTTPStatus.FORBIDDEN
            )
        session.num_calls += 1

    async def _node(self, call: Call) -> str:
        """A ready node, waited for within the limit."""
        run, attempt = call.grant.identity.run, str(call.attempt)
        deadline_s = self._clock.monotonic() + self._settings.node_patience_s
        while True:
            now_s = self._clock.monotonic()
            node = self._nodes.choose(run=run, attempt=attempt, spill=self._settings.spill_calls, now_s=now_s)
            if node is not None:
                return node
            if now_s > deadline_s:
                raise CallDelayed("inference.no_node", "no inference node is ready for this run; try again")
            await self._clock.sleep(NODE_POLL_S)

    def _prompt(self, request: Request, session: Session) -> _Prompt:
        """Recorded ids and the ids of the new messages; all of it rendered only where nothing recorded fits."""
        lineage = session.lineage(request)
        parent = lineage.parent
        if parent is not None:
            added = self._renderer.continuation(lineage.new, tools=request.tools, has_ended=parent.has_ended)
            if added is not None:
                return _Prompt(lineage, added, [*parent.token_ids(), *added])
            lineage = Lineage(None, request.messages, lineage.digest)
        ids = self._renderer.opening(request.messages, tools=request.tools)
        return _Prompt(lineage, ids, ids)

    def _sampling(self, call: Call, session: Session, *, num_prompt: int, node: str) -> pb.Sampling:
        """The run's parameters, the length clamped to the room left. Raises CallRefused when there is none."""
        windows = [w for w in (call.grant.limits.context_tokens, self._nodes.max_context(node)) if w]
        window = min(windows, default=2**31)
        room = window - num_prompt
        if room < 1:
            session.limit = "tokens"
            text = call.dialect.overlong(prompt_tokens=num_prompt, limit=window)
            raise CallRefused("limit.context_tokens", text, status=HTTPStatus.BAD_REQUEST)
        wanted = [n for n in (call.grant.sampling.max_tokens, call.request.max_tokens) if n]
        return pb.Sampling(temperature=call.grant.sampling.temperature, max_tokens=min([room, *wanted]))

    def _read(self, call: Call, prompt: _Prompt, generation: Generation) -> tuple[Answer, Sequence[str]]:
        """The answer in the sample's text, and what of it could not be read."""
        parsed = hermes.parse(
            self._renderer.read(generation.token_ids), new_id=lambda: call.dialect.TOOL_ID_PREFIX + uuid4().hex[:24]
        )
        answer = Answer(
            id="msg_" + uuid4().hex[:24],
            content=parsed.content,
            tool_calls=parsed.tool_calls,
            is_cut=generation.finish_reason == "length",
            usage=Usage(len(prompt.token_ids), len(generation.token_ids)),
        )
        return answer, parsed.problems

    async def _record(self, call: Call, live: _Live, sample: "_Sample") -> None:
        """Publish the turn and its findings; only then does it exist. Raises CallDelayed."""
        async with live.recording:
            if live.session.is_closed:
                raise CallRefused("attempt.ended", "this attempt has ended", status=HTTPStatus.FORBIDDEN)
            publishing = asyncio.ensure_future(self._publish(call, live.session, sample))
            try:
                await asyncio.shield(publishing)
            except asyncio.CancelledError:
                # The turn may be in the log already: whatever comes of the client, the count must agree with the log.
                await asyncio.wait([publishing])
                raise

    async def _publish(self, call: Call, session: Session, sample: "_Sample") -> None:
        turn = self._turn_event(call, session, sample)
        findings = self._findings(call, session, sample)
        try:
            async with asyncio.timeout(self._settings.bus_patience_s):
                await self._bus.publish(turn, *findings)
        except (BusTransient, TimeoutError) as error:
            # Whether it reached the log is not known, so this session cannot go on counting.
            session.is_closed = session.is_lost = True
            raise CallDelayed("bus.away", "the turn could not be recorded; try again") from error
        generation = sample.generation
        session.record(
            sample.prompt.lineage,
            answer=sample.answer,
            prompt_ids=sample.prompt.added_ids,
            sampled_ids=generation.token_ids,
            has_ended=bool(generation.token_ids) and generation.token_ids[-1] == self._renderer.end_of_turn_id,
        )
        session.has_tools |= bool(call.request.tools)
        metrics.TURNS_CAPTURED.labels(call.dialect.NAME).inc()
        metrics.TOKENS_SAMPLED.inc(len(generation.token_ids))
        for finding in findings:
            metrics.FINDINGS.labels(finding.code).inc()

    def _turn_event(self, call: Call, session: Session, sample: "_Sample") -> ev.TurnCaptured:
        generation, parent = sample.generation, sample.prompt.lineage.parent
        fault = generation.fault()
        is_side = session.has_tools and not call.request.tools
        queued_s, generated_s = sample.times_s
        turn = ev.TurnCaptured(
            identity=call.grant.identity,
            purpose=call.grant.purpose,
            turn=session.num_turns,
            parent_turn=parent.index if parent else None,
            kind=ev.TURN_KIND_SIDE if is_side else ev.TURN_KIND_MAIN,
            prompt_ids=sample.prompt.added_ids,
            num_prompt_tokens=len(sample.prompt.token_ids),
            sampled_ids=generation.token_ids,
            logprobs=generation.logprobs,
            versions=generation.spans(),
            finish_reason=generation.finish_reason,
            is_trainable=fault is None,
            untrainable="" if fault is None else fault[0],
            sampling=sample.sampling,
            dialect=call.dialect.NAME,
            node=sample.node,
            gateway=self._settings.instance,
            renderer_digest=self._renderer.digest,
            queued_s=queued_s,
            generated_s=generated_s,
        )
        turn.at.FromDatetime(self._clock.now())
        return turn

    def _findings(self, call: Call, session: Session, sample: "_Sample") -> list[ev.FindingRecorded]:
        """What a person should know of this turn; settings a harness repeats are told once per session."""
        found: list[tuple[str, str, bool]] = []
        fault = sample.generation.fault()
        if fault is not None:
            found.append((*fault, True))
        found += [("sample.unreadable", problem, False) for problem in sample.problems]
        if session.is_fork(sample.prompt.lineage):
            found.append(("session.forked", "the history does not continue any recorded turn", False))
        if session.num_turns == 0:
            if call.request.asked:
                found.append(("sampling.overridden", f"the harness asked for {dict(call.request.asked)}"[:500], False))
            if call.request.unknown:
                found.append(("request.unknown_fields", ", ".join(call.request.unknown), False))
        findings = [
            ev.FindingRecorded(
                identity=call.grant.identity, turn=session.num_turns, code=code, detail=detail, is_fatal=is_fatal
            )
            for code, detail, is_fatal in found
        ]
        for finding in findings:
            finding.at.FromDatetime(self._clock.now())
        return findings


@contextmanager
def _readable() -> Iterator[None]:
    """Messages the model's template refuses are the request's fault."""
    try:
        yield
    except TemplateRefused as error:
        raise CallRefused("request.not_renderable", str(error), status=HTTPStatus.BAD_REQUEST) from error


@dataclass(frozen=True, slots=True)
class _Sample:
    """A finished generation on its way into the log."""

    prompt: _Prompt
    generation: Generation
    answer: Answer
    sampling: pb.Sampling
    node: str
    times_s: tuple[float, float]
    """Queued, generated."""
    problems: Sequence[str]
