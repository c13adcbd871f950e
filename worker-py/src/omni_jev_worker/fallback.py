"""What is known of the times that a device had too little memory."""

import time
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final

# How long a model that lost its device serves from the CPU before the way back is tried again.
_PATIENCE_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True)
class FallbackState:
    """What `/health` says of it."""

    count: int = 0
    """Questions answered on the CPU because the device had no memory for them."""
    splits: int = 0
    """Batches that were run in parts for the same reason."""
    last_reason: str | None = None
    """Torch's words for the latest of either."""
    since: str | None = None
    """Since when the model has been off its device (UTC, ISO 8601); none when it is on it."""


class Fallback:
    """Counts, and says when the way back to the device is worth a try. One thread's own."""

    def __init__(self) -> None:
        self.state = FallbackState()
        self._lost_at: float | None = None

    def split(self, reason: str) -> None:
        """Note a batch that runs in parts."""
        self.state = replace(self.state, splits=self.state.splits + 1, last_reason=reason)

    def answered_on_cpu(self, rows: int, reason: str) -> None:
        """Note questions that the CPU answers instead of the device."""
        self.state = replace(self.state, count=self.state.count + rows, last_reason=reason)

    def device_lost(self, reason: str) -> None:
        """Note that the model could not go back to its device."""
        self._lost_at = time.monotonic()
        since = self.state.since or datetime.now(UTC).isoformat(timespec="seconds")
        self.state = replace(self.state, since=since, last_reason=reason)

    def device_back(self) -> None:
        """Note that the model is on its device."""
        self._lost_at = None
        self.state = replace(self.state, since=None)

    def try_return(self) -> bool:
        """Say whether it is time to try the way back."""
        return self._lost_at is not None and time.monotonic() - self._lost_at >= _PATIENCE_SECONDS
