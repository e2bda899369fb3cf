"""Array types, and safetensors bytes with checked names, element types and lengths."""

from collections.abc import Mapping, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from rein_tokens.errors import BytesDamaged

Ids = NDArray[np.uint32]
Floats = NDArray[np.float32]
Mask = NDArray[np.bool_]
Arrays = dict[str, NDArray[np.generic]]
Dtypes = Mapping[str, np.dtype[np.generic]]

T = TypeVar("T", bound=np.generic)


def joined(parts: Sequence[NDArray[T]], *, dtype: type[T]) -> NDArray[T]:
    """End to end; flat and empty where there are no parts."""
    whole: NDArray[T] = np.concatenate([np.zeros(0, dtype=dtype), *parts]).astype(dtype, copy=False)
    return whole


def to_bytes(arrays: Mapping[str, NDArray[np.generic]]) -> bytes:
    """The same arrays always give the same bytes."""
    return save({name: np.ascontiguousarray(arrays[name]) for name in sorted(arrays)})


def from_bytes(data: bytes, *, dtypes: Dtypes) -> Arrays:
    """Exactly the arrays named, each flat and of its element type. Raises BytesDamaged."""
    try:
        arrays: Arrays = load(data)
    except SafetensorError as error:
        raise BytesDamaged(f"not safetensors: {error}") from error
    if set(arrays) != set(dtypes):
        raise BytesDamaged(f"has the arrays {sorted(arrays)}, not {sorted(dtypes)}")
    for name, dtype in dtypes.items():
        if arrays[name].dtype != dtype or arrays[name].ndim != 1:
            raise BytesDamaged(f"{name} is {arrays[name].dtype}{list(arrays[name].shape)}, not flat {dtype}")
    return arrays
