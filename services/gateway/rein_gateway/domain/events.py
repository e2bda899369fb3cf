"""What is published of one model call: the turn, and what a person should know about it."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from rein.v1 import events_pb2 as ev
from rein.v1 import identity_pb2 as pb
from rein_dialects.neutral import Request
from rein_dialects.samples import Problem
from rein_gateway.domain.asked import overridden
from rein_gateway.domain.generation import Generation
from rein_gateway.domain.nodes import Node
from rein_gateway.domain.session import Lineage, Sample, Session


@dataclass(frozen=True, slots=True)
class Captured:
    """A finished generation with everything that is known of it."""

    grant: pb.AttemptGrant
    request: Request
    dialect: str
    lineage: Lineage
    num_prompt_tokens: int
    """Of the whole prompt, as sent."""
    generation: Generation
    sampling: pb.Sampling
    node: Node
    sample: Sample
    problems: tuple[Problem, ...]
    queued_s: float
    generated_s: float


@dataclass(frozen=True, slots=True)
class Remark:
    """A finding in the making; `is_lasting` ones are told once per session."""

    code: str
    detail: str
    is_fatal: bool = False
    is_lasting: bool = False


def turn_of(captured: Captured, *, session: Session, gateway: str, renderer_digest: str) -> ev.TurnCaptured:
    """The next turn of the session, without its time."""
    generation, parent = captured.generation, captured.lineage.parent
    fault = generation.fault(num_prompt_tokens=captured.num_prompt_tokens)
    return ev.TurnCaptured(
        identity=captured.grant.identity,
        purpose=captured.grant.purpose,
        turn=session.num_turns,
        parent_turn=parent.index if parent else None,
        kind=ev.TURN_KIND_SIDE if session.is_side(captured.request) else ev.TURN_KIND_MAIN,
        prompt_ids=captured.sample.added_ids,
        num_prompt_tokens=captured.num_prompt_tokens,
        sampled_ids=generation.token_ids,
        logprobs=generation.logprobs,
        versions=generation.spans(),
        finish_reason=generation.finish_reason,
        is_trainable=fault is None,
        untrainable=fault.code if fault else "",
        sampling=captured.sampling,
        dialect=captured.dialect,
        node=captured.node.name,
        gateway=gateway,
        renderer_digest=renderer_digest,
        queued_s=captured.queued_s,
        generated_s=captured.generated_s,
    )


def remarks_on(captured: Captured, *, session: Session) -> Iterator[Remark]:
    """Everything odd about a turn."""
    request, lineage, generation = captured.request, captured.lineage, captured.generation
    if fault := generation.fault(num_prompt_tokens=captured.num_prompt_tokens):
        yield Remark(fault.code, fault.detail, is_fatal=True)
    if generation.versions and 0 < generation.versions[0][0] < captured.node.version:
        reported = generation.versions[0][0]
        detail = f"node {captured.node.name} had confirmed version {captured.node.version} and sampled under {reported}"
        yield Remark("tokens.version_unexpected", detail)
    if lineage.is_rewritten:
        after = f"turn {lineage.parent.index}" if lineage.parent else "its beginning"
        yield Remark("session.forked", f"the history was rewritten after {after}")
    elif lineage.parent is None and session.num_turns > 0:
        yield Remark("session.forked", "a conversation of its own: it continues no recorded turn")
    elif lineage.parent is not None and session.is_continued(lineage.parent):
        yield Remark("session.forked", f"a second continuation of turn {lineage.parent.index}")
    for problem in captured.problems:
        yield Remark(problem.value, f"read as text: {captured.sample.answer.content!r}"[:500])
    for line in overridden(request.asked, sampling=captured.sampling):
        yield Remark("sampling.overridden", f"the harness asked for {line}", is_lasting=True)
    if request.unknown:
        yield Remark("request.unknown_fields", ", ".join(request.unknown)[:500], is_lasting=True)
    for text in request.set_aside:
        yield Remark("request.text_set_aside", text[:500], is_lasting=True)


def finding_of(remark: Remark, *, identity: pb.Identity, turn: int | None, at: datetime) -> ev.FindingRecorded:
    finding = ev.FindingRecorded(
        identity=identity, turn=turn, code=remark.code, detail=remark.detail, is_fatal=remark.is_fatal
    )
    finding.at.FromDatetime(at)
    return finding
