"""Xid lines of the kernel log, in the forms that drivers 470 to 580 write."""

from __future__ import annotations

from gpudiag.collect.xid import parse_records, read_xids
from gpudiag.model.reading import Ok, Unavailable

RECORDS = [
    b"4,1,1000000,-;random: crng init done\n",
    b"3,2,2500000,-;NVRM: Xid (PCI:0000:1b:00): 79, pid='<unknown>', name=<unknown>, fallen off the bus.\n SUBSYSTEM=pci\n",
    b"4,3,3000000,-;NVRM: Xid (PCI:0000:2A:00): 31, pid=4711, name=python3, Ch 00000008, intr 10000000. MMU Fault\n",
    b"4,4,4000000,-;NVRM: Xid (PCI:0000:3b:00): 48, An uncorrectable double bit error (DBE) has been detected\n",
    b"4,5,5000000,c;NVRM: GPU at PCI:0000:1b:00: GPU-8f has fallen off the bus\n",
    b"4,6,6000000,-;NVRM: Xid (PCI:0000:4b:00): 13, Graphics \x1b[31mException\n",
    b"4,7,7000000,-;NVRM: loading NVIDIA UNIX Open Kernel Module\n",
]


def test_numbers_places_and_processes() -> None:
    events = parse_records(RECORDS)
    assert [(e.number, e.pci, e.pid, e.process) for e in events] == [
        (79, "0000:1b:00.0", None, None),
        (31, "0000:2a:00.0", 4711, "python3"),
        (48, "0000:3b:00.0", None, None),
        (79, "0000:1b:00.0", None, None),
        (13, "0000:4b:00.0", None, None),
    ]
    assert events[0].at_s == 2.5
    assert "\x1b" not in events[-1].text


def test_only_the_last_events_are_kept() -> None:
    events = parse_records(RECORDS[2:3] * 1000)
    assert len(events) == 200


def test_this_machine_answers_in_one_form_or_the_other() -> None:
    assert isinstance(read_xids(), Ok | Unavailable)
