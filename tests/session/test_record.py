"""A recording is written completely or not at all, reads back as it was, and damage is one clear line."""

from __future__ import annotations

import hashlib
import io
import os
import stat
import zipfile
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpudiag.errors import ExitCode, RecordingError
from gpudiag.model.snapshot import Observation
from gpudiag.session import bundle, load, record
from tests.session.samples import HOST, USER, observation, process, snapshot


def members_of(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def rewrite(path: Path, members: dict[str, bytes], *, method: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return path


def resealed(members: dict[str, bytes]) -> dict[str, bytes]:
    """The same members under a manifest that fits them: what somebody who forges a recording would write."""
    manifest = msgspec.json.decode(members["manifest.json"])
    manifest["contents"] = {
        name: {"sha256": hashlib.sha256(data).hexdigest(), "size_bytes": len(data)}
        for name, data in members.items()
        if name != "manifest.json"
    }
    return members | {"manifest.json": msgspec.json.encode(manifest)}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    target = tmp_path / "hang.gpudiag"
    record.save(observation(), target)
    return target


def refusal(path: Path) -> str:
    with pytest.raises(RecordingError) as caught:
        load.load(path)
    assert caught.value.exit_code == ExitCode.USAGE
    assert "\n" not in caught.value.message
    return caught.value.message


def read_or_refuse(path: Path) -> Observation | str:
    try:
        return load.load(path).observation
    except RecordingError as error:
        return error.message


def test_it_reads_back_as_it_was(tmp_path: Path) -> None:
    before = observation()
    report = record.save(before, tmp_path / "x.gpudiag", redact=False, command="attach 42")
    recording = load.load(tmp_path / "x.gpudiag")
    assert recording.observation == before
    assert not recording.manifest.redacted
    assert recording.manifest.command == "attach 42"
    assert report.items == recording.redactions.items == ()


def test_it_is_redacted_unless_told_otherwise(path: Path) -> None:
    recording = load.load(path)
    assert recording.manifest.redacted
    assert recording.redactions.items
    everything = b"".join(members_of(path).values()).decode()
    assert HOST not in everything
    assert USER not in everything


def test_only_its_owner_can_read_it(path: Path) -> None:
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_an_existing_file_is_kept(path: Path) -> None:
    before = path.read_bytes()
    with pytest.raises(RecordingError, match="exists and is not overwritten"):
        record.save(observation(), path)
    with pytest.raises(RecordingError, match="exists and is not overwritten"):
        record.check_writable(path)
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == [path.name]
    record.save(Observation(snapshots=(snapshot(),)), path, force=True)
    assert len(load.load(path).observation.snapshots) == 1


def test_a_link_is_not_written_through(tmp_path: Path) -> None:
    link = tmp_path / "x.gpudiag"
    link.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RecordingError, match="exists"):
        record.save(observation(), link)
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize(
    ("target", "words"),
    [("missing/x.gpudiag", "there is no directory"), (".", "is a directory"), ("file/x", "there is no directory")],
)
def test_a_bad_place_is_said_before_the_look(tmp_path: Path, target: str, words: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RecordingError, match=words):
        record.check_writable(tmp_path / target)


def test_a_failed_write_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match="cannot write"):
        record.save(observation(), tmp_path / ("x" * 300))
    assert os.listdir(tmp_path) == []


def test_bytes_that_are_no_text_are_kept_readable(tmp_path: Path) -> None:
    look = snapshot(process(1, b"caf\xe9 \x1b[31m".decode("utf-8", "surrogateescape")))
    record.save(Observation(snapshots=(look,)), tmp_path / "x.gpudiag")
    assert load.load(tmp_path / "x.gpudiag").observation.last.processes[0].title == "caf\\xe9 \x1b[31m"


def test_alike_looks_at_many_ranks_are_within_the_limits(tmp_path: Path) -> None:
    worker = observation().snapshots[0].processes[1]
    many = snapshot(*(msgspec.structs.replace(worker, pid=n) for n in range(load.MAX_PROCESSES)))
    record.save(Observation(snapshots=(many,) * 3), tmp_path / "x.gpudiag", redact=False)
    with zipfile.ZipFile(tmp_path / "x.gpudiag") as archive:
        assert archive.getinfo("observation.json").file_size > bundle.RATIO_APPLIES_FROM_BYTES
    assert len(load.load(tmp_path / "x.gpudiag").observation.last.processes) == load.MAX_PROCESSES


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    assert "No such file" in refusal(tmp_path / "nothing")
    assert not load.is_recording(tmp_path / "nothing")


def test_what_is_no_regular_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    assert "no regular file" in refusal(tmp_path / "fifo")
    assert "no regular file" in refusal(tmp_path)
    assert "no regular file" in refusal(Path("/dev/zero"))


def test_other_files_are_no_recordings(tmp_path: Path) -> None:
    (tmp_path / "server.log").write_text("INFO hello\n")
    assert "truncated or no recording" in refusal(tmp_path / "server.log")
    assert not load.is_recording(tmp_path / "server.log")
    rewrite(tmp_path / "other.zip", {"hello.txt": b"x"})
    assert "it holds other files" in refusal(tmp_path / "other.zip")
    assert load.is_recording(tmp_path / "other.zip")


@pytest.mark.parametrize(
    "name", ["../observation.json", "/etc/passwd", "logs/../../x", "logs/", "logs/.hidden", "observation.json/"]
)
def test_names_that_look_like_paths_are_refused(path: Path, name: str) -> None:
    assert "it holds other files" in refusal(rewrite(path, members_of(path) | {name: b"x"}))


@pytest.mark.parametrize("name", ["manifest.json", "observation.json", "redactions.json"])
def test_a_missing_member(path: Path, name: str) -> None:
    members = members_of(path)
    del members[name]
    assert name in refusal(rewrite(path, members))


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_member_that_is_there_twice(path: Path) -> None:
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("observation.json", b"{}")
    assert "it holds other files" in refusal(path)


def test_a_changed_member(path: Path) -> None:
    members = members_of(path)
    members["observation.json"] = members["observation.json"].replace(b'"pid":2', b'"pid":3', 1)
    assert "was changed after it was written" in refusal(rewrite(path, members))


def test_other_versions(path: Path) -> None:
    members = members_of(path)
    newer = members | {"manifest.json": members["manifest.json"].replace(b"gpudiag.recording/1", b"gpudiag.recording/2")}
    assert "written by another version of gpudiag (format gpudiag.recording/2" in refusal(rewrite(path, newer))
    newer = resealed(
        members | {"observation.json": members["observation.json"].replace(b"gpudiag.snapshot/1", b"gpudiag.snapshot/9")}
    )
    assert "format gpudiag.snapshot/9" in refusal(rewrite(path, newer))
    escape = members | {"manifest.json": members["manifest.json"].replace(b"gpudiag.recording/1", b"\\u001b[2J")}
    assert "format unknown" in refusal(rewrite(path, escape))


def test_no_looks(path: Path) -> None:
    assert "holds no look" in refusal(rewrite(path, resealed(members_of(path) | {"observation.json": b'{"snapshots":[]}'})))


@pytest.mark.parametrize(
    "data", [b"", b"null", b"[" * 100_000, b'{"snapshots": 1}', b"\xff\xfe", b'{"snapshots":[{"\x1b[2J":1}]}']
)
def test_contents_of_another_form(path: Path, data: bytes) -> None:
    message = refusal(rewrite(path, resealed(members_of(path) | {"observation.json": data})))
    assert "damaged" in message
    assert message.isprintable()


def test_a_bomb_is_not_unpacked(path: Path) -> None:
    members = members_of(path)
    bomb = rewrite(path, resealed(members | {"observation.json": b" " * (64 << 20)}))
    assert bomb.stat().st_size < 1 << 20
    assert "would unpack to 64 MB" in refusal(bomb)


def test_a_member_that_is_larger_than_it_says(path: Path) -> None:
    data = rewrite(path, members_of(path), method=zipfile.ZIP_STORED).read_bytes()
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        size = archive.getinfo("observation.json").file_size
    smaller = (size - 1).to_bytes(4, "little")
    path.write_bytes(data.replace(size.to_bytes(4, "little"), smaller))
    assert "damaged" in refusal(path)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cut=st.integers(min_value=0), flips=st.lists(st.tuples(st.integers(min_value=0), st.integers(0, 255)), max_size=4))
def test_damage_anywhere_is_one_line_or_the_same_observation(tmp_path: Path, cut: int, flips: list[tuple[int, int]]) -> None:
    whole = tmp_path / "whole.gpudiag"
    if not whole.exists():
        record.save(observation(), whole, redact=False)
    data = bytearray(whole.read_bytes())
    for position, value in flips:
        data[position % len(data)] = value
    damaged = tmp_path / "damaged.gpudiag"
    damaged.write_bytes(data[: cut % (len(data) + 1)] if not flips else data)
    result = read_or_refuse(damaged)
    assert result == observation() or (isinstance(result, str) and result.isprintable())
