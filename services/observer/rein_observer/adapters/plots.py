"""Curves of one run as SVG or PNG, drawn on the server."""

import io
from collections.abc import Callable

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rein_observer.domain.board import RunBoard

mpl.rcParams["svg.fonttype"] = "none"
mpl.rcParams["svg.hashsalt"] = "rein"

_TRAIN, _HELDOUT, _GREY = "#4477aa", "#cc6677", "#888888"


def learning_curve(board: RunBoard, axes: Axes) -> None:
    """Pass rate by step: training rollouts, and held-out evaluations."""
    steps = sorted(step for step, rewards in board.group_rewards.items() if rewards)
    means = [sum(board.group_rewards[step]) / len(board.group_rewards[step]) for step in steps]
    axes.plot(steps, means, ".-", color=_TRAIN, alpha=0.7, label="training rollouts")
    rates = {step: e.pass_rate for step, e in sorted(board.evaluations.items()) if e.pass_rate is not None}
    axes.plot(list(rates), list(rates.values()), "o-", color=_HELDOUT, linewidth=2, label="held-out tasks")
    axes.set(ylabel="pass rate", ylim=(0, 1))
    if steps or rates:
        axes.legend(loc="upper left", fontsize=8, frameon=False)


def agreement(board: RunBoard, axes: Axes) -> None:
    """Correlation of recorded and recomputed probabilities, by step."""
    known = {step: s.correlation for step, s in sorted(board.steps.items()) if s.HasField("correlation")}
    axes.plot(list(known), list(known.values()), ".-", color=_TRAIN)
    floor = board.changed.spec.objective.min_correlation
    axes.axhline(floor, color=_HELDOUT, linestyle="--", linewidth=1)
    axes.set(ylabel="correlation", ylim=(min([floor, *known.values()]) - 0.01, 1.002))


def lengths(board: RunBoard, axes: Axes) -> None:
    """Trained tokens per rollout, by step."""
    steps = sorted(step for step, s in board.steps.items() if s.num_rollouts)
    means = [board.steps[step].num_trainable_tokens / board.steps[step].num_rollouts for step in steps]
    axes.plot(steps, means, ".-", color=_TRAIN)
    axes.set(ylabel="tokens / rollout", ylim=(0, None))


def surprise(board: RunBoard, axes: Axes) -> None:
    """Mean surprisal of sampled tokens (an entropy estimate), nats, by step."""
    steps = sorted(board.steps)
    axes.plot(steps, [board.steps[step].mean_surprisal for step in steps], ".-", color=_TRAIN)
    axes.set(ylabel="surprisal, nats", ylim=(0, None))


PLOTS: dict[str, Callable[[RunBoard, Axes], None]] = {
    "pass rate": learning_curve,
    "agreement": agreement,
    "length": lengths,
    "surprisal": surprise,
}


def draw(board: RunBoard, name: str, *, file_format: str = "svg", width_in: float = 4.6) -> bytes:
    """One plot of `PLOTS` as an image file."""
    figure = Figure(figsize=(width_in, width_in * 0.55), layout="constrained")
    axes = figure.add_subplot()
    PLOTS[name](board, axes)
    axes.set_xlabel("learner step", fontsize=8, color=_GREY)
    axes.tick_params(labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    out = io.BytesIO()
    figure.savefig(out, format=file_format, dpi=150, metadata={"Date": None} if file_format == "svg" else None)
    return out.getvalue()
