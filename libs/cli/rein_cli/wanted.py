"""Which events a reader wants, by the identity they carry. Pure."""

from dataclasses import dataclass

from google.protobuf.message import Message

from rein.v1 import identity_pb2 as pb


@dataclass(frozen=True, slots=True)
class Filter:
    """Empty fields let everything through; an event without such a field passes only an empty one."""

    run: str = ""
    task: str = ""
    group: str = ""

    def passes(self, message: Message) -> bool:
        names = message.DESCRIPTOR.fields_by_name
        identity: pb.Identity | None = next(
            (
                value
                for name in ("identity", "group")
                if name in names and isinstance(value := getattr(message, name), pb.Identity)
            ),
            None,
        )
        run = identity.run if identity else str(getattr(message, "run", ""))
        return (
            (not self.run or self.run == run)
            and (not self.task or (identity is not None and identity.task == self.task))
            and (not self.group or (identity is not None and identity.group == self.group))
        )
