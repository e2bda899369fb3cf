"""Task sets and harnesses from the libraries that know them."""

from collections.abc import Collection
from pathlib import Path

from rein_dispatcher.domain.schedule import Tasks
from rein_dispatcher.errors import SpecRejected
from rein_harnesses import harness_names
from rein_tasks import Split, TaskSetBroken, load_task_set


class FileCatalog:
    """Reads task set folders; knows the shipped harnesses and those in `harnesses`."""

    def __init__(self, *, harnesses: Path | None) -> None:
        self._harnesses = harnesses

    def tasks(self, task_set: str) -> Tasks:
        """Raises SpecRejected naming what is wrong with the folder."""
        try:
            found = load_task_set(Path(task_set))
        except TaskSetBroken as error:
            raise SpecRejected("task_set", task_set, f"a readable task set: {error}") from error
        train, heldout = found.of_split(Split.TRAIN), found.of_split(Split.HELDOUT)
        if not train:
            raise SpecRejected("task_set", task_set, "a set with at least one task in split train")
        return Tasks(
            train=[task.name for task in train],
            heldout=[task.name for task in heldout],
            digests={task.name: task.digest for task in (*train, *heldout)},
        )

    def harnesses(self) -> Collection[str]:
        return harness_names(own=self._harnesses)
