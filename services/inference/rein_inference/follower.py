"""From frames to confirmed weights: land a version in memory, wait for the switch, apply it, probe it, say so.

Invariants: what the engine is given is whole and verified. The node is ready only between a probe that agreed and the
next doubt; it is fenced while an update is under way. At most one version waits in memory. A version that the engine
serves already is acknowledged without being moved or applied again.
"""

import logging
from contextlib import suppress
from typing import NoReturn

from rein.v1 import weights_pb2 as pb
from rein_bus.errors import ReinError
from rein_inference import metrics
from rein_inference.domain.backoff import Backoff
from rein_inference.domain.probe import agrees, gap_nats
from rein_inference.domain.standing import Standing, Weights
from rein_inference.errors import EngineRefused, ProbeDisagrees, ProbeMissing
from rein_inference.ports import Arrival, Engine, Memory, WeightFeed
from rein_service.clock import Clock
from rein_transfer.errors import LeftOut, TransferRejected, TransferTransient
from rein_transfer.wire import Chunk, Frame

log = logging.getLogger(__name__)


class WeightFollower:
    """Follows the weight server during one life of the engine."""

    def __init__(
        self, *, feed: WeightFeed, engine: Engine, memory: Memory, standing: Standing, subscription: pb.SubscribeRequest
    ) -> None:
        self._feed = feed
        self._engine = engine
        self._memory = memory
        self._standing = standing
        self._subscription = subscription
        self._manifest = pb.WeightManifest()
        self._arrival: Arrival | None = None
        self._is_staged = False
        self.num_confirmed = 0
        """Versions this engine was confirmed to serve."""

    async def run(self, *, clock: Clock, reconnect: Backoff) -> NoReturn:
        """Never returns. Raises EngineRefused or ProbeDisagrees when the engine is in doubt."""
        try:
            while True:
                try:
                    await self._subscribe(reconnect)
                except (LeftOut, TransferRejected, ProbeMissing) as error:
                    self._standing.hold(error.code, error.detail)
                    log.warning("weights.missed", extra={"code": error.code, "detail": error.detail})
                except TransferTransient as error:
                    log.warning("weights.server_away", extra={"detail": error.detail})
                await clock.sleep(reconnect.failed())
        finally:
            self._discard()

    async def _subscribe(self, reconnect: Backoff) -> None:
        request = pb.SubscribeRequest()
        request.CopyFrom(self._subscription)
        if self._standing.is_ready:
            request.have_version = self._standing.weights.version
            request.have_digest = self._standing.weights.digest
        try:
            async for frame in self._feed.frames(request):
                await self._take(frame)
                if self._is_staged:
                    reconnect.succeeded()
        except (TransferRejected, ProbeMissing) as error:
            await self._tell_failed(error)
            raise

    async def _take(self, frame: Frame) -> None:
        match frame:
            case Chunk():
                await self._land(frame)
            case pb.WeightManifest():
                await self._begin(frame)
            case pb.WeightSwitch():
                await self._switch(frame)

    async def _begin(self, manifest: pb.WeightManifest) -> None:
        self._discard()
        self._manifest = manifest
        if self._is_served(manifest):
            await self._tell_staged()
            return
        if len(manifest.probe.token_ids) < 2:
            raise ProbeMissing(version=manifest.version)
        self._arrival = self._memory.arrival(manifest)

    async def _land(self, chunk: Chunk) -> None:
        if self._arrival is None or self._is_staged:
            return  # of a version that is served already
        self._arrival.write(chunk)
        metrics.BYTES_RECEIVED.inc(chunk.data.nbytes)
        if self._arrival.is_complete:
            self._arrival.finish(is_durable=False)
            await self._tell_staged()

    async def _switch(self, switch: pb.WeightSwitch) -> None:
        manifest = self._manifest
        if not self._is_staged or (switch.version, switch.digest) != (manifest.version, manifest.digest):
            log.warning("weights.switch_ignored", extra={"version": switch.version})
            return
        gap = None if self._is_served(manifest) else await self._apply(manifest)
        self._standing.confirm(Weights(manifest.run, manifest.version, manifest.digest))
        self.num_confirmed += 1
        log.info("weights.live", extra={"run": manifest.run, "version": manifest.version, "gap_nats": gap})
        await self._tell(pb.CONFIRM_STATE_LIVE, probe_gap=gap)

    async def _apply(self, manifest: pb.WeightManifest) -> float:
        """Update and probe; the gap."""
        assert self._arrival is not None
        self._standing.hold("weights.switching", f"going over to version {manifest.version}")
        try:
            with metrics.UPDATE_S.time():
                await self._engine.update(self._arrival.path, version=manifest.version)
                self._discard_file()
                gap = await self._probe(manifest)
        except (EngineRefused, ProbeDisagrees) as error:
            metrics.UPDATES.labels(outcome=error.code).inc()
            self._standing.forget(error.code, error.detail)
            await self._tell_failed(error)
            raise
        metrics.UPDATES.labels(outcome="live").inc()
        return gap

    async def _probe(self, manifest: pb.WeightManifest) -> float:
        probe = manifest.probe
        gap = gap_nats(await self._engine.logprobs(probe.token_ids), probe.logprobs)
        metrics.PROBE_GAP_NATS.set(gap)
        if not agrees(gap, tolerance=probe.tolerance):
            raise ProbeDisagrees(version=manifest.version, gap=gap, tolerance=probe.tolerance)
        return gap

    def _is_served(self, manifest: pb.WeightManifest) -> bool:
        served = self._standing.weights
        return self._standing.is_ready and (served.version, served.digest) == (manifest.version, manifest.digest)

    async def _tell_staged(self) -> None:
        self._is_staged = True
        await self._tell(pb.CONFIRM_STATE_STAGED)

    async def _tell_failed(self, error: ReinError) -> None:
        """If the server is away, it learns from the next subscription that this node starts over."""
        with suppress(TransferTransient):
            await self._tell(pb.CONFIRM_STATE_FAILED, detail=error.detail, probe_gap=getattr(error, "gap", None))

    async def _tell(
        self, state: "pb.ConfirmState.ValueType", *, detail: str = "", probe_gap: float | None = None
    ) -> None:
        manifest = self._manifest
        await self._feed.confirm(
            pb.ConfirmRequest(
                node=self._subscription.node,
                run=manifest.run,
                version=manifest.version,
                digest=manifest.digest,
                state=state,
                detail=detail,
                probe_gap=probe_gap,
            )
        )

    def _discard(self) -> None:
        """Drop whatever was on its way or staged."""
        if self._arrival is not None:
            self._arrival.discard()
            self._discard_file()
        self._arrival, self._is_staged = None, False

    def _discard_file(self) -> None:
        assert self._arrival is not None
        self._arrival.path.unlink(missing_ok=True)
