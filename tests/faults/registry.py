"""Every fault that can be produced here, and every look-alike: one list, with what was planted and what should be said."""

from __future__ import annotations

from typing import Final

from tests.faults import drafters, launched, live, logs, machines, recorded, reports, screens
from tests.faults.case import unique

_PARTS: Final = (live, recorded, logs, reports, machines, launched, drafters)

FAULTS: Final = unique(fault for part in _PARTS for fault in part.FAULTS)
"""Something is wrong. The answer must name the code and the culprit; to abstain is a miss."""

LOOK_ALIKES: Final = unique(fault for part in _PARTS for fault in part.LOOK_ALIKES)
"""Healthy, idle or slow. No finding of severity 'error' may be said."""

UNDECIDED: Final = unique((*logs.UNDECIDED, *reports.UNDECIDED))
"""Something is wrong, and what was kept does not show what: no error may be said, and nobody blamed."""

SCREENS: Final = unique(screens.SCREENS)
"""Whether the terminal interface says the same as the report, whatever that is: an error, if it does not."""
