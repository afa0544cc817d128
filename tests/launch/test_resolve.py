"""From a request to argv and environment, against the options of the real engines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from gpudiag.errors import UsageError
from gpudiag.launch import arming, cpu
from gpudiag.model.run import LaunchPlan
from tests.launch.requests import HOST, VARIABLES, drafter, files, planned, request, table, value

CPU_HOST = replace(HOST, has_gpu=False)
SGLANG_FIGURES = {"--speculative-num-steps": "3", "--speculative-eagle-topk": "1", "--speculative-num-draft-tokens": "4"}


@pytest.fixture
def draft(tmp_path: Path) -> str:
    place = tmp_path / "draft"
    place.mkdir()
    (place / "model.safetensors").write_bytes(b"0" * 1000)
    return str(place)


def environment(plan: LaunchPlan) -> dict[str, str]:
    return dict(plan.environment)


def why(plan: LaunchPlan, name: str) -> str:
    return " ".join(s.why for s in plan.settings if s.name == name)


def test_sglang_is_started_with_eagle3_and_every_figure(tmp_path: Path, draft: str) -> None:
    plan = planned(request("sglang", draft=draft, tensor_parallel=2), tmp_path, draft=drafter(draft))
    assert plan.argv[:3] == ("/env/sglang/bin/python", "-m", "sglang.launch_server")
    assert value(plan, "--model-path") == "/models/target"
    assert value(plan, "--tp-size") == "2"
    assert value(plan, "--speculative-algorithm") == "EAGLE3"
    assert value(plan, "--speculative-draft-model-path") == draft
    assert {name: value(plan, name) for name in SGLANG_FIGURES} == SGLANG_FIGURES
    assert value(plan, "--speculative-draft-model-quantization") == "unquant"
    assert value(plan, "--max-running-requests") == "256"
    assert (plan.drafter, plan.tensor_parallel, plan.port) == (draft, 2, 30000)
    assert plan.checkpoint_bytes == (16 << 30) + 1000


def test_vllm_gets_one_json_value_with_the_method_named(tmp_path: Path, draft: str) -> None:
    plan = planned(request("vllm", draft=draft), tmp_path, draft=drafter(draft))
    assert plan.argv[1:5] == ("-m", "vllm.entrypoints.cli.main", "serve", "/models/target")
    assert json.loads(value(plan, "--speculative-config") or "") == {
        "method": "eagle3",
        "model": draft,
        "num_speculative_tokens": 3,
    }
    assert plan.port == 8000


@pytest.mark.parametrize("engine", ["sglang", "vllm"])
def test_without_a_drafter_one_line_says_so_and_what_to_give(engine: str, tmp_path: Path) -> None:
    own = planned(request(engine), tmp_path, model=files(hidden_size=1))
    assert [n for n in own.notes if n.startswith("EAGLE-3 off: no drafter; give --draft DIR")]
    named = planned(request(engine), tmp_path)
    (note,) = [n for n in named.notes if n.startswith("EAGLE-3 off")]
    assert "hf download yuhuili/EAGLE3-LLaMA3.1-Instruct-8B" in note
    assert not [a for a in (*own.argv, *named.argv) if "speculative" in a]


def test_the_profiles_drafter_is_taken_from_the_hubs_cache(tmp_path: Path) -> None:
    snapshot = tmp_path / "hub/models--yuhuili--EAGLE3-LLaMA3.1-Instruct-8B/snapshots/abc"
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text("{}")
    plan = planned(request("sglang"), tmp_path, variables={**VARIABLES, "HF_HUB_CACHE": str(tmp_path / "hub")})
    assert plan.drafter == str(snapshot)
    assert "profile llama-3.x" in " ".join(s.source for s in plan.settings if s.name == "--speculative-draft-model-path")


def test_no_draft_leaves_speculation_out(tmp_path: Path) -> None:
    plan = planned(request("sglang", speculate=False), tmp_path)
    assert plan.notes == ("EAGLE-3 off: --no-draft",)
    assert plan.drafter is None


def test_speculation_of_the_users_own_is_left_alone(tmp_path: Path, draft: str) -> None:
    words = ("--speculative-algorithm", "NEXTN", "--speculative-num-steps", "1")
    plan = planned(request("sglang", *words, draft=draft), tmp_path)
    assert plan.argv[-4:] == words
    assert "--speculative-draft-model-path" not in plan.argv
    assert "decides about speculation" in " ".join(plan.notes)
    assert value(plan, "--max-running-requests") == "256", "SGLang would fall back to 48 here too"


def test_a_figure_on_the_command_line_beats_the_profile(tmp_path: Path, draft: str) -> None:
    plan = planned(request("sglang", "--max-running-requests", "32", draft=draft), tmp_path, draft=drafter(draft))
    assert plan.argv.count("--max-running-requests") == 1
    assert value(plan, "--max-running-requests") == "32"
    assert "yours, kept" in why(plan, "--max-running-requests")


def test_a_quantised_drafter_is_not_said_to_be_plain(tmp_path: Path, draft: str) -> None:
    plan = planned(request("sglang", draft=draft), tmp_path, draft=drafter(draft, "F8_E4M3"))
    assert "--speculative-draft-model-quantization" not in plan.argv


def test_a_drafters_quantization_is_left_to_a_version_without_the_choice(tmp_path: Path, draft: str) -> None:
    flags = table("sglang")
    old = replace(
        flags,
        flags=tuple(
            replace(f, choices=("awq",)) if "--speculative-draft-model-quantization" in f.names else f for f in flags.flags
        ),
    )
    plan = planned(request("sglang", draft=draft), tmp_path, flags=old, draft=drafter(draft))
    assert "--speculative-draft-model-quantization" not in plan.argv
    assert "reaches the drafter" in " ".join(plan.notes)


def test_names_are_those_of_the_installed_version(tmp_path: Path) -> None:
    flags = table("sglang")
    old = replace(flags, flags=tuple(replace(f, names=("--tp",)) if "--tp-size" in f.names else f for f in flags.flags))
    assert value(planned(request("sglang", tensor_parallel=4), tmp_path, flags=old), "--tp") == "4"


def test_an_engine_that_could_not_be_asked_is_planned_for_all_the_same(tmp_path: Path, draft: str) -> None:
    plan = planned(request("sglang", draft=draft, tensor_parallel=2), tmp_path, flags=None, draft=drafter(draft))
    assert value(plan, "--tp-size") == "2"
    assert plan.version is None


def test_a_profile_of_the_users_own_is_resolved(tmp_path: Path) -> None:
    profile = tmp_path / "mine.toml"
    profile.write_text(
        'name = "mine"\nsummary = "x"\n'
        'tensor_parallel = {value = 4, source = "measured"}\n'
        '[sglang.arguments]\n"--mem-fraction-static" = {value = 0.8, source = "measured"}\n'
        '"--disable-cuda-graph" = {value = true, source = "measured"}\n'
        '"--enable-mixed-chunk" = {value = false, source = "off"}\n'
        '[sglang.environment]\nSGLANG_X = {value = 1, source = "y"}\n'
    )
    wanted = request("sglang", "--mem-fraction-static", "0.5", profiles=(str(profile),))
    plan = planned(wanted, tmp_path)
    assert (plan.tensor_parallel, value(plan, "--tp-size")) == (4, "4")
    assert plan.argv.count("--mem-fraction-static") == 1
    assert value(plan, "--mem-fraction-static") == "0.5"
    assert "--disable-cuda-graph" in plan.argv
    assert "--enable-mixed-chunk" not in plan.argv
    assert environment(plan)["SGLANG_X"] == "1"
    assert plan.profile == "mine+llama-3.x"


@pytest.mark.parametrize("required", [True, False])
def test_an_option_of_a_profile_that_the_version_does_not_have(required: bool, tmp_path: Path) -> None:
    profile = tmp_path / "mine.toml"
    profile.write_text(
        f'name = "mine"\nsummary = "x"\n[sglang]\nrequired = {str(required).lower()}\n'
        '[sglang.arguments]\n"--flux" = {value = 1, source = "a dream"}\n'
    )
    plan = planned(request("sglang", profiles=(str(profile),)), tmp_path)
    assert ("--flux" in plan.argv) == required, "it is left in, for the check of options to refuse the start"
    assert any("--flux" in note and "profile mine" in note for note in plan.notes) == required
    assert ("left out: sglang 0.5.23 has no such option" in why(plan, "--flux")) != required


@pytest.mark.parametrize(
    ("changes", "words", "said"),
    [
        ({"tensor_parallel": 2}, ("--tp-size", "4"), "--tp 2, and --tp-size 4"),
        ({"port": 8000}, ("--port", "9000"), "--port 8000, and --port 9000"),
        ({}, ("--port", "x"), "no port"),
        ({}, ("--port", "\u00b2"), "no port"),
        ({}, ("--port", "9" * 5000), "no port"),
    ],
)
def test_two_answers_to_one_question_are_refused(
    changes: dict[str, Any], words: tuple[str, ...], said: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=said):
        planned(request("sglang", *words, **changes), tmp_path)


def test_sizes_and_address_come_from_whoever_says_them(tmp_path: Path) -> None:
    words = ("-tp", "2", "--pipeline-parallel-size=2", "-dp", "2", "--host", "10.0.0.1", "--port", "9001")
    plan = planned(request("vllm", *words), tmp_path)
    assert (plan.tensor_parallel, plan.pipeline_parallel, plan.data_parallel) == (2, 2, 2)
    assert (plan.host, plan.port) == ("10.0.0.1", 9001)
    assert planned(request("vllm", "--host", "0.0.0.0"), tmp_path).host == "127.0.0.1"


def test_a_file_of_options_is_said_to_give_way(tmp_path: Path) -> None:
    (note,) = [n for n in planned(request("vllm", "--config", "mine.yaml"), tmp_path).notes if "--config" in n]
    assert "gives way to the options added here" in note
    assert not [n for n in planned(request("vllm"), tmp_path).notes if "--config" in n]


def test_a_drafter_whose_directory_is_gone_is_left_to_the_checks(tmp_path: Path) -> None:
    gone = str(tmp_path / "gone")
    assert planned(request("sglang", draft=gone), tmp_path).checkpoint_bytes == files().weight_bytes


def test_a_host_without_a_gpu_gets_the_profile_for_cpus(tmp_path: Path) -> None:
    plan = planned(request("sglang", tensor_parallel=2), tmp_path, host=CPU_HOST)
    assert value(plan, "--device") == "cpu"
    assert environment(plan)["SGLANG_USE_CPU_ENGINE"] == "1"
    assert environment(plan)["SGLANG_CPU_OMP_THREADS_BIND"] == "0-3|4-7"
    assert "EAGLE-3 off: SGLang has no EAGLE" in plan.notes[0]
    assert not [name for name in environment(plan) if name.startswith(("NCCL", "TORCH"))]
    assert "no GPU here" in why(plan, "flight-recorder")


def test_a_profile_with_eight_gpus_asks_for_none_where_there_are_none(tmp_path: Path) -> None:
    wanted = request("sglang", profiles=("kimi-k2.5",))
    assert planned(wanted, tmp_path).tensor_parallel == 8
    assert planned(wanted, tmp_path, host=CPU_HOST).tensor_parallel == 1


@pytest.mark.parametrize(
    ("cpus", "ranks", "said"),
    [(range(8), 2, "0-3|4-7"), ((0, 2, 4, 6), 2, "0,2|4,6"), ((3, 4, 5), 3, "3|4|5"), (range(5), 2, "0-1|2-3")],
)
def test_cpus_are_shared_out(cpus: Any, ranks: int, said: str) -> None:
    assert cpu.groups(tuple(cpus), ranks) == said


NAMES = [
    "NCCL_DEBUG",
    "NCCL_DEBUG_FILE",
    "NCCL_RAS_ADDR",
    "PYTHONFAULTHANDLER",
    "PYTHONUNBUFFERED",
    "TORCH_FR_BUFFER_SIZE",
    "TORCH_FR_DUMP_TEMP_FILE",
    "TORCH_NCCL_DEBUG_INFO_PIPE_FILE",
    "TORCH_NCCL_ENABLE_MONITORING",
    "VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS",
    "CUDA_COREDUMP_PIPE",
]


@settings(deadline=None, max_examples=60)
@given(
    engine=st.sampled_from(["sglang", "vllm"]),
    own=st.dictionaries(st.sampled_from(NAMES), st.just("mine")),
    off=st.sets(st.sampled_from(sorted(arming.PARTS))),
    dump=st.booleans(),
)
def test_nothing_of_the_users_environment_is_overridden(engine: str, own: dict[str, str], off: set[str], dump: bool) -> None:
    wanted = request(engine, not_armed=frozenset(off), kernel_dump=dump)
    plan = planned(wanted, Path("/nonexistent"), variables={**VARIABLES, **own})
    assert not set(environment(plan)) & set(own)
    kept = {s.name for s in plan.settings if s.source == "your environment"}
    assert kept <= set(own)
    assert not {s.switch for s in plan.settings} & {f"--no-arm {name}" for name in off}
    # What a person can switch off is named; so is who said what he cannot.
    assert all(s.why and s.source for s in plan.settings)


@settings(deadline=None, max_examples=60)
@given(data=st.data(), engine=st.sampled_from(["sglang", "vllm"]))
def test_no_option_of_the_user_is_given_twice_or_changed(data: st.DataObject, engine: str) -> None:
    mine = data.draw(
        st.lists(
            st.sampled_from(
                {
                    "sglang": ["--watchdog-timeout", "--max-running-requests", "--attention-backend", "--device"],
                    "vllm": ["--max-num-seqs", "--speculative-config"],
                }[engine]
            ),
            unique=True,
        )
    )
    words = tuple(w for name in mine for w in (name, "7"))
    plan = planned(request(engine, *words), Path("/nonexistent"), host=CPU_HOST)
    assert plan.argv[len(plan.argv) - len(words) :] == words
    assert [plan.argv.count(name) for name in mine] == [1] * len(mine)
