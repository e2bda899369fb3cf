"""Control calls against scripted answers: the body counts, not the status."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import httpx
import pytest

from rein_inference.adapters.calls import EngineCalls
from rein_inference.errors import EngineRefused
from rein_inference.ports import Load

GOOD: dict[str, object] = {
    "/pause": {"status": "paused"},
    "/start_weight_update": {"message": "Weight update started"},
    "/update_weights": {"message": "Weights updated"},
    "/finish_weight_update": {"message": "Weight update finished"},
    "/resume": {"status": "resumed"},
    "/weight_info": {"weight_version": "7"},
}

Calls = Callable[[dict[str, object]], EngineCalls]


@pytest.fixture
async def calls() -> AsyncIterator[Calls]:
    clients: list[httpx.AsyncClient] = []

    def make(answers: dict[str, object]) -> EngineCalls:
        def answer(request: httpx.Request) -> httpx.Response:
            body = answers[request.url.path]
            return body if isinstance(body, httpx.Response) else httpx.Response(200, json=body)

        clients.append(httpx.AsyncClient(base_url="http://engine", transport=httpx.MockTransport(answer)))
        return EngineCalls(clients[-1])

    yield make
    for client in clients:
        await client.aclose()


async def test_an_update_that_is_answered_as_asked_passes(calls: Calls) -> None:
    await calls(GOOD).update(Path("/w"), version=7)


@pytest.mark.parametrize("path", list(GOOD))
@pytest.mark.parametrize(
    "answer",
    [
        {"success": False},
        httpx.Response(500, json={"error": {"message": "no"}}),
        httpx.Response(200, text="not json"),
        httpx.Response(200, json=["paused"]),
        {"weight_version": "6"},
    ],
    ids=["success_false", "status_500", "no_json", "a_list", "old_version"],
)
async def test_any_other_answer_puts_the_engine_in_doubt(calls: Calls, path: str, answer: object) -> None:
    with pytest.raises(EngineRefused):
        await calls(GOOD | {path: answer}).update(Path("/w"), version=7)


async def test_prompt_logprobs_are_read_by_token(calls: Calls) -> None:
    entries = [None, {"5": {"logprob": -1.5}, "9": {"logprob": -0.1}}, {"6": {"logprob": -2.0}}]
    ours = await calls({"/inference/v1/generate": {"prompt_logprobs": entries}}).logprobs([4, 5, 6])
    assert ours == [-1.5, -2.0]


@pytest.mark.parametrize("entries", [None, [], [None, {"5": {"logprob": -1.0}}], [None, {"9": {}}, {"6": {}}]])
async def test_missing_prompt_logprobs_are_never_made_up(calls: Calls, entries: object) -> None:
    with pytest.raises(EngineRefused):
        await calls({"/inference/v1/generate": {"prompt_logprobs": entries}}).logprobs([4, 5, 6])


async def test_the_load_is_read_from_the_metrics(calls: Calls) -> None:
    text = "\n".join(
        [
            "# HELP vllm:num_requests_running x",
            'vllm:num_requests_running{engine="0",model_name="policy"} 3.0',
            'vllm:num_requests_waiting{engine="0",model_name="policy"} 2.0',
            'vllm:num_requests_waiting_by_reason{engine="0",reason="capacity"} 2.0',
        ]
    )
    assert await calls({"/metrics": httpx.Response(200, text=text)}).load() == Load(num_running=3, num_waiting=2)
