"""Publishing what must not be lost while the brokers are away for a moment."""

import logging

from google.protobuf.message import Message

from rein_bus.errors import BusTransient
from rein_bus.ports import Bus, Place
from rein_service.clock import Clock

log = logging.getLogger(__name__)

#: How long brokers may be away before the service gives up.
PATIENCE_S = 60.0
RETRY_S = 1.0


async def publish_patiently(bus: Bus, *messages: Message, clock: Clock) -> list[Place]:
    """Publish, again and again for `PATIENCE_S`. May publish twice: consumers are idempotent. Raises BusTransient."""
    deadline_s = clock.monotonic() + PATIENCE_S
    while True:
        try:
            return await bus.publish(*messages)
        except BusTransient as error:
            if clock.monotonic() > deadline_s:
                raise
            log.warning("publish.retried", extra={"detail": error.detail})
        await clock.sleep(RETRY_S)
