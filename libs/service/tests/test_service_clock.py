"""The fake clock: time passes only by advance, sleepers wake in order."""

import asyncio

from rein_service.clock import FakeClock


async def test_sleepers_wake_in_the_order_of_their_deadlines() -> None:
    clock, woken = FakeClock(), list[tuple[str, float]]()

    async def sleeper(name: str, seconds: float) -> None:
        await clock.sleep(seconds)
        woken.append((name, clock.monotonic()))

    tasks = [asyncio.create_task(sleeper(name, seconds)) for name, seconds in (("late", 3), ("early", 1))]
    await clock.advance(2)
    assert woken == [("early", 1)]
    await clock.advance(2)
    assert woken == [("early", 1), ("late", 3)]
    await asyncio.gather(*tasks)


async def test_a_loop_that_sleeps_again_wakes_as_often_as_time_allows() -> None:
    clock, beats = FakeClock(), list[float]()

    async def beat() -> None:
        while True:
            await clock.sleep(1)
            beats.append(clock.monotonic())

    task = asyncio.create_task(beat())
    await clock.advance(3.5)
    assert beats == [1, 2, 3]
    assert (clock.now() - FakeClock().now()).total_seconds() == 3.5
    task.cancel()
    await asyncio.wait([task])
    assert clock.num_sleepers == 0
