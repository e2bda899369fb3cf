"""Why a rollout failed, and who has to act. Pure.

An exit status is never a verdict on the policy: several harnesses exit 0 unfixed, or 1 after a good repair. The policy
owns what it did with its means (time, turns, tokens, memory, output); everything that kept it from being asked, or its
answers from being recorded, belongs to somebody else.
"""

from rein.v1 import identity_pb2 as pb
from rein_runner.domain.session import SessionEnd
from rein_sandboxes.ports import Ending, SandboxResult

MOST_DETAIL_CHARS = 2000

#: Limits the gateway ends a session for -> code and text.
_SESSION_LIMITS = {
    "turns": ("policy.out_of_turns", "the policy used up its model calls"),
    "tokens": ("policy.out_of_context", "the conversation grew over the policy's context"),
}
_ENDINGS = {
    Ending.OUT_OF_TIME: "the harness ran past its time limit",
    Ending.OUT_OF_MEMORY: "the sandbox ran out of memory",
    Ending.OUT_OF_PROCESSES: "the sandbox ran more processes than it may",
    Ending.OUTPUT_FLOOD: "the harness wrote more output than it may",
}


def failure(owner: pb.Owner.ValueType, code: str, detail: str) -> pb.Failure:
    return pb.Failure(owner=owner, code=code, detail=detail[:MOST_DETAIL_CHARS])


def failure_of(result: SandboxResult, *, session: SessionEnd | None, has_patch: bool) -> pb.Failure | None:
    """None = the harness ran to an end, and what it left may be graded. `session` None = the gateway knows none."""
    asked = result.pipe.num_requests
    if session is None and asked > result.pipe.num_unreachable:
        return failure(
            pb.OWNER_INFERENCE,
            "inference.session_lost",
            f"the gateway has lost the session ({asked} requests were made)",
        )
    if session is None or session.num_turns == 0:
        return _without_turns(result, has_patch=has_patch)
    if session.limit in _SESSION_LIMITS:
        return failure(pb.OWNER_POLICY, *_SESSION_LIMITS[session.limit])
    if result.ending in _ENDINGS:
        return failure(pb.OWNER_POLICY, f"policy.{result.ending.value}", _ENDINGS[result.ending])
    return None


def _without_turns(result: SandboxResult, *, has_patch: bool) -> pb.Failure:
    """The policy was never heard: nothing of this can be held against it."""
    how = f"{result.ending.value}, exit status {result.exit_status}"
    if result.pipe.num_requests:
        return failure(
            pb.OWNER_INFERENCE,
            "inference.no_turns",
            f"the model never answered {result.pipe.num_requests} requests ({how})",
        )
    if has_patch:
        return failure(
            pb.OWNER_HARNESS, "harness.changed_without_turns", f"the tree changed without a model call ({how})"
        )
    last = result.output[-300:].decode(errors="replace").strip()
    return failure(pb.OWNER_HARNESS, "harness.no_turns", f"the harness ended without a model call ({how}): {last}")
