"""Students in a thread of their own: models are loaded, taught, stored and exported there, never on the event loop.

One thread for the life of the process: torch keeps a pool of workers per calling thread.
"""

import asyncio
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Self, TypeVar

import torch
from safetensors import SafetensorError
from transformers import AttentionInterface, AutoModelForCausalLM, PreTrainedModel
from transformers.utils.logging import disable_progress_bar

from rein.v1 import events_pb2 as ev
from rein_learner.adapters.files import FINAL, sync
from rein_learner.adapters.torch_student import TorchStudent
from rein_learner.config import TorchSettings
from rein_learner.errors import ModelUnusable
from rein_learner.ports import Lecture, Studied, Written
from rein_objectives import packed_attention

ATTENTION = "rein_packed"

#: What a model folder has besides weights and config: tokenizer, chat template, defaults of generation.
CARRIED = ("*.json", "*.jinja", "*.txt", "*.model")

T = TypeVar("T")


class TorchSchool:
    """See `ports.School`. Async context manager around the thread."""

    def __init__(self, settings: TorchSettings) -> None:
        self._settings = settings
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="torch", initializer=self._prepare)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def enrol(self, spec: ev.RunSpec) -> "ThreadedStudent":
        student = await self.do(lambda: new_student(spec, settings=self._settings))
        return ThreadedStudent(student, source=Path(spec.model), school=self)

    async def do(self, work: Callable[[], T]) -> T:
        """Run `work` in the thread."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _prepare(self) -> None:
        if self._settings.threads:
            torch.set_num_threads(self._settings.threads)
        disable_progress_bar()  # type: ignore[no-untyped-call]


class ThreadedStudent:
    """See `ports.Student`."""

    def __init__(self, student: TorchStudent, *, source: Path, school: TorchSchool) -> None:
        self._student = student
        self._source = source
        self._school = school

    async def study(self, lecture: Lecture) -> Studied:
        return await self._school.do(lambda: self._student.study(lecture))

    async def update(self) -> None:
        await self._school.do(self._student.update)

    async def write(self, folder: Path) -> Written:
        return await self._school.do(lambda: self._student.write(folder))

    async def restore(self, folder: Path) -> None:
        await self._school.do(lambda: self._student.restore(folder))

    async def export(self, folder: Path) -> None:
        await self._school.do(lambda: export_policy(self._student.model, source=self._source, folder=folder))


def new_student(spec: ev.RunSpec, *, settings: TorchSettings) -> TorchStudent:
    """The run's initial policy. Blocks. Raises ModelUnusable."""
    return TorchStudent(
        load_policy(Path(spec.model), device=settings.device),
        spec=spec,
        min_agreement_tokens=settings.min_agreement_tokens,
        tolerance=settings.probe_tolerance_nats,
    )


def load_policy(folder: Path, *, device: str) -> PreTrainedModel:
    """The policy in float32, running packed attention. Raises ModelUnusable."""
    AttentionInterface.register(ATTENTION, packed_attention)
    try:
        model = AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32, attn_implementation=ATTENTION, local_files_only=True
        )
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
        raise ModelUnusable(folder, " ".join(str(error).split())[:500]) from error
    assert isinstance(model, PreTrainedModel)
    torch.nn.Module.to(model, device)
    model.train(mode=False)  # no dropout: what is learnt from must be what was sampled
    return model


def export_policy(model: PreTrainedModel, *, source: Path, folder: Path) -> None:
    """An ordinary model folder: the weights, and everything else as in `source`. Replaces `folder`."""
    part = folder.with_name(f".{FINAL}.part")
    shutil.rmtree(part, ignore_errors=True)
    model.save_pretrained(part)
    for pattern in CARRIED:
        for path in source.glob(pattern):
            if not path.name.endswith(".safetensors.index.json"):
                shutil.copy(path, part / path.name)
    shutil.rmtree(folder, ignore_errors=True)
    part.rename(folder)
    sync(folder.parent)
