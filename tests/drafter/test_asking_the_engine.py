"""Which layers an installed engine feeds a drafter, by its own functions: run alone, imported, and when they do not say."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpudiag.doctor import fed_layers, install
from gpudiag.drafter.check import notes, read, results
from gpudiag.model.facts import Asked
from gpudiag.model.install import AuxLayers
from gpudiag.model.reading import Ok, Reading
from tests.doctor import checkpoints
from tests.doctor.checkpoints import LAYERS
from tests.doctor.site import Site, make

READER = """
from sglang.srt.configs.model_config import ModelConfig


def _resolve_eagle_aux_hidden_state(*, config, server_args, model_config, spec_algorithm, is_draft_worker):
    if not spec_algorithm.is_eagle3() or is_draft_worker:
        return
    draft = ModelConfig.from_server_args(server_args, model_path=get_spec().speculative_draft_model_path)
    config.eagle_aux_hidden_state_layer_ids = draft.hf_config.layers_of_mine
"""
SGLANG = {
    "sglang/__init__.py": "",
    "sglang/srt/__init__.py": "",
    "sglang/srt/configs/__init__.py": "",
    "sglang/srt/configs/model_config.py": "class ModelConfig:\n    pass\n",
    "sglang/srt/models/__init__.py": "",
    # A version that counts in its own way: no table of known versions has these layers.
    "sglang/srt/models/llama.py": (
        "from sglang.srt.configs.model_config import ModelConfig\n\n\nclass LlamaForCausalLM:\n"
        "    def set_eagle3_layers_to_capture(self, layer_ids: 'Optional[List[int]]' = None):\n"
        "        if not self.pp_group.is_last_rank:\n            return\n"
        "        count = self.config.num_hidden_layers\n"
        "        self.model.layers_to_capture = [5, count - 5] if layer_ids is None else [val + 2 for val in layer_ids]\n"
    ),
    "sglang/srt/models/mistral.py": (
        "from sglang.srt.models.llama import LlamaForCausalLM\n\n\nclass MistralForCausalLM(LlamaForCausalLM):\n    pass\n"
    ),
    "sglang/srt/models/wrapper.py": (
        "from sglang.srt.models.llama import LlamaForCausalLM\n\n\nclass WrapperForConditionalGeneration:\n"
        "    def __init__(self):\n        self.language_model = LlamaForCausalLM()\n\n"
        "    def set_eagle3_layers_to_capture(self, layer_ids=None):\n"
        "        self.language_model.set_eagle3_layers_to_capture(layer_ids)\n"
    ),
    "sglang/srt/models/odd.py": (
        "class OddForCausalLM:\n    def set_eagle3_layers_to_capture(self, layer_ids=None):\n"
        "        self.scheduler.capture(layer_ids)\n"
    ),
    "sglang/srt/models/llama_eagle3.py": "class LlamaForCausalLMEagle3:\n    flags = ('norm_output', 'fc_norm')\n",
}
HOME = "sglang/srt/model_executor/model_runner_components/spec_aux_hidden_state.py"
VLLM = {
    "vllm/__init__.py": "",
    "vllm/v1/worker/gpu_model_runner.py": (
        "class GPUModelRunner:\n    def _get_eagle3_aux_layers_from_config(self):\n"
        "        config = self.speculative_config.draft_model_config.hf_config\n"
        "        found = getattr(config, 'eagle_aux_hidden_state_layer_ids', None)\n"
        "        return tuple(found) if found else None\n"
    ),
    "vllm/model_executor/models/interfaces.py": (
        "class SupportsEagle3:\n    def set_aux_hidden_state_layers(self, layers):\n        ...\n\n"
        "    def get_eagle3_default_aux_hidden_state_layers(self):\n"
        "        holder = getattr(self, 'language_model', self).model\n        return (7, 3, len(holder.layers))\n"
    ),
    "vllm/model_executor/models/registry.py": (
        '_ALL = {"LlamaForCausalLM": ("llama", "LlamaForCausalLM"), "Eagle3LlamaForCausalLM": ("llama", "Draft")}\n'
    ),
    "vllm/model_executor/models/llama.py": (
        "from .interfaces import SupportsEagle3\n\n\nclass LlamaForCausalLM(SupportsEagle3):\n    pass\n\n\n"
        "class Draft:\n    pass\n"
    ),
}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    one = make(tmp_path_factory.mktemp("env") / "venv")
    one.install("sglang", "0.9.9", {**SGLANG, HOME: READER.replace("\nfrom", "from", 1)})
    one.install("vllm", "0.99.0", VLLM)
    return one


def ask(
    site: Site, target: Path, draft: Path, architecture: str, engine: str = "sglang", how: fed_layers.How = "source"
) -> Reading[AuxLayers]:
    environment = install.describe(site.python).environment
    assert isinstance(environment, Ok), environment
    return fed_layers.look(environment.value, site.python, engine, architecture, LAYERS, str(target), str(draft), how)


@pytest.mark.parametrize("how", ["source", "import"])
@pytest.mark.parametrize("architecture", ["LlamaForCausalLM", "MistralForCausalLM", "WrapperForConditionalGeneration"])
def test_what_the_installed_version_itself_does(site: Site, tmp_path: Path, architecture: str, how: fed_layers.How) -> None:
    target = checkpoints.target(tmp_path / "target", architecture)
    told = ask(site, target, checkpoints.drafter(tmp_path / "a", layers_of_mine=[10, 20]), architecture, how=how)
    assert isinstance(told, Ok), told
    (one,) = told.value.layers
    assert (one.fed, one.how, one.named, told.value.notes) == ((12, 22), how, True, ())
    assert one.where.endswith("srt/models/llama.py:5")
    assert one.reader.endswith("spec_aux_hidden_state.py:4")


def test_vllm_sorts_them_and_names_the_runner_that_serves(site: Site, tmp_path: Path) -> None:
    target = checkpoints.target(tmp_path / "target")
    told = ask(
        site,
        target,
        checkpoints.drafter(tmp_path / "a", eagle_aux_hidden_state_layer_ids=[30, 2, 30]),
        "LlamaForCausalLM",
        "vllm",
    )
    default = ask(site, target, checkpoints.drafter(tmp_path / "b"), "LlamaForCausalLM", "vllm")
    assert isinstance(told, Ok)
    assert isinstance(default, Ok)
    assert [(one.path, one.fed, one.named) for one in told.value.layers] == [("vllm-v1", (2, 30), True)]
    assert default.value.layers[0].fed == (3, 7, LAYERS)
    assert (told.value.runner, "Triton" in told.value.why) == ("vllm-v1", True)


def test_an_import_that_fails_falls_back_to_the_source_and_says_so(tmp_path: Path) -> None:
    broken = make(tmp_path / "venv")
    broken.install(
        "sglang",
        "0.9.9",
        {**SGLANG, "sglang/srt/models/llama.py": f"import torch_of_nowhere\n{SGLANG['sglang/srt/models/llama.py']}"},
    )
    told = ask(
        broken, checkpoints.target(tmp_path / "target"), checkpoints.drafter(tmp_path / "a"), "LlamaForCausalLM", how="import"
    )
    assert isinstance(told, Ok), told
    assert (told.value.layers[0].fed, told.value.layers[0].how) == ((5, LAYERS - 5), "source")
    assert "torch_of_nowhere" in told.value.notes[0]
    facts = read(Asked(engine="sglang", python=broken.python, model=str(tmp_path / "target"), draft=str(tmp_path / "a")))
    assert any("torch_of_nowhere" in note for note in notes(facts))


def test_a_method_that_does_something_else_is_no_answer(site: Site, tmp_path: Path) -> None:
    told = ask(site, checkpoints.target(tmp_path / "target"), checkpoints.drafter(tmp_path / "a"), "OddForCausalLM")
    assert not isinstance(told, Ok)


def test_the_engines_own_answer_goes_before_what_is_known_of_versions(site: Site, tmp_path: Path) -> None:
    target, draft = checkpoints.target(tmp_path / "target"), checkpoints.drafter(tmp_path / "eagle3", layers_of_mine=[1, 29, 57])
    facts = read(Asked(engine="sglang", python=site.python, model=str(target), draft=str(draft), depth="fast"))
    found = {f.code: f for r in results(facts) for f in r.findings}
    assert "layers 3, 31, 59; it was trained on 2, 30, 58" in found["GPD602"].title
    assert any("sglang itself" in e.claim for e in found["GPD602"].evidence)
    # The class that loads it there reads no norm_before_residual: asked of its source, not of a table.
    other = checkpoints.drafter(tmp_path / "eagle3-b", layers_of_mine=[1, 29, 57], norm_before_residual=True)
    again = read(Asked(engine="sglang", python=site.python, model=str(target), draft=str(other), depth="fast"))
    (feedback,) = [f for r in results(again) for f in r.findings if f.code == "GPD608"]
    assert (feedback.confidence, "LlamaForCausalLMEagle3 reads norm_output, fc_norm" in str(feedback.evidence)) == (
        "strong",
        True,
    )
