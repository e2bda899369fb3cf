"""What a run needs next, given its books: the events to publish now.

`decide` is pure and may be called at any time and after any crash: everything it asks for that is already in the books
is not asked for again. Fences come before new attempts, so the assembler never waits for an attempt nobody runs.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from google.protobuf.message import Message

from rein.v1 import events_pb2 as ev
from rein.v1 import identity_pb2 as pb
from rein_contracts.ids import group_id
from rein_dispatcher.domain.book import GroupBook, MemberBook, RunBook
from rein_dispatcher.domain.choice import evaluation_tasks, harness_of, training_task

#: A run fails when this many steps' worth of training groups were dropped in a row.
DROPPED_STEPS_LIMIT = 3
#: Longest pause before another attempt, seconds.
RETRY_LIMIT_S = 30.0


@dataclass(frozen=True, slots=True)
class Tasks:
    """The run's task set, as far as scheduling needs it."""

    train: Sequence[str]
    heldout: Sequence[str]
    digests: Mapping[str, str]
    """Content digest by task name."""


@dataclass(frozen=True, slots=True)
class Scheduler:
    """Decides for one run."""

    tasks: Tasks
    lease_s: float
    """Lease granted to runners, seconds."""

    def decide(self, book: RunBook, *, now_s: float) -> list[Message]:
        """Events to publish now, in order; an empty list means wait."""
        if book.run.state not in (ev.RUN_STATE_RUNNING, ev.RUN_STATE_STOPPING):
            return [*self._give_up_all(book, _failure(pb.OWNER_OPERATOR, "run.ended", "The run has ended."))]
        ending = _ending(book)
        if ending is not None:
            return [ending]
        if book.run.state == ev.RUN_STATE_STOPPING:
            stopped = _failure(pb.OWNER_OPERATOR, "run.stopped", "The run was stopped on request.")
            return [*self._give_up_all(book, stopped)]
        return [*self._tend(book, now_s), *self._open(book)]

    def _give_up_all(self, book: RunBook, failure: pb.Failure) -> Iterator[Message]:
        for group in book.open_groups().values():
            yield from _give_up_group(group, failure)

    def _tend(self, book: RunBook, now_s: float) -> Iterator[Message]:
        """Fences and next attempts of open groups."""
        for group in book.open_groups().values():
            if now_s - group.opened_at_s > book.spec.group_deadline_s:
                late = f"The group was still open after {book.spec.group_deadline_s:g} s."
                yield from _give_up_group(group, _failure(pb.OWNER_OPERATOR, "group.deadline", late))
                continue
            assert group.opened is not None
            for index in range(group.opened.size):
                yield from self._tend_member(book, group.opened, index, group.member(index), now_s)

    def _tend_member(
        self, book: RunBook, opened: ev.GroupOpened, index: int, member: MemberBook, now_s: float
    ) -> Iterator[Message]:
        if member.is_given_up:
            return
        trouble = _trouble(member, now_s)
        if trouble is not None:
            is_final = member.attempt >= book.spec.max_attempts or trouble.owner == pb.OWNER_TASK
            yield _fence(opened, index, member.attempt, trouble, is_final)
        elif member.attempt == member.fenced_attempt and now_s >= _retry_at_s(member):
            yield self._request(book, opened, index, member.attempt + 1)

    def _open(self, book: RunBook) -> Iterator[Message]:
        """New groups: a due evaluation first, else training up to the staleness bound."""
        spec = book.spec
        due = _next_evaluation(book)
        if due is not None and book.confirmed_version == due + 1:
            names = evaluation_tasks(self.tasks.heldout, seed=spec.seed, num_tasks=spec.eval.num_tasks)
            for place, task in enumerate(names):
                number = _eval_rank(book, due) * len(names) + place
                size = spec.eval.samples_per_task
                yield from self._open_group(book, pb.PURPOSE_EVAL, number, task, due, size)
        last_step = min(spec.steps, book.confirmed_version + spec.max_staleness_versions, *_evaluation_cap(book))
        number = book.num_train_opened
        for step in range(1, last_step + 1 if book.confirmed_version > 0 else 0):
            for _ in range(spec.groups_per_step - book.num_train_groups_by_step.get(step, 0)):
                task = training_task(self.tasks.train, seed=spec.seed, number=number)
                yield from self._open_group(book, pb.PURPOSE_TRAIN, number, task, step, spec.group_size)
                number += 1

    def _open_group(
        self, book: RunBook, purpose: "pb.Purpose.ValueType", number: int, task: str, step: int, size: int
    ) -> Iterator[Message]:
        name = group_id(book.spec.name, purpose=purpose, number=number)
        if name in book.opened:
            return
        opened = ev.GroupOpened(
            group=pb.Identity(run=book.spec.name, task=task, group=name),
            size=size,
            min_size=book.spec.min_group_size if purpose == pb.PURPOSE_TRAIN else 1,
            purpose=purpose,
            policy_version=book.confirmed_version,
            step=step,
        )
        yield opened
        for index in range(size):
            yield self._request(book, opened, index, 1)

    def _request(self, book: RunBook, opened: ev.GroupOpened, index: int, attempt: int) -> ev.RolloutRequested:
        spec = book.spec
        task = opened.group.task
        return ev.RolloutRequested(
            identity=_identity(opened, index, attempt),
            purpose=opened.purpose,
            harness=harness_of(spec.harnesses, seed=spec.seed, task=task, member=index),
            task_set=spec.task_set,
            task_digest=self.tasks.digests[task],
            sampling=spec.sampling,
            limits=spec.limits,
            policy_version=book.confirmed_version,
            lease_s=self.lease_s,
        )


def _ending(book: RunBook) -> ev.RunChanged | None:
    """The run's last event, if it is time for it."""
    failure = _fatal(book)
    if failure is not None:
        return ev.RunChanged(run=book.spec.name, state=ev.RUN_STATE_FAILED, spec=book.spec, failure=failure)
    if book.run.state == ev.RUN_STATE_STOPPING:
        is_over, state = not book.open_groups(), ev.RUN_STATE_STOPPED
    else:
        is_trained = book.confirmed_version == book.spec.steps + 1
        is_over, state = is_trained and _next_evaluation(book) is None, ev.RUN_STATE_COMPLETED
        is_over = is_over and not _running_evaluation(book) and not book.open_groups()
    return ev.RunChanged(run=book.spec.name, state=state, spec=book.spec) if is_over else None


def _fatal(book: RunBook) -> pb.Failure | None:
    """Why the run cannot go on: a stop alert, or nothing but dropped groups (cases B6 and G9)."""
    if book.stop_alert is not None:
        return _failure(pb.OWNER_OPERATOR, book.stop_alert.code, book.stop_alert.detail)
    if book.num_dropped_in_a_row < DROPPED_STEPS_LIMIT * book.spec.groups_per_step:
        return None
    last = book.last_drop
    detail = f"{book.num_dropped_in_a_row} groups in a row ended without training data; the last: {last.detail}"
    return _failure(last.owner, "run.groups_dropped", detail)


def _retry_at_s(member: MemberBook) -> float:
    """When the next attempt may start: at once at first, then after 2, 4, 8, ... seconds, so that a part that is being
    restarted does not use up every attempt."""
    return 0.0 if member.attempt == 0 else member.fenced_at_s + min(2.0**member.attempt, RETRY_LIMIT_S)


def _trouble(member: MemberBook, now_s: float) -> pb.Failure | None:
    """Why the member's newest attempt will not bring a reward; None = it may, or it is fenced already."""
    if member.attempt == member.fenced_attempt:
        return None
    if member.absent is not None:
        return member.absent
    if member.leased_until_s is not None and member.leased_until_s < now_s:
        return _failure(pb.OWNER_SANDBOX, "lease.lost", "The runner stopped renewing its lease.")
    return None


def _give_up_group(group: GroupBook, failure: pb.Failure) -> Iterator[Message]:
    assert group.opened is not None
    for index in range(group.opened.size):
        member = group.member(index)
        if not member.is_given_up:
            yield _fence(group.opened, index, member.attempt, failure, is_final=True)


def _fence(opened: ev.GroupOpened, index: int, attempt: int, failure: pb.Failure, is_final: bool) -> ev.RolloutFenced:
    return ev.RolloutFenced(identity=_identity(opened, index, attempt), failure=failure, is_final=is_final)


def _identity(opened: ev.GroupOpened, index: int, attempt: int) -> pb.Identity:
    identity = pb.Identity()
    identity.CopyFrom(opened.group)
    identity.member, identity.attempt = index, attempt
    return identity


def _failure(owner: "pb.Owner.ValueType", code: str, detail: str) -> pb.Failure:
    return pb.Failure(owner=owner, code=code, detail=detail)


def _eval_rank(book: RunBook, step: int) -> int:
    return sorted(book.spec.eval.at_steps).index(step)


def _next_evaluation(book: RunBook) -> int | None:
    """Step of the first evaluation whose groups are not all opened yet."""
    wanted = book.spec.eval.num_tasks
    for step in sorted(book.spec.eval.at_steps):
        if len(book.eval_groups.get(step, {})) < wanted:
            return step
    return None


def _running_evaluation(book: RunBook) -> bool:
    return any(not has_ended for groups in book.eval_groups.values() for has_ended in groups.values())


def _evaluation_cap(book: RunBook) -> list[int]:
    """Steps no training group may go beyond: those of evaluations due or running."""
    running = [step for step, groups in book.eval_groups.items() if not all(groups.values())]
    due = _next_evaluation(book)
    return running + ([] if due is None else [due])
