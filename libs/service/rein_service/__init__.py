"""The life of a Rein service: configuration, signals, ordered start and stop, drain, admin, metrics, logs.

A service's `main.py` needs `run_service`, `Scope`, `Loop`; its `config.py` needs `ServiceConfig`.
"""

from rein_service.config import ServiceConfig
from rein_service.errors import SetupError
from rein_service.runtime import run_service
from rein_service.scope import Loop, Scope, Status

__all__ = ["Loop", "Scope", "ServiceConfig", "SetupError", "Status", "run_service"]
