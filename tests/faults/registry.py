"""Every fault that can be produced here, and every look-alike: one list, with what was planted and what should be said."""

from __future__ import annotations

from typing import Final

from tests.faults import live, logs, machines, recorded, reports
from tests.faults.case import unique

FAULTS: Final = unique((*live.FAULTS, *recorded.FAULTS, *logs.FAULTS, *reports.FAULTS, *machines.FAULTS))
"""Something is wrong. The answer must name the code and the culprit; to abstain is a miss."""

LOOK_ALIKES: Final = unique(
    (*live.LOOK_ALIKES, *recorded.LOOK_ALIKES, *logs.LOOK_ALIKES, *reports.LOOK_ALIKES, *machines.LOOK_ALIKES)
)
"""Healthy, idle or slow. No finding of severity 'error' may be said."""

UNDECIDED: Final = unique((*logs.UNDECIDED, *reports.UNDECIDED))
"""Something is wrong, and what was kept does not show what: no error may be said, and nobody blamed."""
