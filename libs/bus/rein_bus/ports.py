"""What services may ask of the bus, in their own words. Topics are named by message type (see rein_contracts.topics).

Four ways to use it:
- `publish`: idempotent, acknowledged by all in-sync replicas before it returns.
- `work`: a queue by convention. Records are spread over the members of a group; each is marked `done` once its effect
  is durable (a lease for long work, a result for short work). Nothing is committed past an unfinished record.
- `follow`: every instance sees every record, from a chosen place; nothing is committed.
- `transact`: read-process-write by partition, outputs and positions in one transaction, for the assembler.

Delivery is at least once in all of them; consumers are idempotent on the event's identity.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from enum import Enum
from typing import Generic, Protocol, TypeVar

from google.protobuf.message import Message

from rein.v1.identity_pb2 import Failure

M_co = TypeVar("M_co", bound=Message, covariant=True)


class Start(Enum):
    """Where a follower begins."""

    EARLIEST = "earliest"
    LATEST = "latest"


@dataclass(frozen=True, slots=True)
class Place:
    """One record's place on the bus."""

    message: type[Message]
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class Record(Generic[M_co]):
    """A decoded record."""

    message: M_co
    key: str
    place: Place
    at_ms: int
    """Broker or producer time, Unix milliseconds."""


class Work(Protocol):
    """A member's share of the records of one group."""

    async def take(self) -> Record[Message]:
        """Wait for the next record. Keeps its group membership alive while nobody calls it."""

    async def done(self, record: Record[Message]) -> None:
        """The record's effect is durable. Safe to call in any order and after a rebalance took the record away."""

    def pause(self) -> None:
        """`take` waits and nothing more is fetched until `resume`; membership stays. Survives a rebalance."""

    def resume(self) -> None: ...


class Follower(Protocol):
    """Reads every record; iterate it."""

    def __aiter__(self) -> AsyncIterator[Record[Message]]: ...

    async def caught_up(self) -> None:
        """Return once every record that existed when the follower opened was handed out by iteration.

        One task iterates while another waits here; or check `has_caught_up` between records.
        """

    def has_caught_up(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class Assigned:
    """The session now owns this partition of all its topics: restore its state, seek, then expect batches."""

    partition: int


@dataclass(frozen=True, slots=True)
class Revoked:
    """The session lost this partition: forget its state."""

    partition: int


@dataclass(frozen=True, slots=True)
class Batch:
    """Records of one partition; per topic in offset order, across topics in no order."""

    partition: int
    records: tuple[Record[Message], ...]


class Transaction(Protocol):
    """A read-process-write session over co-partitioned topics; iterate it for Assigned, Batch and Revoked."""

    def __aiter__(self) -> AsyncIterator[Assigned | Batch | Revoked]: ...

    async def seek(self, partition: int, *, offsets: Mapping[type[Message], int]) -> None:
        """Read `partition` from these offsets on (topics not named: from the group's committed place)."""

    async def commit(self, batch: Batch, *, outputs: Sequence[Message]) -> None:
        """Publish `outputs` and the position after `batch` (and all batches before it) atomically.

        Durable when it returns; readers see the outputs a moment later.

        Raises BusFenced when another member owns the partition by now, or when the brokers did not say whether it
        went well: forget the partition's state and go on; Revoked follows, and Assigned if the partition is still
        ours. Raises BusRejected for an output that is too large; nothing is written then.
        """


class Bus(Protocol):
    """An open connection; implementations are async context managers."""

    async def publish(self, *messages: Message) -> list[Place]:
        """Publish in order, wait for the acknowledgement of all. Raises BusRejected (too large), BusTransient."""

    def work(self, *messages: type[Message], group: str) -> AbstractAsyncContextManager[Work]: ...

    def follow(
        self, *messages: type[Message], start: Start | Mapping[tuple[type[Message], int], int] = Start.EARLIEST
    ) -> AbstractAsyncContextManager[Follower]:
        """`start` may map (message type, partition) to the first offset wanted; partitions not named: EARLIEST.

        Sees committed transactions only.
        """

    def transact(self, *messages: type[Message], group: str) -> AbstractAsyncContextManager[Transaction]: ...

    async def newest(self, message: type[Message], *, key: str) -> Record[Message] | None:
        """The newest record with this key in a compacted topic."""

    async def dead_letter(self, record: Record[Message], *, failure: Failure, service: str) -> None:
        """Publish DeadLetterRecorded for `record`; raises if that cannot be made durable."""
