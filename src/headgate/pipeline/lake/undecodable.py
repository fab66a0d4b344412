"""What a decoder says of a payload that is not what it is taken for."""

from __future__ import annotations


class UndecodableError(ValueError):
    """The payload cannot be read; the text says why, for whoever looks into the quarantine."""
