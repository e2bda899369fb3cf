"""A model's tensors as one safetensors file. The only module here that needs torch.

Tensors that share their storage are written once, under the name that comes first: the engine ties them itself.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from safetensors.torch import save_file


def write_tensors(tensors: Mapping[str, torch.Tensor], *, path: Path) -> None:
    """Write e.g. `model.state_dict()`; the file appears whole or not at all."""
    part = path.with_name(path.name + ".part")
    save_file(dict(_each_once(tensors)), part)
    part.replace(path)


def _each_once(tensors: Mapping[str, torch.Tensor]) -> Iterator[tuple[str, torch.Tensor]]:
    seen: set[tuple[int, int, torch.Size]] = set()
    for name, tensor in tensors.items():
        whole = tensor.detach().cpu()
        key = (whole.untyped_storage().data_ptr(), int(whole.storage_offset()), whole.shape)
        if key not in seen:
            seen.add(key)
            is_alone = whole.is_contiguous() and whole.untyped_storage().nbytes() == whole.nbytes
            yield name, whole if is_alone else whole.contiguous().clone()
