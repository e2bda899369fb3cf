"""The inference node: keep one engine alive, keep its weights right, report both.

A node takes training traffic only while its report says READY. Whenever anything about the engine is in doubt (it died,
a call failed, the probe disagreed) it is fenced, the engine is killed and started afresh after a bounded wait, and it
gets a whole version again before it is ready.
"""

import asyncio
import logging

from rein.v1 import events_pb2 as ev
from rein.v1 import weights_pb2 as pb
from rein.v1.identity_pb2 import OWNER_INFERENCE, Failure
from rein_bus.errors import BusTransient
from rein_bus.ports import Bus
from rein_inference import metrics
from rein_inference.config import InferenceConfig
from rein_inference.domain.backoff import Backoff
from rein_inference.domain.standing import Standing
from rein_inference.errors import EngineHopeless, EngineLost, EngineRefused, ProbeDisagrees
from rein_inference.follower import WeightFollower
from rein_inference.ports import Engine, Load, Memory, WeightFeed
from rein_service import Status
from rein_service.clock import Clock

log = logging.getLogger(__name__)

IDLE_CHECK_S = 0.2


class InferenceNode:
    """One per process."""

    def __init__(
        self, *, bus: Bus, engine: Engine, feed: WeightFeed, memory: Memory, clock: Clock, config: InferenceConfig
    ) -> None:
        self._bus = bus
        self._engine = engine
        self._feed = feed
        self._memory = memory
        self._clock = clock
        self._config = config
        self._changed = asyncio.Event()
        self._load = Load()
        self.standing = Standing(on_change=self._changed.set)

    async def run(self, draining: asyncio.Event) -> None:
        """Until asked to stop. Raises EngineHopeless (in a group) when the engine cannot be kept alive."""
        self._memory.clear()
        try:
            async with asyncio.TaskGroup() as group:
                reporting = group.create_task(self._report_forever())
                living = group.create_task(self._lives())
                await draining.wait()
                reporting.cancel()
                await self._report(ev.NODE_STATE_GONE)
                await self._finish()
                living.cancel()
        finally:
            await self._engine.stop()
            self._memory.clear()

    def status(self) -> Status:
        fence = self.standing.fence
        return Status(
            num_in_flight=self._load.num_running + self._load.num_waiting,
            details={
                "node": self._config.node,
                "state": "ready" if fence is None else "fenced",
                "run": self.standing.weights.run,
                "version": str(self.standing.weights.version),
                "fence": f"{fence.code}: {fence.detail}" if fence else "",
                "engine": self._config.advertised_url,
            },
        )

    async def _lives(self) -> None:
        backoff = Backoff(
            self._config.engine.backoff_s, self._config.engine.max_backoff_s, self._config.engine.max_starts
        )
        while True:
            try:
                await self._live(backoff)
            except (EngineLost, EngineRefused, ProbeDisagrees) as error:
                self.standing.forget(error.code, error.detail)
                wait_s = backoff.failed()
                log.error("engine.in_doubt", extra={"code": error.code, "detail": error.detail, "restart_in_s": wait_s})
                await self._engine.stop()
                if backoff.is_hopeless:
                    raise EngineHopeless(num_starts=backoff.num_failures, detail=error.detail) from error
                await self._clock.sleep(wait_s)

    async def _live(self, backoff: Backoff) -> None:
        """One engine, from its start to its end, which always raises."""
        await self._start()
        self.standing.forget("weights.none", "the engine has its base weights; no version was confirmed yet")
        follower = WeightFollower(
            feed=self._feed,
            engine=self._engine,
            memory=self._memory,
            standing=self.standing,
            subscription=pb.SubscribeRequest(node=self._config.node, run=self._config.run),
        )
        reconnect = Backoff(self._config.reconnect_s, self._config.max_reconnect_s, max_failures=0)
        following = asyncio.ensure_future(follower.run(clock=self._clock, reconnect=reconnect))
        ended = asyncio.ensure_future(self._engine.ended())
        try:
            await asyncio.wait({following, ended}, return_when=asyncio.FIRST_COMPLETED)
            if ended.done():
                raise EngineLost(ended.result())
            following.result()
        finally:
            if follower.num_confirmed:
                backoff.succeeded()
            following.cancel()
            ended.cancel()
            await asyncio.gather(following, ended, return_exceptions=True)

    async def _start(self) -> None:
        outcome = "failed"
        try:
            await self._engine.start()
            outcome = "started"
        finally:
            metrics.ENGINE_STARTS.labels(outcome=outcome).inc()

    async def _report_forever(self) -> None:
        while True:
            self._changed.clear()
            await self._report(ev.NODE_STATE_READY if self.standing.is_ready else ev.NODE_STATE_FENCED)
            tick = asyncio.ensure_future(self._clock.sleep(self._config.report_s))
            change = asyncio.ensure_future(self._changed.wait())
            try:
                await asyncio.wait({tick, change}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                tick.cancel()
                change.cancel()

    async def _report(self, state: "ev.NodeState.ValueType") -> None:
        await self._look()
        report = ev.NodeReported(
            node=self._config.node,
            run=self.standing.weights.run or self._config.run,
            state=state,
            version=self.standing.weights.version,
            engine_url=self._config.advertised_url,
            failure=self._failure(),
            num_running=self._load.num_running,
            num_waiting=self._load.num_waiting,
            interval_s=self._config.report_s,
            max_context_tokens=self._config.engine.max_context_tokens,
        )
        report.at.FromDatetime(self._clock.now())
        metrics.IS_READY.set(state == ev.NODE_STATE_READY)
        metrics.VERSION.set(report.version)
        try:
            await self._bus.publish(report)
        except BusTransient as error:  # the next report says it again
            log.warning("report.failed", extra={"detail": error.detail})

    def _failure(self) -> Failure | None:
        fence = self.standing.fence
        return Failure(owner=OWNER_INFERENCE, code=fence.code, detail=fence.detail[:2000]) if fence else None

    async def _look(self) -> None:
        try:
            self._load = await self._engine.load()
        except EngineRefused:  # not up yet, or no more: nothing runs in it
            self._load = Load()

    async def _finish(self) -> None:
        """Let requests in the engine finish, within a bound."""
        deadline_s = self._clock.monotonic() + self._config.finish_s
        while self._clock.monotonic() < deadline_s:
            await self._look()
            if self._load == Load():
                return
            await self._clock.sleep(IDLE_CHECK_S)
        log.warning("requests.abandoned", extra={"num_running": self._load.num_running})
