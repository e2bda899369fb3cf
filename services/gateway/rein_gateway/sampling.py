"""Getting one sample of a prompt: a ready node (another one on failure), the run's own parameters, the room left.

Knows nothing of messages or turns. Nothing is recorded here but findings; a cancelled call cancels its generation.
"""

import asyncio
import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass
from http import HTTPStatus

from rein.v1 import identity_pb2 as pb
from rein_contracts.ids import attempt_id
from rein_gateway import metrics
from rein_gateway.attempts import Attempt
from rein_gateway.domain.events import Remark
from rein_gateway.domain.generation import Generation
from rein_gateway.domain.nodes import Node, Nodes
from rein_gateway.domain.session import Ids
from rein_gateway.errors import CallDelayed, CallRefused, EngineAway, PromptTooLong
from rein_gateway.ports import Engine
from rein_gateway.recording import Recorder
from rein_service.clock import Clock
from rein_service.waiting import unless

log = logging.getLogger(__name__)

#: Stands for "no bound" where neither the run nor the node names one.
_UNBOUNDED = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Wanted:
    """A prompt to sample from."""

    attempt: Attempt
    token_ids: Ids
    max_tokens: int | None
    """As the harness asked."""
    overlong: Callable[[int, int], str]
    """Words for a prompt of so many tokens that may have so many."""
    on_generating: Callable[[], None]
    """A node takes the prompt now."""


@dataclass(frozen=True, slots=True)
class Sampled:
    """A generation, and how it came about."""

    generation: Generation
    node: Node
    sampling: pb.Sampling
    queued_s: float
    generated_s: float


class Sampler:
    """Shared by all calls."""

    def __init__(
        self, *, engine: Engine, nodes: Nodes, recorder: Recorder, clock: Clock, stop_id: int, patience_s: float
    ) -> None:
        """`stop_id`: the token that ends a turn. A ready node is waited for `patience_s`."""
        self._engine = engine
        self._nodes = nodes
        self._recorder = recorder
        self._clock = clock
        self._stop_id = stop_id
        self._patience_s = patience_s
        self._reported = asyncio.Event()
        self._num_waiting = 0

    @property
    def num_waiting(self) -> int:
        """Calls that wait for a ready node."""
        return self._num_waiting

    def wake(self) -> None:
        """A node reported: whoever waits looks again."""
        self._reported.set()
        self._reported.clear()

    async def sample(self, wanted: Wanted) -> Sampled:
        """Raises CallDelayed, CallRefused."""
        asked_s = self._clock.monotonic()
        failed: set[str] = set()
        while True:
            node = await self._node(wanted.attempt.grant, failed)
            sampling = await self._parameters(wanted, node)
            began_s = self._clock.monotonic()
            try:
                generation = await self._generate(wanted, node, sampling)
            except EngineAway as error:
                failed.add(node.name)
                await self._failed(wanted.attempt, node, error)
                continue
            now_s = self._clock.monotonic()
            return Sampled(generation, node, sampling, queued_s=began_s - asked_s, generated_s=now_s - began_s)

    async def _generate(self, wanted: Wanted, node: Node, sampling: pb.Sampling) -> Generation:
        self._nodes.begin(node.name)
        wanted.on_generating()
        try:
            return await self._engine.generate(
                node.url,
                token_ids=wanted.token_ids,
                sampling=sampling,
                stop_id=self._stop_id,
                cache_salt=str(node.version),
            )
        except PromptTooLong as error:
            raise await self._overlong(wanted, window=node.max_context_tokens) from error
        finally:
            self._nodes.end(node.name)

    async def _node(self, grant: pb.AttemptGrant, failed: Collection[str]) -> Node:
        """A ready node. It is waited for, but not once a node has failed this call: the client may as well wait."""
        deadline_s = self._clock.monotonic() + self._patience_s
        run, name = grant.identity.run, str(attempt_id(grant.identity))
        while True:
            now_s = self._clock.monotonic()
            node = self._nodes.choose(run=run, attempt=name, now_s=now_s, without=failed)
            if node is not None:
                return node
            if failed:
                raise CallDelayed("inference.failed", "the inference nodes failed this call; try again")
            if now_s >= deadline_s:
                raise CallDelayed("inference.no_node", f"no inference node is ready for run {run}; try again")
            self._num_waiting += 1
            try:
                await unless(self._reported, self._clock.sleep(deadline_s - now_s))
            finally:
                self._num_waiting -= 1

    async def _parameters(self, wanted: Wanted, node: Node) -> pb.Sampling:
        """The run's own, the length clamped to the room left. Raises CallRefused when there is none."""
        grant, num_prompt_tokens = wanted.attempt.grant, len(wanted.token_ids)
        bounds = [bound for bound in (grant.limits.context_tokens, node.max_context_tokens) if bound]
        window = min(bounds, default=_UNBOUNDED)
        room = window - num_prompt_tokens
        if room < 1:
            raise await self._overlong(wanted, window=window)
        lengths = [length for length in (grant.sampling.max_tokens, wanted.max_tokens) if length]
        return pb.Sampling(temperature=grant.sampling.temperature, max_tokens=min([room, *lengths]))

    async def _overlong(self, wanted: Wanted, *, window: int) -> CallRefused:
        """What the harness is told, so that it makes its history shorter."""
        attempt = wanted.attempt
        attempt.limit = "tokens"
        text = wanted.overlong(len(wanted.token_ids), window)
        await self._recorder.remark(
            attempt.record, identity=attempt.grant.identity, remark=Remark("prompt.overlong", text)
        )
        return CallRefused("limit.context_tokens", text, status=HTTPStatus.BAD_REQUEST)

    async def _failed(self, attempt: Attempt, node: Node, error: EngineAway) -> None:
        metrics.ENGINE_FAILURES.inc()
        log.warning("engine.failed", extra={"node": node.name, "detail": error.detail})
        remark = Remark("engine.failed", f"node {node.name}: {error.detail}"[:500])
        await self._recorder.remark(attempt.record, identity=attempt.grant.identity, remark=remark)
