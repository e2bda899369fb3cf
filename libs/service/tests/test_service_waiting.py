"""Waiting for one thing or the end of work."""

import asyncio

import pytest

from rein_service.waiting import unless


async def seven() -> int:
    await asyncio.sleep(0)
    return 7


async def test_the_result_comes_through() -> None:
    assert await unless(asyncio.Event(), seven()) == 7


async def test_a_stop_cancels_it() -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().call_soon(stop.set)
    assert await unless(stop, asyncio.Event().wait()) is None


async def test_what_it_raises_is_raised() -> None:
    async def fail() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await unless(asyncio.Event(), fail())
