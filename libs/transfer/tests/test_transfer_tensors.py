"""Tensors become one safetensors file."""

from pathlib import Path

import torch
from safetensors.torch import load_file

from rein_transfer.tensors import write_tensors


def test_tied_tensors_are_written_once_and_views_whole(tmp_path: Path) -> None:
    table = torch.arange(12.0).reshape(3, 4)
    path = tmp_path / "w.safetensors"
    write_tensors({"embed": table, "head": table, "turned": table.T, "row": table[1]}, path=path)
    read = load_file(path)
    assert set(read) == {"embed", "turned", "row"}
    assert torch.equal(read["turned"], table.T)
    assert torch.equal(read["row"], table[1])
    assert [each.name for each in tmp_path.iterdir()] == ["w.safetensors"]
