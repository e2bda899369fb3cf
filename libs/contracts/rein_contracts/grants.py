"""Signed grants: how a gateway knows which attempt a request belongs to, without asking anyone.

A grant is `<base64url payload>.<base64url HMAC-SHA256>`, where the payload is a serialized `AttemptGrant`. The runner
mints it and adds it to each request at the host end of the sandbox's pipe; no sandbox ever holds one. Fencing is not
in here: a gateway also refuses attempts it knows to be fenced.
"""

import base64
import hashlib
import hmac
import time

from google.protobuf.message import DecodeError

from rein.v1 import identity_pb2 as pb

GRANT_HEADER = "x-rein-grant"


class GrantRefused(Exception):
    """The grant is missing, forged, malformed or expired; the text says which."""


def mint(grant: pb.AttemptGrant, *, secret: bytes) -> str:
    payload = grant.SerializeToString(deterministic=True)
    return f"{_encode(payload)}.{_encode(_sign(payload, secret))}"


def verify(text: str, *, secret: bytes, now_s: float | None = None) -> pb.AttemptGrant:
    """The grant in `text`; `now_s` is Unix time (default: now). Raises GrantRefused."""
    payload_text, _, signature_text = text.partition(".")
    try:
        payload, signature = _decode(payload_text), _decode(signature_text)
    except ValueError as error:
        raise GrantRefused("grant is not base64") from error
    if not hmac.compare_digest(signature, _sign(payload, secret)):
        raise GrantRefused("grant is not signed by this deployment's secret")
    grant = pb.AttemptGrant()
    try:
        grant.ParseFromString(payload)
    except DecodeError as error:
        raise GrantRefused("grant does not decode") from error
    if grant.expires_at_s <= (time.time() if now_s is None else now_s):
        raise GrantRefused("grant has expired")
    return grant


def _sign(payload: bytes, secret: bytes) -> bytes:
    return hmac.digest(secret, payload, hashlib.sha256)


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _decode(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
