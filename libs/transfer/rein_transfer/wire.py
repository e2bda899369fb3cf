"""`rein.v1.WeightFrame` framed and parsed by hand around the tensor bytes.

Protobuf would copy and validate a megabyte per chunk; here a chunk is ten bytes of header before the data, and parsing
gives a view of the received buffer. The bytes are the same: an ordinary generated stub and this module understand each
other (`tests/test_transfer_wire.py`). Whatever is not the one shape that a chunk has on the wire goes through protobuf.
"""

from dataclasses import dataclass

from google.protobuf.message import DecodeError

from rein.v1 import weights_pb2 as pb
from rein_transfer.errors import FrameDamaged

_LENGTH_DELIMITED = 2
_VARINT = 0
_FRAME_CHUNK = pb.WeightFrame.CHUNK_FIELD_NUMBER << 3 | _LENGTH_DELIMITED
_CHUNK_OFFSET = pb.WeightChunk.OFFSET_FIELD_NUMBER << 3 | _VARINT
_CHUNK_DATA = pb.WeightChunk.DATA_FIELD_NUMBER << 3 | _LENGTH_DELIMITED


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of the file, from `offset` on. `data` is a view of the received frame."""

    offset: int
    data: memoryview


Buffer = bytes | bytearray | memoryview

Frame = pb.WeightManifest | Chunk | pb.WeightSwitch


def manifest_frame(manifest: pb.WeightManifest) -> bytes:
    return pb.WeightFrame(manifest=manifest).SerializeToString()


def switch_frame(*, version: int, digest: str) -> bytes:
    return pb.WeightFrame(switch=pb.WeightSwitch(version=version, digest=digest)).SerializeToString()


def chunk_frame(data: Buffer, *, offset: int) -> bytes:
    """One copy of `data`, behind its header."""
    view = memoryview(data)
    inner = _tagged(_CHUNK_OFFSET, offset) + _tagged(_CHUNK_DATA, view.nbytes)
    return b"".join((_tagged(_FRAME_CHUNK, len(inner) + view.nbytes), inner, view))


def parse(frame: bytes) -> Frame:
    """What `frame` holds. Raises FrameDamaged."""
    return _chunk_in(memoryview(frame)) or _ordinary(frame)


def _chunk_in(view: memoryview) -> Chunk | None:
    """The chunk, if `view` is one in the shape that every protobuf writer gives it."""
    place = _expect(view, 0, tag=_FRAME_CHUNK)
    if place is None:
        return None
    length, at = place
    if at + length != len(view):
        return None
    offset = 0
    if (place := _expect(view, at, tag=_CHUNK_OFFSET)) is not None:
        offset, at = place
    if (place := _expect(view, at, tag=_CHUNK_DATA)) is None or sum(place) != len(view):
        return None
    return Chunk(offset, view[place[1] :])


def _ordinary(frame: bytes) -> Frame:
    try:
        message = pb.WeightFrame.FromString(frame)
    except DecodeError as error:
        raise FrameDamaged(str(error)) from error
    match message.WhichOneof("frame"):
        case "manifest":
            return message.manifest
        case "chunk":
            return Chunk(message.chunk.offset, memoryview(message.chunk.data))
        case "switch":
            return message.switch
        case _:
            raise FrameDamaged("it is empty")


def _tagged(tag: int, number: int) -> bytes:
    """`tag` and `number` as a varint."""
    out = bytearray([tag])
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _expect(view: memoryview, at: int, *, tag: int) -> tuple[int, int] | None:
    """If `tag` stands at `at`: the varint behind it and the place behind that."""
    if at >= len(view) or view[at] != tag:
        return None
    number = 0
    for index in range(10):
        at += 1
        if at >= len(view):
            return None
        number |= (view[at] & 0x7F) << 7 * index
        if view[at] < 0x80:
            return number, at + 1
    return None
