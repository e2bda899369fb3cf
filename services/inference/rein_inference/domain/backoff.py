"""How long to wait before the next start, and when to stop trying."""

from dataclasses import dataclass


@dataclass(slots=True)
class Backoff:
    """Doubles from `first_s` to `longest_s`; a success starts over."""

    first_s: float
    longest_s: float
    max_failures: int
    num_failures: int = 0

    def succeeded(self) -> None:
        self.num_failures = 0

    def failed(self) -> float:
        """Count a failure; the seconds to wait now."""
        self.num_failures += 1
        return float(min(self.longest_s, self.first_s * 2.0 ** (self.num_failures - 1)))

    @property
    def is_hopeless(self) -> bool:
        return self.num_failures >= self.max_failures
