"""The gateway: every model call of every harness passes here, and what the policy sampled is recorded here."""
