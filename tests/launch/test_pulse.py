"""When a start is looked at: never while anything arrives, soon when nothing happens, later where processors are busy."""

from __future__ import annotations

from gpudiag.launch.phases import Fraction
from gpudiag.launch.pulse import QUIET_S, SILENT_S, Pulse, StartWatch
from gpudiag.launch.weight_load import Loaded, WeightLoad

GB = 1_000_000_000


def looks(seconds: int, **rates: float) -> list[tuple[float, str]]:
    """When a start that changes at these rates a second would be looked at, and why."""
    watch = StartWatch()
    found: list[tuple[float, str]] = []
    for tick in range(2 * seconds):
        at = tick / 2
        why = watch.add(
            Pulse(
                at=at,
                log_bytes=int(at * rates.get("log", 0)),
                cpu_s=at * rates.get("cpu", 0),
                births=int(at * rates.get("births", 0)),
                bytes_moved=int(at * rates.get("bytes", 0)),
                gpu_busy=bool(rates.get("gpu")),
            )
        )
        if why:
            found.append((at, why))
    return found


def test_what_does_something_is_left_alone() -> None:
    for rates in ({"log": 100.0}, {"bytes": 50e6}, {"births": 2.0}, {"log": 100.0, "cpu": 2.0}):
        assert looks(300, **rates) == []


def test_what_does_nothing_is_looked_at_soon_and_then_less_and_less() -> None:
    found = looks(300)
    assert found[0] == (QUIET_S, "quiet")
    assert len(found) < 12
    assert {why for _, why in found} == {"quiet"}


def test_heartbeats_are_no_work() -> None:
    assert looks(10, cpu=0.01)[0] == (QUIET_S, "quiet")


def test_processor_time_buys_patience_but_not_for_ever() -> None:
    """Imports use it for a minute without a word; a rank that spins in a wait does too."""
    found = looks(300, cpu=1.0)
    assert found[0] == (SILENT_S, "silent")
    assert len(found) <= 4
    assert looks(15, gpu=1.0) == []


def test_a_load_by_reading_files() -> None:
    load = WeightLoad(_loaded(0.0), 100 * GB)
    amount = load.amount(_loaded(2.0, read=40 * GB, most=40 * GB, stored=39 * GB), None)
    assert (amount.done, amount.total, amount.rate_per_s) == (40 * GB, 100 * GB, 20 * GB)
    assert (amount.eta_s, amount.detail) == (3.0, "disk")


def test_a_mapped_load_shows_in_memory_alone() -> None:
    load = WeightLoad(_loaded(0.0, rss=GB), 100 * GB)
    amount = load.amount(_loaded(4.0, rss=21 * GB), None)
    assert (amount.done, amount.detail) == (20 * GB, "page cache")


def test_ranks_that_each_read_everything_count_once_on_their_gpus() -> None:
    load = WeightLoad(_loaded(0.0, gpu=8 * GB), 100 * GB)
    amount = load.amount(_loaded(2.0, read=800 * GB, most=100 * GB, gpu=58 * GB), None)
    assert amount.done == 50 * GB


def test_the_engines_own_bar_bounds_what_is_counted() -> None:
    load = WeightLoad(_loaded(0.0), 100 * GB)
    amount = load.amount(_loaded(2.0, rss=90 * GB), Fraction(done=5, total=10))
    assert (amount.done, amount.detail) == (60 * GB, "page cache, file 6 of 10")


def test_nobody_knows_how_much_a_hub_model_is() -> None:
    amount = WeightLoad(_loaded(0.0), None).amount(_loaded(1.0, read=GB, most=GB), None)
    assert (amount.total, amount.eta_s) == (None, None)


def _loaded(at: float, read: int = 0, most: int = 0, rss: int = 0, stored: int = 0, gpu: int | None = None) -> Loaded:
    return Loaded(at=at, read_chars=read, most_read=most, rss_bytes=rss, storage_bytes=stored, gpu_bytes=gpu)
