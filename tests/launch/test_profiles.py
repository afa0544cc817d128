"""Profiles: the shipped ones are right, a user's mistake is named, and a model finds its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpudiag.errors import UsageError
from gpudiag.launch import drafters, profiles
from tests.launch.requests import config, table

SHIPPED = ["cpu", "deepseek-v3", "gpt-oss", "kimi-k2.5", "llama-3.x", "qwen3"]
GOOD = 'name = "mine"\nsummary = "for tests"\n'


def written(path: Path, text: str) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_profile_gives_a_source_for_every_figure(name: str, tmp_path: Path) -> None:
    profile = profiles.named(name, {}, tmp_path)
    assert profile.name == name
    figures = [profile.tensor_parallel, profile.max_running_requests]
    for one in (profile, profile.sglang, profile.vllm):
        figures += [one.speculation.steps, one.speculation.top_k, one.speculation.draft_tokens]
    for engine in (profile.sglang, profile.vllm):
        assert all(len(f.source) > 5 for f in (*engine.arguments.values(), *engine.environment.values()))
    assert all(len(f.source) > 10 for f in figures if f is not None)
    assert all(len(d.source) > 10 for d in profile.drafters)


@pytest.mark.parametrize("name", SHIPPED)
@pytest.mark.parametrize("engine", ["sglang", "vllm"])
def test_the_engines_know_what_shipped_profiles_ask_for(name: str, engine: str, tmp_path: Path) -> None:
    arguments = profiles.named(name, {}, tmp_path).engine(engine).arguments
    assert [a for a in arguments if table(engine).find(a) is None] == []


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"architectures": ("KimiK25ForConditionalGeneration",), "model_type": "kimi_k25"}, "kimi-k2.5"),
        ({"architectures": ("DeepseekV3ForCausalLM",), "model_type": "deepseek_v3"}, "deepseek-v3"),
        ({"architectures": ("Qwen3MoeForCausalLM",), "model_type": "qwen3_moe"}, "qwen3"),
        ({"architectures": ("GptOssForCausalLM",), "model_type": "gpt_oss"}, "gpt-oss"),
        ({}, "llama-3.x"),
        ({"architectures": ("MambaForCausalLM",), "model_type": "mamba"}, None),
    ],
)
def test_a_model_finds_its_profile(fields: dict[str, object], name: str | None, tmp_path: Path) -> None:
    found = profiles.matching(config(**fields), {}, tmp_path)
    assert (found.name if found else None) == name


def test_the_users_own_profile_hides_a_shipped_one(tmp_path: Path) -> None:
    written(tmp_path / ".config/gpudiag/profiles/qwen3.toml", 'name = "qwen3"\nsummary = "mine"\n')
    assert profiles.named("qwen3", {}, tmp_path).summary == "mine"
    assert [p.name for p, _ in profiles.all_profiles({}, tmp_path)].count("qwen3") == 1


def test_a_relative_configuration_directory_is_ignored(tmp_path: Path) -> None:
    assert profiles.user_directory({"XDG_CONFIG_HOME": "here"}, tmp_path) == tmp_path / ".config/gpudiag/profiles"


@pytest.mark.parametrize(
    ("text", "said", "help_"),
    [
        (GOOD + "[speculaton]\n", "speculaton", "speculation"),
        (GOOD + '[speculation]\nstpes = {value = 3, source = "x"}\n', "[speculation] there is no setting 'stpes'", "steps"),
        (GOOD + "[speculation]\nsteps = 3\n", "[speculation.steps]", ""),
        (GOOD + "[speculation]\nsteps = {value = 3}\n", "source", ""),
        (GOOD + '[speculation]\nsteps = {value = "3", source = "x"}\n', "[speculation.steps.value] expected `int`", ""),
        ('name = "x"\n', "summary", ""),
        ("name = \n", "is no TOML", ""),
        ("\xff", "", ""),
        (f"name = {'9' * 5000}\n", "is no TOML", ""),
    ],
)
def test_a_mistake_is_named_with_its_place_and_the_nearest_name(text: str, said: str, help_: str, tmp_path: Path) -> None:
    path = written(tmp_path / "mine.toml", text)
    with pytest.raises(UsageError) as caught:
        profiles.named(path, {}, tmp_path)
    assert path in caught.value.message
    assert said in caught.value.message
    assert help_ in caught.value.help
    assert caught.value.help


def test_an_unknown_profile_names_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        profiles.named("kimi-2.5", {}, tmp_path)
    assert "kimi-k2.5" in caught.value.help
    with pytest.raises(UsageError) as caught:
        profiles.named(str(tmp_path / "none.toml"), {}, tmp_path)
    assert "No such file" in caught.value.message


def test_a_drafter_is_only_offered_to_a_target_of_its_size(tmp_path: Path) -> None:
    choices = profiles.named("llama-3.x", {}, tmp_path).drafters
    assert [d.name for d in drafters.fitting(choices, config())] == ["yuhuili/EAGLE3-LLaMA3.1-Instruct-8B"]
    # Llama 2 7B has the same layers and width, and another vocabulary.
    assert drafters.fitting(choices, config(vocab_size=32000)) == ()
    assert drafters.fitting(choices, config(hidden_size=128, layers=8)) == ()


def test_the_newest_snapshot_in_the_hubs_cache_is_found(tmp_path: Path) -> None:
    snapshots = tmp_path / "hub/models--org--name/snapshots"
    for revision in ("empty", "whole"):
        (snapshots / revision).mkdir(parents=True)
    (snapshots / "whole/config.json").write_text("{}")
    around = {"HF_HUB_CACHE": str(tmp_path / "hub")}
    assert drafters.directory_of("org/name", around, tmp_path) == str(snapshots / "whole")
    assert drafters.directory_of("org/other", around, tmp_path) is None
    assert drafters.directory_of("../org", around, tmp_path) is None


@pytest.mark.parametrize(("name", "help_"), [("org/name", "hf download org/name"), ("/no/such/place", "ls -d")])
def test_a_model_that_is_not_there_says_what_to_type(name: str, help_: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        drafters.required_directory("--model", name, {"HF_HOME": str(tmp_path)}, tmp_path)
    assert help_ in caught.value.help
