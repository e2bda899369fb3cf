"""Grants: only what this deployment signed, unchanged and in time, is believed."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rein.v1 import identity_pb2 as pb
from rein_contracts.grants import GrantRefused, mint, verify

SECRET = b"s" * 32
GRANT = pb.AttemptGrant(
    identity=pb.Identity(run="demo", task="t", group="demo.g7", member=3, attempt=2),
    harness="mini",
    expires_at_s=2000.0,
)
TEXT = mint(GRANT, secret=SECRET)


def test_a_grant_comes_back_as_it_was_minted() -> None:
    assert verify(TEXT, secret=SECRET, now_s=1999.9) == GRANT
    assert TEXT.isascii()
    assert all(letter.isalnum() or letter in "-_." for letter in TEXT), "it travels in a header"


def test_an_expired_grant_is_refused() -> None:
    with pytest.raises(GrantRefused, match="expired"):
        verify(TEXT, secret=SECRET, now_s=2000.0)
    with pytest.raises(GrantRefused, match="expired"):
        verify(TEXT, secret=SECRET)  # by the wall clock
    lasting = pb.AttemptGrant(expires_at_s=time.time() + 60)
    assert verify(mint(lasting, secret=SECRET), secret=SECRET) == lasting


def test_another_deployments_grant_is_refused() -> None:
    with pytest.raises(GrantRefused, match="not signed"):
        verify(mint(GRANT, secret=b"o" * 32), secret=SECRET, now_s=0)


@given(text=st.text(max_size=200))
def test_no_text_is_a_grant(text: str) -> None:
    with pytest.raises(GrantRefused):
        verify(text, secret=SECRET, now_s=0)


@given(place=st.integers(0, len(TEXT) - 1), letter=st.sampled_from("abcABC019-_"))
def test_a_changed_letter_is_never_another_grant(place: int, letter: str) -> None:
    changed = TEXT[:place] + letter + TEXT[place + 1 :]
    try:
        assert verify(changed, secret=SECRET, now_s=0) == GRANT
    except GrantRefused:
        assert changed != TEXT
