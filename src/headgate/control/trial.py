"""A change of policy that is being watched."""

from __future__ import annotations

from dataclasses import dataclass, field

from headgate.contract import Policy
from headgate.control.circumstances import HARDER, Circumstances
from headgate.control.restraint import Fingerprint
from headgate.control.strains import Strains


@dataclass
class Trial:
    """What was before, what was promised, and what is measured since."""

    before: Policy
    strains_before: Strains
    since: float
    fingerprint: Fingerprint
    predicted: Strains
    circumstances: Circumstances
    """Those for which the old policy was planned: what was measured before belongs to them."""
    measured: list[Strains] = field(default_factory=list)

    def became_harder(self, now: Circumstances) -> bool:
        """Has load risen, a link become slower, or somebody come since the old policy's plan?"""
        then = self.circumstances
        return bool(now.keys() - then.keys()) or any(
            value < then[key] * (1 - HARDER)
            if isinstance(key, str)
            else value > then[key] * (1 + HARDER)
            for key, value in now.items()
        )
