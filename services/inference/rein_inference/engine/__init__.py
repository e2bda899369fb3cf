"""What runs inside vLLM's processes. The agent never imports it."""
