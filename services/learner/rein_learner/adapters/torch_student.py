"""A policy, its optimiser and what a step does to them, in plain blocking torch.

Gradients of all batches of a step add up before one optimiser step; nothing is updated in `study`. Log-probabilities
are computed only where a token trains, so the vocabulary is projected to a few places of each row. They are recomputed
under the weights that sampled them: in passing for tokens of the current version, else with an older version's weight
file. Knows nothing of runs, topics or checkpoints' meaning.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file
from torch.func import functional_call
from torch.nn.utils import clip_grad_norm_
from transformers import PreTrainedModel

from rein.v1 import events_pb2 as ev
from rein.v1 import weights_pb2 as wt
from rein_learner.adapters.files import OPTIMISER, RANDOM, WEIGHTS
from rein_learner.domain.lesson import versions_of
from rein_learner.ports import Lecture, Studied, Written
from rein_objectives import (
    Agreement,
    Clipping,
    PackedRows,
    TrainRow,
    agreement_of,
    clipped_loss,
    pack_rows,
    token_logprobs,
)
from rein_transfer.manifest import digest_of
from rein_transfer.tensors import write_tensors

#: The probe: arbitrary ids that every vocabulary has.
PROBE_IDS = tuple((7 * index) % 240 + 8 for index in range(48))

Parameters = Mapping[str, torch.Tensor]


@dataclass(slots=True)
class _Compared:
    """Recorded and recomputed log-probabilities of tokens of one version."""

    recorded: list[torch.Tensor] = field(default_factory=list)
    recomputed: list[torch.Tensor] = field(default_factory=list)

    def add(self, batch: PackedRows, *, logprobs_t: torch.Tensor, version: int) -> None:
        is_of_t = batch.versions_t == version
        self.recorded.append(batch.recorded_t[is_of_t])
        self.recomputed.append(logprobs_t.detach().cpu()[is_of_t])

    @property
    def num_tokens(self) -> int:
        return sum(len(each) for each in self.recorded)

    def agreement(self) -> Agreement:
        return agreement_of(torch.cat(self.recorded), torch.cat(self.recomputed))


class TorchStudent:
    """One policy of one run."""

    def __init__(
        self, model: PreTrainedModel, *, spec: ev.RunSpec, min_agreement_tokens: int, tolerance: float
    ) -> None:
        """`model` runs `packed_attention`; `tolerance` is the probe's, nats."""
        self.model = model
        self._objective = spec.objective
        self._temperature = spec.sampling.temperature
        self._min_agreement_tokens = min_agreement_tokens
        self._tolerance = tolerance
        self._optimiser = torch.optim.AdamW(
            model.parameters(), lr=spec.objective.learning_rate, weight_decay=spec.objective.weight_decay
        )

    def study(self, lecture: Lecture) -> Studied:
        """Gradients and figures of one step."""
        self._optimiser.zero_grad(set_to_none=True)
        clipping = Clipping(low=self._objective.clip_low, high=self._objective.clip_high)
        batches, num_cut = self._pack(lecture.rows)
        compared = _Compared()
        loss, num_clipped = 0.0, 0
        for batch in batches:
            logprobs_t = self._logprobs(batch)
            part = clipped_loss(
                logprobs_t,
                recorded_t=batch.recorded_t.to(logprobs_t.device),
                advantages_t=batch.advantages_t.to(logprobs_t.device),
                clipping=clipping,
                num_tokens=lecture.num_trainable,
            )
            torch.autograd.backward(part.loss)
            loss += part.loss.item()
            num_clipped += part.num_clipped
            compared.add(batch, logprobs_t=logprobs_t, version=lecture.version)
        norm = clip_grad_norm_(self.model.parameters(), self._objective.max_grad_norm or float("inf")).item()
        num_tokens = sum(len(batch.targets_t) for batch in batches)
        return Studied(
            loss=loss,
            grad_norm=norm if batches else 0.0,
            clip_fraction=num_clipped / max(1, num_tokens),
            agreement=self._agreement(lecture, compared),
            num_cut=num_cut,
        )

    def update(self) -> None:
        """One optimiser step."""
        self._optimiser.step()

    def write(self, folder: Path) -> Written:
        write_tensors(self.model.state_dict(), path=folder / WEIGHTS)
        torch.save(self._optimiser.state_dict(), folder / OPTIMISER)
        torch.save(torch.get_rng_state(), folder / RANDOM)
        return Written(digest_of(folder / WEIGHTS), self._probe())

    def restore(self, folder: Path) -> None:
        self.model.load_state_dict(self._whole(load_file(folder / WEIGHTS)))
        self._optimiser.load_state_dict(torch.load(folder / OPTIMISER, weights_only=True))
        torch.set_rng_state(torch.load(folder / RANDOM, weights_only=True))

    def _pack(self, rows: Sequence[TrainRow]) -> tuple[list[PackedRows], int]:
        return pack_rows(rows, max_tokens=self._objective.max_row_tokens)

    def _logprobs(
        self, batch: PackedRows, *, parameters: Parameters | None = None, temperature: float | None = None
    ) -> torch.Tensor:
        """Of the batch's training tokens; under the model's own parameters and the run's temperature by default."""
        device = self.model.device
        inputs = {
            "input_ids": batch.token_ids_n[None].to(device),
            "position_ids": batch.position_ids_n[None].to(device),
            "layout": batch.layout,
            "logits_to_keep": batch.predict_at_t.to(device),
            "use_cache": False,
        }
        output = (
            self.model(**inputs) if parameters is None else functional_call(self.model, dict(parameters), (), inputs)
        )
        targets_t = batch.targets_t.to(device)
        return token_logprobs(output.logits[0], targets_t=targets_t, temperature=self._temperature)

    def _agreement(self, lecture: Lecture, compared: _Compared) -> Agreement | None:
        """Over tokens of the current version if there are enough, else of the commonest older one at hand."""
        rows = [*lecture.rows, *lecture.silent]
        wanted = [version for version, num_tokens in versions_of(rows) if num_tokens >= self._min_agreement_tokens]
        for version in sorted(wanted, key=lambda version: version != lecture.version):
            if compared.num_tokens >= self._min_agreement_tokens:
                break
            if version == lecture.version or version in lecture.past:
                compared = self._compare(rows, version=version, lecture=lecture)
        return compared.agreement() if compared.num_tokens >= self._min_agreement_tokens else None

    def _compare(self, rows: Sequence[TrainRow], *, version: int, lecture: Lecture) -> _Compared:
        """One batch of rows with tokens of that version, recomputed under its weights."""
        batches, _ = self._pack([row for row in rows if (row.versions == version).any()])
        parameters = None
        if version != lecture.version:
            loaded = load_file(lecture.past[version], device=str(self.model.device))
            parameters = self._whole(loaded)
        compared = _Compared()
        with torch.no_grad():
            for batch in batches[:1]:
                logprobs_t = self._logprobs(batch, parameters=parameters)
                compared.add(batch, logprobs_t=logprobs_t, version=version)
        return compared

    def _whole(self, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """A state with tied tensors under all their names; they are stored under one."""
        names: dict[int, list[str]] = {}
        for name, tensor in self.model.state_dict().items():
            names.setdefault(tensor.data_ptr(), []).append(name)
        return {
            name: tensors[stored]
            for tied in names.values()
            for stored in [next(name for name in tied if name in tensors)]
            for name in tied
        }

    def _probe(self) -> wt.Probe:
        """What every node must reproduce."""
        ids = np.array(PROBE_IDS) % self.model.config.vocab_size
        places = np.arange(1, len(ids))
        row = TrainRow(ids, places, np.zeros(len(places), dtype=np.float32), np.zeros_like(places), 0.0)
        (batch,), _ = pack_rows([row], max_tokens=len(ids))
        with torch.no_grad():
            logprobs_t = self._logprobs(batch, temperature=1.0)
        return wt.Probe(token_ids=ids.tolist(), logprobs=logprobs_t.tolist(), tolerance=self._tolerance)
