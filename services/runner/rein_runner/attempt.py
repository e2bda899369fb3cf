"""One attempt, from request to `RolloutFinished`: tree, sandbox, harness, session's end, patch.

Whatever happens, an event comes of it, with a failure that names its owner. Cancelling it kills the sandbox and removes
its folder, and no event comes of it; the canceller says why in an event of its own. Leases are not known here.
"""

from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from rein.v1 import events_pb2 as ev
from rein.v1 import identity_pb2 as pb
from rein_blobs import BlobStore, BlobUnavailable
from rein_bus.errors import ReinError
from rein_contracts import grants
from rein_contracts.ids import attempt_id
from rein_harnesses import RUNTIME
from rein_runner.config import RunnerConfig
from rein_runner.domain.session import SessionEnd
from rein_runner.domain.verdict import failure, failure_of
from rein_runner.errors import GatewayAway, HarnessRefused, TaskRefused
from rein_runner.ports import Bench, Gateway, Workshop
from rein_sandboxes.errors import PatchRefused, SandboxFailed
from rein_sandboxes.folders import owned_folder
from rein_sandboxes.ports import (
    WORKSPACE,
    Mount,
    PipeTarget,
    SandboxLimits,
    SandboxProvider,
    SandboxResult,
    SandboxSpec,
)
from rein_sandboxes.trees import WorkPlace, extract_patch
from rein_service.clock import Clock

#: A grant outlives the harness by this much: its session is ended with it.
GRANT_MARGIN_S = 300.0
#: "No bound" in a request.
LONGEST_S = 24 * 3600.0
MOST_OUTPUT_BYTES = 64 << 20
KEPT_OUTPUT_BYTES = 64 << 10
#: Output beyond what is kept is let pass this many times over before it counts as a flood.
FLOOD_FACTOR = 64

_OWNERS: tuple[tuple[type[ReinError], pb.Owner.ValueType], ...] = (
    (SandboxFailed, pb.OWNER_SANDBOX),
    (GatewayAway, pb.OWNER_INFERENCE),
    (TaskRefused, pb.OWNER_TASK),
    (HarnessRefused, pb.OWNER_OPERATOR),
    (BlobUnavailable, pb.OWNER_OPERATOR),
)


@dataclass(frozen=True, slots=True)
class Means:
    """What every attempt works with."""

    sandboxes: SandboxProvider
    workshop: Workshop
    gateway: Gateway
    blobs: BlobStore
    clock: Clock
    settings: "AttemptSettings"


@dataclass(frozen=True, slots=True)
class AttemptSettings:
    """From the configuration."""

    state: Path
    instance: str
    grant_secret: bytes
    max_patch_bytes: int
    gateway_patience_s: float

    @classmethod
    def of(cls, config: RunnerConfig, *, state: Path) -> "AttemptSettings":
        return cls(
            state=state,
            instance=config.instance,
            grant_secret=config.grant_secret.get_secret_value().encode(),
            max_patch_bytes=config.max_patch_bytes,
            gateway_patience_s=config.gateway_patience_s,
        )


def started(request: ev.RolloutRequested, *, runner: str) -> ev.RolloutFinished:
    """The event of this attempt, still without an outcome."""
    return ev.RolloutFinished(
        identity=request.identity,
        purpose=request.purpose,
        harness=request.harness,
        task_set=request.task_set,
        task_digest=request.task_digest,
        limits=request.limits,
        runner=runner,
    )


class Attempt:
    """Runs once."""

    def __init__(self, request: ev.RolloutRequested, *, means: Means) -> None:
        self._request = request
        self._means = means
        self._attempt = str(attempt_id(request.identity))
        self._name = self._attempt.replace("/", ".").replace("#", "-")
        self._wall_s = request.limits.wall_s or LONGEST_S
        self._event = started(request, runner=means.settings.instance)

    async def run(self) -> ev.RolloutFinished:
        """The finished attempt; only unknown errors are raised."""
        try:
            await self._in_folder()
        except tuple(kind for kind, _ in _OWNERS) as error:
            owner = next(owner for kind, owner in _OWNERS if isinstance(error, kind))
            self._event.failure.CopyFrom(failure(owner, error.code, error.detail))
        self._event.at.FromDatetime(self._means.clock.now())
        return self._event

    async def _in_folder(self) -> None:
        about = {"run": self._request.identity.run, "attempt": self._attempt}
        live = self._means.settings.state / "live"
        async with owned_folder(live, name=self._name, about=about, most_s=self._wall_s + LONGEST_S) as folder:
            place = WorkPlace(name=self._name, tree=folder / "tree", scratch=folder)
            bench = await self._means.workshop.set_up(self._request, tree=place.tree)
            self._event.harness_version = bench.harness_version
            grant = self._grant()
            result = await self._means.sandboxes.run(self._spec(place, bench=bench, grant=grant))
            await self._record(result)
            session = await self._means.gateway.end(self._attempt, grant=grant)
            self._event.num_turns = session.num_turns if session else 0
            await self._take_patch(place, kept=bench.kept)
            self._judge(result, session=session)

    def _grant(self) -> str:
        request = self._request
        issued_at_s = self._means.clock.now().timestamp()
        grant = pb.AttemptGrant(
            identity=request.identity,
            purpose=request.purpose,
            sampling=request.sampling,
            limits=request.limits,
            harness=request.harness,
            issued_at_s=issued_at_s,
            expires_at_s=issued_at_s + self._wall_s + GRANT_MARGIN_S,
            policy_version=request.policy_version,
        )
        return grants.mint(grant, secret=self._means.settings.grant_secret)

    def _spec(self, place: WorkPlace, *, bench: Bench, grant: str) -> SandboxSpec:
        limits = self._request.limits
        kept = limits.output_bytes or KEPT_OUTPUT_BYTES
        settings = self._means.settings
        runtime = [Mount(bench.runtime, PurePosixPath(RUNTIME))] if bench.runtime else []
        return SandboxSpec(
            name=self._name,
            argv=bench.command.argv,
            scratch=place.scratch,
            limits=SandboxLimits(
                wall_s=self._wall_s,
                memory_bytes=limits.memory_bytes or None,
                processes=limits.processes or None,
                kept_output_bytes=kept,
                output_bytes=min(kept * FLOOD_FACTOR, MOST_OUTPUT_BYTES),
            ),
            env=bench.command.env,
            files=bench.command.files,
            mounts=(Mount(place.tree, WORKSPACE, is_writable=True), *runtime),
            pipe=PipeTarget(
                url=self._means.gateway.url_of(self._attempt), grant=grant, patience_s=settings.gateway_patience_s
            ),
        )

    async def _record(self, result: SandboxResult) -> None:
        self._event.exit_status = result.exit_status
        self._event.wall_s = result.wall_s
        if result.cpu_s is not None:
            self._event.cpu_s = result.cpu_s
        if result.peak_memory_bytes is not None:
            self._event.peak_memory_bytes = result.peak_memory_bytes
        if result.output:
            self._event.output.CopyFrom(await self._means.blobs.put(result.output))

    async def _take_patch(self, place: WorkPlace, *, kept: Path) -> None:
        try:
            patch = await extract_patch(
                self._means.sandboxes, place=place, kept=kept, most_bytes=self._means.settings.max_patch_bytes
            )
        except PatchRefused as error:
            self._event.failure.CopyFrom(failure(pb.OWNER_POLICY, error.code, error.detail))
            return
        if patch:
            self._event.patch.CopyFrom(await self._means.blobs.put(patch))

    def _judge(self, result: SandboxResult, *, session: SessionEnd | None) -> None:
        verdict = failure_of(result, session=session, has_patch=bool(self._event.patch.sha256))
        if verdict is not None:
            self._event.failure.CopyFrom(verdict)
