"""vLLM weight transfer from a safetensors file in shared memory, into the running model, in place.

The file is mapped, so its bytes are copied once: into the parameters. Every parameter must be in the file: a version
is whole or refused. On the CPU, vLLM packs some weights for its kernels when it first loads a model and not again after
a reload, so the copy its kernels use goes stale while every call answers 200: they are packed again here. The agent
does not take this module's word for it: it compares log-probabilities after every update.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from safetensors import safe_open
from vllm.distributed.weight_transfer.base import (
    WeightTransferEngine,
    WeightTransferInitInfo,
    WeightTransferUpdateInfo,
)
from vllm.model_executor.model_loader.reload import finalize_layerwise_reload, initialize_layerwise_reload


@dataclass
class FileInit(WeightTransferInitInfo):
    """Nothing to agree on."""


@dataclass
class FileUpdate(WeightTransferUpdateInfo):
    """One version, whole."""

    path: str


class FileWeights(WeightTransferEngine[FileInit, FileUpdate]):
    """Backend "rein"."""

    init_info_cls = FileInit
    update_info_cls = FileUpdate
    supports_draft_weight_update = False

    def init_transfer_engine(self, init_info: FileInit) -> None:
        """Nothing to connect."""

    def start_weight_update(self) -> None:
        self._names = {name for name, _ in self.model.named_parameters()}
        initialize_layerwise_reload(self.model)

    def receive_weights(self, update_info: FileUpdate) -> None:
        model: Any = self.model
        loaded = model.load_weights(_tensors(update_info.path))
        if missing := sorted(self._names - set(loaded)):
            raise ValueError(f"{update_info.path} lacks {len(missing)} of the model's parameters, first {missing[0]!r}")

    def finish_weight_update(self) -> None:
        finalize_layerwise_reload(self.model, self.model_config)  # type: ignore[no-untyped-call]
        if self.device.type == "cpu":
            pack_again(self.model)

    def shutdown(self) -> None:
        """Nothing to release."""


def pack_again(model: torch.nn.Module) -> None:
    """Give the CPU kernels the present weights of the head and of packed experts.

    The head (tied or not) keeps the copy that vLLM made at its first load (vllm 0.32,
    VocabParallelEmbedding.process_weights_after_loading); experts likewise, in their fused kernel.
    """
    head: Any = getattr(model, "lm_head", None)
    if head is not None and hasattr(head, "quant_method"):
        head.quant_method.process_weights_after_loading(head)
    layers: Iterator[Any] = model.modules()
    for layer in layers:
        kernel = getattr(getattr(layer, "quant_method", None), "moe_kernel", None)
        if kernel is not None and hasattr(layer, "w13_weight"):
            kernel.fused_experts.process_weights_after_loading(layer)


def _tensors(path: str) -> Iterator[tuple[str, torch.Tensor]]:
    with safe_open(path, "pt", device="cpu") as file:
        for name in file.keys():  # noqa: SIM118 - not a dict
            yield name, file.get_tensor(name)
