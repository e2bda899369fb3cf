"""Proof from the topics alone that a run lost nothing and trained nothing twice.

Pure: a run's events in, a `Verdict` out. Redelivered events count once; events that contradict each other are
offences. An offence names the rollout, group or turn it is about. A rollout of a run that has not ended may be open,
which is no offence. Blobs are not read: arrays that a turn keeps elsewhere are not measured here.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from google.protobuf.message import Message

from rein.v1 import events_pb2 as ev
from rein_contracts.ids import AttemptId, RolloutId, attempt_id, rollout_id

#: What the audit has to read.
EVENTS: tuple[type[Message], ...] = (
    ev.RunChanged,
    ev.GroupOpened,
    ev.RolloutRequested,
    ev.TurnCaptured,
    ev.RolloutGraded,
    ev.GroupAssembled,
    ev.StepCompleted,
)

_ENDED = (ev.RUN_STATE_COMPLETED, ev.RUN_STATE_STOPPED, ev.RUN_STATE_FAILED)


@dataclass(frozen=True, slots=True)
class Offence:
    """Something that must not be."""

    code: str
    about: str
    """Rollout, attempt, group or step."""
    detail: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the events prove. `requested` = the sum of the counts after it."""

    run: str
    state: str
    requested: int
    trained: int
    evaluated: int
    set_aside: Mapping[str, int]
    """Rewarded, but not trained on, by reason (group dropped or skipped, run ended)."""
    absent: Mapping[str, int]
    """Ended without a reward, by reason."""
    open: int
    """Not ended yet; only while the run has not ended."""
    lost: int
    """Without an end although the run has ended."""
    doubled: int
    """With more than one end, or trained on more than once (and counted once above)."""
    retried: int
    """Attempts beyond the first."""
    steps: int
    offences: tuple[Offence, ...]

    @property
    def is_clean(self) -> bool:
        return not self.offences


@dataclass(slots=True)
class _Log:
    """A run's events, redelivery folded away."""

    changed: list[ev.RunChanged] = field(default_factory=list)
    opened: dict[str, ev.GroupOpened] = field(default_factory=dict)
    requested: dict[RolloutId, set[int]] = field(default_factory=lambda: defaultdict(set))
    turns: dict[AttemptId, dict[int, ev.TurnCaptured]] = field(default_factory=lambda: defaultdict(dict))
    graded: dict[AttemptId, list[ev.RolloutGraded]] = field(default_factory=lambda: defaultdict(list))
    assembled: dict[str, list[ev.GroupAssembled]] = field(default_factory=lambda: defaultdict(list))
    steps: dict[int, ev.StepCompleted] = field(default_factory=dict)
    offences: list[Offence] = field(default_factory=list)

    def accuse(self, code: str, *, about: object, detail: str) -> None:
        self.offences.append(Offence(code, str(about), detail))


def audit(events: Iterable[Message], *, run: str) -> Verdict:
    """Judge `run` by its events; events of other runs are passed over."""
    log = _read(events, run=run)
    trained_in, skipped = _trained_groups(log)
    _judge_groups(log)
    _judge_training(log, trained_in=trained_in, skipped=skipped)
    _judge_turns(log)
    return _count(log, run=run, trained_in=trained_in, skipped=skipped)


def _read(events: Iterable[Message], *, run: str) -> _Log:
    log = _Log()
    for event in events:
        match event:
            case ev.RunChanged() if event.run == run:
                log.changed.append(event)
            case ev.StepCompleted() if event.run == run:
                _read_step(log, event)
            case ev.GroupOpened() if event.group.run == run:
                log.opened[event.group.group] = event
            case ev.GroupAssembled() if event.group.run == run:
                log.assembled[event.group.group].append(event)
            case ev.RolloutRequested() if event.identity.run == run:
                log.requested[rollout_id(event.identity)].add(event.identity.attempt)
            case ev.RolloutGraded() if event.identity.run == run:
                log.graded[attempt_id(event.identity)].append(event)
            case ev.TurnCaptured() if event.identity.run == run:
                _read_turn(log, event)
            case _:
                pass
    return log


def _read_step(log: _Log, step: ev.StepCompleted) -> None:
    known = log.steps.setdefault(step.step, step)
    if list(known.groups) != list(step.groups):
        log.accuse("step.contradicts", about=f"step {step.step}", detail="was completed twice with different groups")


def _read_turn(log: _Log, turn: ev.TurnCaptured) -> None:
    attempt = attempt_id(turn.identity)
    known = log.turns[attempt].setdefault(turn.turn, turn)
    if known.sampled_ids != turn.sampled_ids or known.prompt_ids != turn.prompt_ids:
        log.accuse("turn.contradicts", about=attempt, detail=f"turn {turn.turn} was captured twice with different ids")


def _trained_groups(log: _Log) -> tuple[dict[str, list[int]], dict[str, str]]:
    """Steps that trained each group, and the reason each skipped group was skipped for."""
    trained_in: dict[str, list[int]] = defaultdict(list)
    skipped: dict[str, str] = {}
    for number, step in sorted(log.steps.items()):
        for group in step.groups:
            trained_in[group].append(number)
        skipped.update({each.group: each.failure.code or "unnamed" for each in step.skipped})
    return trained_in, skipped


def _ends(log: _Log) -> dict[RolloutId, list[tuple[ev.GroupAssembled, ev.MemberOutcome]]]:
    ends: dict[RolloutId, list[tuple[ev.GroupAssembled, ev.MemberOutcome]]] = defaultdict(list)
    for groups in log.assembled.values():
        for group in groups:
            for member in group.members:
                ends[rollout_id(member.identity)].append((group, member))
    return ends


def _rollouts(log: _Log) -> set[RolloutId]:
    """Every rollout the dispatcher asked for: members of opened groups and requested ones."""
    members = {RolloutId(name, member) for name, group in log.opened.items() for member in range(group.size)}
    return members | set(log.requested)


def _has_ended(log: _Log) -> bool:
    return any(change.state in _ENDED for change in log.changed)


def _judge_groups(log: _Log) -> None:
    """One end per rollout, in one end of its group, with a reward that was measured or a named reason."""
    for name, ends in log.assembled.items():
        if len(ends) > 1:
            log.accuse("group.doubled", about=name, detail=f"was assembled {len(ends)} times")
        if name not in log.opened:
            log.accuse("group.unknown", about=name, detail="was assembled but never opened")
    ends_of, rollouts = _ends(log), _rollouts(log)
    for rollout in sorted(rollouts | set(ends_of), key=str):
        ends_here = ends_of.get(rollout, [])
        if rollout not in rollouts:
            log.accuse("rollout.unknown", about=rollout, detail="has an end but was never asked for")
        if not ends_here and _has_ended(log):
            log.accuse("rollout.lost", about=rollout, detail="has no end although the run has ended")
        if len(ends_here) > 1:
            log.accuse("rollout.doubled", about=rollout, detail=f"has {len(ends_here)} ends")
        for _, outcome in ends_here[:1]:
            _judge_outcome(log, rollout, outcome)


def _judge_outcome(log: _Log, rollout: RolloutId, outcome: ev.MemberOutcome) -> None:
    if not outcome.HasField("reward"):
        if not outcome.failure.code:
            log.accuse("rollout.unexplained", about=rollout, detail="has neither a reward nor a named reason")
        return
    grades = log.graded.get(attempt_id(outcome.identity), [])
    if not any(grade.HasField("reward") and grade.reward == outcome.reward for grade in grades):
        detail = f"has reward {outcome.reward}, which no grade of attempt {outcome.identity.attempt} gave"
        log.accuse("reward.unfounded", about=rollout, detail=detail)


def _judge_training(log: _Log, *, trained_in: Mapping[str, list[int]], skipped: Mapping[str, str]) -> None:
    for group, steps in trained_in.items():
        end = next(iter(log.assembled.get(group, [])), None)
        if len(steps) > 1:
            log.accuse("group.trained_twice", about=group, detail=f"was trained on in steps {steps}")
        if end is None or end.state != ev.GROUP_STATE_READY:
            state = "never assembled" if end is None else ev.GroupState.Name(end.state)
            log.accuse("group.not_ready", about=group, detail=f"was trained on in step {steps[0]} but is {state}")
            continue
        if group in skipped:
            log.accuse("group.trained_and_skipped", about=group, detail=f"step {steps[0]} trained what another skipped")
        _judge_staleness(log, end, step=log.steps[steps[0]])
    if any(change.state == ev.RUN_STATE_COMPLETED for change in log.changed):
        for name, ends in log.assembled.items():
            if ends[0].state == ev.GROUP_STATE_READY and name not in trained_in and name not in skipped:
                log.accuse("group.untrained", about=name, detail="is READY, but the completed run did not use it")


def _judge_staleness(log: _Log, group: ev.GroupAssembled, *, step: ev.StepCompleted) -> None:
    bounds = [change.spec.max_staleness_versions for change in log.changed if change.HasField("spec")]
    if not bounds or not group.min_version:
        return
    behind = step.version - 1 - group.min_version
    if behind > bounds[-1]:
        detail = f"was trained on {behind} versions after its oldest token; the bound is {bounds[-1]}"
        log.accuse("group.stale", about=group.group.group, detail=detail)


def _judge_turns(log: _Log) -> None:
    """Of every rewarded rollout that may train: all turns, each whole."""
    for group in (ends[0] for ends in log.assembled.values()):
        if group.state != ev.GROUP_STATE_READY:
            continue
        for outcome in group.members:
            if not outcome.HasField("reward"):
                continue
            attempt = attempt_id(outcome.identity)
            turns = log.turns.get(attempt, {})
            if missing := sorted(set(range(outcome.num_turns)) - set(turns)):
                log.accuse(
                    "turn.missing", about=attempt, detail=f"turns {missing} of {outcome.num_turns} are not there"
                )
            for turn in turns.values():
                for flaw in turn_flaws(turn, turns=turns):
                    log.accuse("turn.broken", about=attempt, detail=f"turn {turn.turn}: {flaw}")


def turn_flaws(turn: ev.TurnCaptured, *, turns: Mapping[int, ev.TurnCaptured]) -> Iterator[str]:
    """What is wrong with a trainable turn; `turns` are those of its attempt, by index."""
    if not turn.is_trainable or turn.HasField("arrays"):
        return
    num_sampled = len(turn.sampled_ids)
    if len(turn.logprobs) != num_sampled:
        yield f"{num_sampled} sampled ids but {len(turn.logprobs)} log-probabilities"
    covered = 0
    for span in turn.versions:
        if span.start != covered or span.end <= span.start:
            yield f"version spans leave a gap or overlap at {covered}"
            return
        covered = span.end
    if covered != num_sampled:
        yield f"version spans cover {covered} of {num_sampled} sampled ids"
    before = 0
    if turn.HasField("parent_turn"):
        parent = turns.get(turn.parent_turn)
        if parent is None:
            yield f"its parent, turn {turn.parent_turn}, is not there"
            return
        if parent.HasField("arrays"):
            return
        before = parent.num_prompt_tokens + len(parent.sampled_ids)
    if before + len(turn.prompt_ids) != turn.num_prompt_tokens:
        yield f"prompt has {before + len(turn.prompt_ids)} ids but {turn.num_prompt_tokens} are claimed"


def _count(log: _Log, *, run: str, trained_in: Mapping[str, list[int]], skipped: Mapping[str, str]) -> Verdict:
    ends_of, rollouts = _ends(log), _rollouts(log)
    fates: Counter[str] = Counter()
    set_aside: Counter[str] = Counter()
    absent: Counter[str] = Counter()
    for rollout in rollouts:
        if not (ends := ends_of.get(rollout)):
            fates["lost" if _has_ended(log) else "open"] += 1
            continue
        group, outcome = ends[0]
        if len(ends) > 1 or len(trained_in.get(rollout.group, [])) > 1:
            fates["doubled"] += 1
        if not outcome.HasField("reward"):
            absent[outcome.failure.code or "unexplained"] += 1
        elif group.state == ev.GROUP_STATE_EVALUATED:
            fates["evaluated"] += 1
        elif trained_in.get(rollout.group):
            fates["trained"] += 1
        else:
            reason = group.failure.code if group.state == ev.GROUP_STATE_DROPPED else skipped.get(rollout.group)
            set_aside[reason or ("run.ended_first" if _has_ended(log) else "waiting")] += 1
    return Verdict(
        run=run,
        state=_state(log),
        requested=len(rollouts),
        trained=fates["trained"],
        evaluated=fates["evaluated"],
        set_aside=dict(sorted(set_aside.items())),
        absent=dict(sorted(absent.items())),
        open=fates["open"],
        lost=fates["lost"],
        doubled=fates["doubled"],
        retried=sum(len(attempts) - 1 for attempts in log.requested.values()),
        steps=len(log.steps),
        offences=tuple(log.offences),
    )


def _state(log: _Log) -> str:
    """How the run ended, or where it stands. A late redelivery of an earlier state does not reopen it."""
    if not log.changed:
        return "UNKNOWN"
    state = max(change.state for change in log.changed)
    return ev.RunState.Name(state).removeprefix("RUN_STATE_")
