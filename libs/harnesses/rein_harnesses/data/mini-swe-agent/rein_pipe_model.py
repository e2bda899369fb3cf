"""A model class for mini-swe-agent that speaks to the gateway with requests. Runs inside the sandbox, as data.

Differs from the class it extends in the address, in waiting as long as the rollout may (not 60 s), and in asking for
no prices. mini-swe-agent is installed for sandboxes only, hence the two remarks to the type checker.
"""

import os
from typing import Any

import requests
from minisweagent.models.openrouter_model import (  # type: ignore[import-not-found]
    BASH_TOOL,
    OpenRouterAPIError,
    OpenRouterModel,
)


class PipeModel(OpenRouterModel):  # type: ignore[misc]
    """Named by `--model-class`."""

    def _query(self, messages: list[dict[str, Any]], **kwargs: Any) -> Any:
        payload = {"model": self.config.model_name, "messages": messages, "tools": [BASH_TOOL]}
        try:
            url = os.environ["REIN_BASE_URL"] + "/v1/chat/completions"
            response = requests.post(url, json=payload | self.config.model_kwargs | kwargs, timeout=3600)
            response.raise_for_status()
            return response.json()
        except requests.exceptions.RequestException as error:
            text = "" if error.response is None else error.response.text
            raise OpenRouterAPIError(f"{error}: {text}") from error
