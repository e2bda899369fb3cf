"""The live page: server-rendered HTML, pushed whole by server-sent events when something changed.

Nothing is kept per visitor beyond the open connection, and nothing is drawn while nobody looks.
"""

from collections.abc import AsyncIterator, Sequence

import orjson
from jinja2 import Environment, PackageLoader, select_autoescape
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from rein.v1 import events_pb2 as ev
from rein_observer.adapters.plots import PLOTS, draw
from rein_observer.domain.board import Boards, RunBoard
from rein_observer.ports import RecentWindows
from rein_service.clock import Clock


class Page:
    """Draws `boards` and `windows`; `app` is the ASGI application."""

    def __init__(self, *, boards: Boards, windows: RecentWindows, clock: Clock, interval_s: float) -> None:
        self._boards = boards
        self._windows = windows
        self._clock = clock
        self._interval_s = interval_s
        self._templates = Environment(
            loader=PackageLoader("rein_observer"), autoescape=select_autoescape(), trim_blocks=True
        )
        self._drawn: dict[tuple[str, str], tuple[object, str]] = {}
        self.app = Starlette(
            routes=[
                Route("/", self._page),
                Route("/events", self._events),
                Route("/api/runs", self._runs),
                Route("/runs/{run}/curve.png", self._curve),
            ]
        )

    def body(self) -> str:
        """The page's content as HTML."""
        return self._templates.get_template("body.html").render(
            boards=self._boards,
            windows=self._windows.recent(),
            plots={run: [self._plot(board, name) for name in PLOTS] for run, board in self._boards.runs.items()},
            states=_names(ev.RunState.items(), "RUN_STATE_"),
            node_states=_names(ev.NodeState.items(), "NODE_STATE_"),
        )

    def _plot(self, board: RunBoard, name: str) -> str:
        """The plot as inline SVG, drawn again only when its run has got further."""
        stand = (len(board.steps), board.outcomes["ready"] + board.outcomes["evaluated"])
        key = (board.run, name)
        if key not in self._drawn or self._drawn[key][0] != stand:
            svg = draw(board, name).decode()
            self._drawn[key] = (stand, svg[svg.index("<svg") :])
        return self._drawn[key][1]

    async def _page(self, _request: Request) -> Response:
        return HTMLResponse(self._templates.get_template("page.html").render(body=self.body()))

    async def _events(self, request: Request) -> Response:
        return StreamingResponse(self._stream(request), media_type="text/event-stream")

    async def _stream(self, request: Request) -> AsyncIterator[bytes]:
        shown = -1
        while not await request.is_disconnected():
            if shown != self._boards.revision:
                shown = self._boards.revision
                body = self.body()
                yield b"data: " + orjson.dumps(body) + b"\n\n"
            else:
                yield b": waiting\n\n"
            await self._clock.sleep(self._interval_s)

    async def _curve(self, request: Request) -> Response:
        board = self._boards.runs.get(request.path_params["run"])
        if board is None:
            return Response(f"there is no run named {request.path_params['run']!r}", status_code=404)
        return Response(draw(board, "pass rate", file_format="png", width_in=7), media_type="image/png")

    async def _runs(self, _request: Request) -> Response:
        return JSONResponse({run: summary(board) for run, board in self._boards.runs.items()})


def summary(board: RunBoard) -> dict[str, object]:
    """The board's main figures, JSON-ready."""
    return {
        "state": _names(ev.RunState.items(), "RUN_STATE_")[board.changed.state],
        "version": board.version,
        "steps": len(board.steps),
        "steps_planned": board.changed.spec.steps,
        "heldout_pass_rate": {str(step): e.pass_rate for step, e in sorted(board.evaluations.items())},
        "in_flight": board.in_flight(),
        "outcomes": dict(board.outcomes),
        "failures": {f"{owner}: {code}": number for (owner, code), number in board.failures.items()},
        "findings": dict(board.findings),
        "fork_rate": board.fork_rate(),
    }


def _names(items: Sequence[tuple[str, int]], prefix: str) -> dict[int, str]:
    return {number: name.removeprefix(prefix).lower() for name, number in items}
