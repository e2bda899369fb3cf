"""The weight server: publish -> store -> stage on the nodes -> switch them together.

A publish is acknowledged once its bytes are verified and durable. What nodes are told follows from the store and the
fleet alone, so a restart forgets nothing but who was subscribed, and nodes subscribe again by themselves.
"""

import asyncio
import logging
import re
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Iterator
from itertools import islice

from rein.v1 import weights_pb2 as pb
from rein_service import Status
from rein_service.clock import Clock
from rein_transfer.errors import VersionTaken
from rein_transfer.rpc import MAX_MESSAGE_BYTES
from rein_transfer.wire import Chunk, Frame, switch_frame
from rein_weightserver import metrics
from rein_weightserver.domain.fleet import Fleet, Leave, Node, Phase, Send, Switch, Weights
from rein_weightserver.domain.keeping import Pin, surplus, wanted
from rein_weightserver.errors import NodeLeftOut, PublishUnfit, VersionMissing
from rein_weightserver.ports import VersionStore

log = logging.getLogger(__name__)

#: Run names become folder names.
RUN_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")

_STATES = {
    Phase.STAGED: pb.CONFIRM_STATE_STAGED,
    Phase.SWITCHED: pb.CONFIRM_STATE_STAGED,
    Phase.LIVE: pb.CONFIRM_STATE_LIVE,
    Phase.FAILED: pb.CONFIRM_STATE_FAILED,
    Phase.LEFT_OUT: pb.CONFIRM_STATE_FAILED,
}


class WeightServer:
    """One per process; all methods run on one event loop."""

    def __init__(self, *, store: VersionStore, clock: Clock, stage_s: float, keep_versions: int, tick_s: float) -> None:
        self._store = store
        self._clock = clock
        self._keep_versions = keep_versions
        self._tick_s = tick_s
        self._fleet = Fleet(stage_s=stage_s)
        self._changed = asyncio.Event()
        self._storing = asyncio.Lock()
        for run in store.runs():
            self._fleet.restore(run, self._wanted(run))
        self._fleet.follow(store.newest_run(), now_s=clock.monotonic())

    async def run(self, draining: asyncio.Event) -> None:
        """Leave out late nodes until asked to stop."""
        while not draining.is_set():
            tick = asyncio.ensure_future(self._clock.sleep(self._tick_s))
            stop = asyncio.ensure_future(draining.wait())
            try:
                await asyncio.wait([tick, stop], return_when=asyncio.FIRST_COMPLETED)
            finally:
                tick.cancel()
                stop.cancel()
            self._expire()

    async def publish(self, frames: AsyncIterator[Frame]) -> int:
        """Take one version; the version's number once it is durable."""
        manifest = await anext(frames, None)
        if not isinstance(manifest, pb.WeightManifest):
            raise PublishUnfit("the first frame of a publish must be the manifest")
        _check(manifest)
        if not self._is_held(manifest):
            await self._take(manifest, frames=frames)
        self._accept(manifest)
        return manifest.version

    async def subscribe(self, request: pb.SubscribeRequest) -> AsyncGenerator[bytes, None]:
        """Frames for one node, for as long as it listens. Raises NodeLeftOut."""
        have = Weights(request.have_version, request.have_digest)
        node = self._fleet.join(request.node, wants_run=request.run, have=have, now_s=self._clock.monotonic())
        metrics.NODES_SUBSCRIBED.inc()
        log.info("node.subscribed", extra={"node": node.name, "run": node.wants_run, "have": have.version})
        self._wake()
        try:
            async for frame in self._instructions(node):
                yield frame
        finally:
            self._fleet.leave(node)
            metrics.NODES_SUBSCRIBED.dec()
            log.info("node.left", extra={"node": node.name, "phase": node.phase.value})
            self._wake()

    def confirm(self, request: pb.ConfirmRequest) -> None:
        """What a node says about a version. One that is not about its present target changes nothing."""
        weights = Weights(request.version, request.digest)
        match request.state:
            case pb.CONFIRM_STATE_STAGED:
                self._fleet.staged(request.node, weights)
            case pb.CONFIRM_STATE_LIVE:
                self._fleet.live(request.node, weights)
            case pb.CONFIRM_STATE_FAILED:
                self._fleet.failed(request.node, weights, detail=request.detail)
        state = pb.ConfirmState.Name(request.state)
        metrics.CONFIRMS.labels(state=state).inc()
        log.info(
            "node.confirmed",
            extra={"node": request.node, "version": request.version, "state": state, "detail": request.detail},
        )
        self._wake()

    def list(self, run: str) -> pb.ListResponse:
        """Kept versions, the current one, and where each node stands; "" = the run that published last."""
        run = run or self._fleet.newest_run
        versions = self._store.versions(run)
        current = self._fleet.current(run)
        return pb.ListResponse(
            versions=[versions[version] for version in sorted(versions)],
            current=current.version if current else 0,
            nodes=[_shown(node) for node in self._fleet.nodes(run)],
        )

    def rollback(self, run: str, *, version: int) -> int:
        """Make the nodes of `run` go back to `version` until a newer one is published. Raises VersionMissing."""
        kept = self._store.versions(run)
        if version not in kept:
            raise VersionMissing(run=run, version=version, kept=sorted(kept))
        self._store.write_pin(run, Pin(version=version, newest=max(kept)))
        log.warning("weights.rolled_back", extra={"run": run, "version": version})
        self._aim(run)
        return version

    def status(self) -> Status:
        run = self._fleet.newest_run
        current = self._fleet.current(run)
        return Status(
            num_in_flight=sum(node.phase in {Phase.WAITING, Phase.SENDING} for node in self._fleet.nodes(run)),
            details={
                "run": run,
                "version": str(current.version if current else 0),
                "nodes": str(len(self._fleet.nodes(run))),
            },
        )

    async def _take(self, manifest: pb.WeightManifest, *, frames: AsyncIterator[Frame]) -> None:
        with self._store.arrival(manifest) as arrival:
            async for frame in frames:
                if not isinstance(frame, Chunk):
                    raise PublishUnfit("after the manifest only chunks may follow")
                arrival.write(frame)
                metrics.BYTES_RECEIVED.inc(frame.data.nbytes)
            async with self._storing:
                if not self._is_held(manifest):
                    await _uninterrupted(asyncio.to_thread(self._store.keep, arrival))

    def _is_held(self, manifest: pb.WeightManifest) -> bool:
        """Whether these bytes are here already. Raises VersionTaken when others are."""
        held = self._store.versions(manifest.run).get(manifest.version)
        if held and held.digest != manifest.digest:
            raise VersionTaken(
                run=manifest.run,
                version=manifest.version,
                detail=f"version {held.version} of run {held.run!r} is kept with digest {held.digest}, this one has "
                f"{manifest.digest}; publish other weights under another version",
            )
        return held is not None

    def _accept(self, manifest: pb.WeightManifest) -> None:
        run = manifest.run
        if run != self._fleet.newest_run:
            self._store.write_newest_run(run)
            self._fleet.follow(run, now_s=self._clock.monotonic())
        self._aim(run)
        in_use = {weights.version for weights in (self._fleet.target(run), self._fleet.current(run)) if weights}
        for version in surplus(self._store.versions(run), num_keep=self._keep_versions, in_use=in_use):
            self._store.forget(run, version)
        log.info("weights.published", extra={"run": run, "version": manifest.version, "digest": manifest.digest})

    def _aim(self, run: str) -> None:
        self._fleet.retarget(run, self._wanted(run), now_s=self._clock.monotonic())
        self._wake()

    def _wanted(self, run: str) -> Weights:
        versions = self._store.versions(run)
        manifest = versions[wanted(versions, self._store.pin(run))]
        return Weights(manifest.version, manifest.digest)

    async def _instructions(self, node: Node) -> AsyncIterator[bytes]:
        while True:
            changed = self._changed
            match self._fleet.next_for(node):
                case Send(weights, with_chunks):
                    num_frames = None if with_chunks else 1
                    for frame in islice(self._frames(node, weights), num_frames):
                        yield frame
                case Switch(weights):
                    yield switch_frame(version=weights.version, digest=weights.digest)
                case Leave(detail):
                    raise NodeLeftOut(node.name, detail)
                case None:
                    await changed.wait()

    def _frames(self, node: Node, weights: Weights) -> Iterator[bytes]:
        manifest = self._store.versions(self._fleet.run_of(node))[weights.version]
        for frame in self._store.frames(manifest):
            if not self._fleet.is_wanted(node, weights):
                return
            yield frame
            metrics.BYTES_SENT.inc(len(frame))

    def _expire(self) -> None:
        for node in self._fleet.expire(now_s=self._clock.monotonic()):
            metrics.NODES_LEFT_OUT.inc()
            log.warning("node.left_out", extra={"node": node.name, "detail": node.detail})
            self._wake()

    def _wake(self) -> None:
        """Let every open subscription look again."""
        self._changed.set()
        self._changed = asyncio.Event()


async def _uninterrupted(work: Coroutine[None, None, None]) -> None:
    """Wait for `work` even when cancelled: a thread goes on, and what it works on must not be taken from it."""
    running = asyncio.ensure_future(work)
    try:
        await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait([running])
        raise


def _check(manifest: pb.WeightManifest) -> None:
    if not RUN_NAME.fullmatch(manifest.run):
        raise PublishUnfit(f"run {manifest.run!r} is no run name; use 1 to 40 of a-z, 0-9 and -, not starting with -")
    if manifest.version < 1:
        raise PublishUnfit("versions count from 1; 0 means base weights that never serve training")
    if not 0 < manifest.chunk_bytes < MAX_MESSAGE_BYTES:
        raise PublishUnfit(f"chunk_bytes is {manifest.chunk_bytes}; 1 to 2 MiB serve best")
    if manifest.size_bytes < 1 or not manifest.digest:
        raise PublishUnfit("the manifest must say size_bytes and digest")


def _shown(node: Node) -> pb.NodeWeights:
    return pb.NodeWeights(
        node=node.name,
        version=node.weights.version if node.weights else 0,
        state=_STATES.get(node.phase, pb.CONFIRM_STATE_UNSPECIFIED),
        detail=node.detail,
    )
