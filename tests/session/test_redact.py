"""What redaction takes out, what it leaves, and that it keeps things apart that are apart."""

from __future__ import annotations

import msgspec
import pytest
from msgspec import Struct

from gpudiag.model.reading import Ok
from gpudiag.model.snapshot import Observation
from gpudiag.session.redact import Redactor
from tests.session.samples import HOST, SECRETS, USER, host, observation, process, snapshot


class Note(Struct, frozen=True, kw_only=True):
    """A structure that redaction has never heard of."""

    text: str
    lines: tuple[str, ...] = ()


def clean(text: str, *others: str) -> str:
    return Redactor().apply(Note(text=text, lines=others)).text


def test_nothing_private_is_left_in_a_whole_observation() -> None:
    data = msgspec.json.encode(Redactor().apply(observation())).decode()
    for private in (HOST, USER, "10.0.0.7", "10.0.0.8", "2001:db8::7", "other-node", "correct horse", *SECRETS):
        assert private not in data, private


def test_what_recognition_reads_is_left() -> None:
    shown = Redactor().apply(observation())
    worker = shown.snapshots[0].processes[1]
    assert isinstance(worker.cmdline, Ok)
    assert worker.cmdline.value[:3] == ("python3", "-m", "vllm.entrypoints.cli.main")
    assert isinstance(worker.environ, Ok)
    assert worker.environ.value["RANK"] == "1"
    assert worker.environ.value["NCCL_DEBUG"] == "WARN"
    assert isinstance(worker.stacks, Ok)
    assert [f.function for f in worker.stacks.value[0].frames] == ["wait", "load", "user-1_hook"]
    assert worker.stacks.value[0].frames[0].file.endswith("/site-packages/torch/utils/file_baton.py")


def test_two_ends_of_a_socket_still_meet() -> None:
    shown = Redactor().apply(observation())
    sockets = shown.snapshots[0].sockets
    assert isinstance(sockets, Ok)
    near, far, loop, six = sockets.value
    assert (near.local, near.remote) == (far.remote, far.local)
    assert near.local != near.remote
    assert near.local.endswith(":5000")
    assert loop.local == "127.0.0.1:9000"
    assert loop.remote == "0.0.0.0:*"
    assert six.local == "::1:9000"
    assert six.remote.endswith(":7000")
    assert "2001" not in six.remote


def test_one_file_keeps_one_name() -> None:
    shown = Redactor().apply(observation())
    look = shown.snapshots[0]
    worker = look.processes[1]
    assert isinstance(worker.file_polls, Ok)
    assert worker.file_polls.value[0].path == look.files[0].path == "/home/user-1/.cache/ops/lock"


def test_addresses_that_name_no_machine_stay() -> None:
    text = "127.0.0.1:80 0.0.0.0 [::]:80 [::1]:9 libcudnn.so.9.10.2.21 nvidia_cudnn-9.10.2.21 12:34:56 0000:0a:00.0 at::native"
    assert clean(text) == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("tcp 10.1.2.3:80", "tcp ip-1:80"),
        ("::ffff:10.1.2.3:80", "::ffff:ip-1:80"),
        ("[fe80::1]:5000", "[ip-1]:5000"),
        ("fe80::1:5000", "ip-1:5000"),
        ("fe80::1%eth0", "ip-1%eth0"),
        ("/home/alice/x and /home/alice", "/home/user-1/x and /home/user-1"),
        ("/Users/bob/x", "/Users/user-1/x"),
        ("/nfs/home/carol/x", "/nfs/home/user-1/x"),
        ("/root/x", "/root/x"),
        ("~dave/x", "~user-1/x"),
        ("tcp://trainer-7:29500", "tcp://host-1:29500"),
        ("Authorization: Bearer abcdef123456", "Authorization: Bearer secret-1"),
        ("https://u:pw@git.example/x", "https://secret-1@host-1/x"),
        ('{"token": "abc"}', '{"token": "secret-1"}'),
        ("PASSWORD=hunter2 x", "PASSWORD=secret-1 x"),
        ("serve --api-key abc --port 80", "serve --api-key secret-1 --port 80"),
        ("--hf-token=abc", "--hf-token=secret-1"),
        ("-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END", "-----BEGIN RSA PRIVATE KEY-----secret-1-----END"),
    ],
)
def test_one_text(text: str, expected: str) -> None:
    assert clean(text) == expected


@pytest.mark.parametrize("secret", SECRETS)
def test_tokens_go_wherever_they_stand(secret: str) -> None:
    assert clean(f"before {secret}, after") == "before secret-1, after"


@pytest.mark.parametrize(
    "text",
    [
        "max_total_tokens=4096 num_speculative_tokens: 3",
        "--max-num-batched-tokens 512",
        "hf_transformers hf_hub_download disk-based sk-learn-contrib-package",
        "/usr/lib/python3.11/site-packages/vllm/tokenizer.py",
    ],
)
def test_words_that_only_look_secret_stay(text: str) -> None:
    assert clean(text) == text


def test_a_user_is_also_found_outside_the_home() -> None:
    shown = clean("/tmp/torchinductor_alice/x", "/home/alice/y")
    assert shown == "/tmp/torchinductor_user-1/x"


@pytest.mark.parametrize("name", ["vllm", "file", "tcp", "dev", "wait", "torch", "S", "42"])
def test_a_machine_named_like_a_word_of_the_model_breaks_nothing(name: str) -> None:
    before = snapshot(process(1), process(2, "vllm serve"), host_name=name)
    shown = Redactor().apply(Observation(snapshots=(before,))).snapshots[0]
    assert shown.host.name == "host-1"
    assert shown.processes == before.processes


@pytest.mark.parametrize("name", ["vllm", "dev", "site", "tcp", "ops", "torch"])
def test_a_user_named_like_a_directory_changes_only_the_home(name: str) -> None:
    paths = (f"/home/{name}/x", "/dev/shm/psm_1", "/usr/lib/python3/site-packages/torch/ops/vllm.py", "tcp")
    note = Redactor().apply(Note(text="", lines=paths))
    assert note.lines[0] == "/home/user-1/x"
    assert note.lines[1] == "/dev/shm/psm_1"
    assert note.lines[3] == "tcp"


def test_a_placeholder_is_never_a_text_of_the_target() -> None:
    note = Redactor().apply(Note(text="/home/user-1/x", lines=("/home/alice/x",)))
    assert len({note.text, note.lines[0], "/home/user-1/x", "/home/alice/x"}) == 4


def test_environment_values_outside_the_list_go() -> None:
    shown = Redactor().apply(observation()).snapshots[0].processes[1]
    assert isinstance(shown.environ, Ok)
    assert shown.environ.value["COMPANY_MOTTO"] == "env-1"
    assert shown.environ.value["VLLM_API_KEY"].startswith("secret-")
    assert shown.environ.value["MASTER_ADDR"].startswith("host-")
    assert shown.environ.value["TOKENIZERS_PARALLELISM"] == "false"


def test_the_report_says_what_and_where_but_not_the_value() -> None:
    redactor = Redactor()
    redactor.apply(observation())
    report = redactor.report
    user = next(i for i in report.items if i.kind == "user")
    assert user.placeholder == "user-1"
    assert user.count >= 3
    assert "snapshots[].files[].path" in user.where
    assert "1 user name" in report.summary
    text = msgspec.json.encode(report).decode()
    assert not [p for p in (HOST, USER, "10.0.0.7", *SECRETS) if p in text]


def test_one_redactor_keeps_names_apart_over_several_structures() -> None:
    redactor = Redactor()
    first = redactor.apply(Note(text="/home/alice/x"))
    second = redactor.apply(Note(text="/home/bob/x"))
    again = redactor.apply(Note(text="/home/alice/y"))
    assert (first.text, second.text, again.text) == ("/home/user-1/x", "/home/user-2/x", "/home/user-1/y")


def test_a_domain_belongs_to_its_host() -> None:
    before = snapshot(process(1, "celery@node-7.corp.example", "node-7"), host_name="node-7.corp.example")
    shown = Redactor().apply(Observation(snapshots=(before,))).snapshots[0]
    cmdline = shown.processes[0].cmdline
    assert isinstance(cmdline, Ok)
    assert cmdline.value == ("celery@host-1", "host-1")
    assert host("x").name == "x"
