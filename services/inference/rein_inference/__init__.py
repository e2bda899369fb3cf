"""An inference node: one vLLM engine and the agent that keeps its weights right."""
