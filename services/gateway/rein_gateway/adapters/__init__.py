"""The HTTP sides: harnesses in front, engines behind."""
