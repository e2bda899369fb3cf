"""A store that is away is waited for, and not for ever."""

import pytest

from rein_blobs import BlobUnavailable
from rein_blobs.patience import PAUSES_S, patiently


class Away:
    """Fails so many times, then answers; its sleeps are written down."""

    def __init__(self, num_failures: int) -> None:
        self.num_failures = num_failures
        self.slept_s: list[float] = []

    async def ask(self) -> str:
        self.num_failures -= 1
        if self.num_failures >= 0:
            raise BlobUnavailable("blobs.read_failed", "away")
        return "here"

    async def sleep(self, seconds: float) -> None:
        self.slept_s.append(seconds)


async def test_a_store_that_comes_back_is_asked_again_after_growing_pauses() -> None:
    store = Away(2)
    assert await patiently(store.ask, sleep=store.sleep) == "here"
    assert store.slept_s == list(PAUSES_S[:2])


async def test_a_store_that_stays_away_is_an_error_in_the_end() -> None:
    store = Away(100)
    with pytest.raises(BlobUnavailable):
        await patiently(store.ask, sleep=store.sleep)
    assert store.slept_s == list(PAUSES_S)
