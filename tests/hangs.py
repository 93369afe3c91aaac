"""The bound of each wait for an event. It ends a test that hangs, and says nothing of how fast a machine is."""

from __future__ import annotations

from typing import Final

HANGS_AFTER_S: Final = 300.0
