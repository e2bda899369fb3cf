"""Repository tasks: what they are, how a tree for one is made, and how its hidden tests are run and read."""

from rein_tasks.errors import TaskSetBroken, VerifierBroken
from rein_tasks.model import Chance, Fault, Package, Split, Task, TaskSet
from rein_tasks.task_set import load_task_set
from rein_tasks.trees import materialise, overlay_tests

__all__ = [
    "Chance",
    "Fault",
    "Package",
    "Split",
    "Task",
    "TaskSet",
    "TaskSetBroken",
    "VerifierBroken",
    "load_task_set",
    "materialise",
    "overlay_tests",
]
