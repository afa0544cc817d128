"""Which layers of the target this engine will feed an EAGLE-3 drafter: its own functions, run with stand-ins for the models.

needs: site
timeout: 120
writes: none

Argument: a request as JSON. `functions` names what to run: for SGLang the method of the target's class (with that of the
model inside a wrapper) and the reader of the drafter's configuration; for vLLM the readers of both model runners and the
method that has the default. Each is imported (`how` import), or, if that fails or is not wanted, taken alone out of its
installed file and compiled: no other code of the engine runs then. No weight is read and no model is built.
"""

import ast
import contextlib
import importlib
import importlib.util
import inspect
import io
import json
import os
import sys
import types

SCHEMA = "gpudiag.probe/1"
MAX_SOURCE = 8 << 20
MAX_CONFIG = 16 << 20
MAX_LAYERS = 4096
IDS = "eagle_aux_hidden_state_layer_ids"
LANGUAGE_PARTS = ("text_config", "llm_config", "language_config", "thinker_config")


class Bag:
    """A configuration: its keys as attributes, the language model's where the outer one of a multimodal model has none."""

    def __init__(self, values):
        self.__dict__.update({k: Bag(v) if k in LANGUAGE_PARTS and isinstance(v, dict) else v for k, v in values.items()})

    def __getattr__(self, name):
        for part in LANGUAGE_PARTS:
            inner = self.__dict__.get(part)
            if isinstance(inner, Bag) and not name.startswith("__"):
                return getattr(inner, name)
        raise AttributeError(name)


class Layer:
    """A decoder layer of which nothing is asked."""


class Inside:
    """The decoder stack; what is to be captured is written to it."""

    def __init__(self, config, count):
        self.config = config
        self.layers = [Layer() for _ in range(count)]

    def set_eagle3_layers_to_capture(self, layers):
        self.layers_to_capture = layers


class Model:
    """A model as the engine's method sees it, without weights."""

    def __init__(self, config, count):
        self.config = config
        self.pp_group = types.SimpleNamespace(is_last_rank=True, is_first_rank=True, world_size=1, rank_in_group=0)
        self.model = Inside(config, count)


def said(error):
    return f"{type(error).__name__}: {str(error)[:300]}"


def read(path, limit):
    with open(path, "rb") as file:
        return file.read(limit)


def from_source(spec):
    """The function alone, compiled from the installed file."""
    tree = ast.parse(read(spec["file"], MAX_SOURCE), spec["file"])
    body = tree.body
    if spec.get("class"):
        body = next(n.body for n in ast.walk(tree) if isinstance(n, ast.ClassDef) and n.name == spec["class"])
    node = next(n for n in body if isinstance(n, ast.FunctionDef) and n.name == spec["name"])
    node.decorator_list = []
    node.returns = None
    arguments = node.args
    for one in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
        one.annotation = None
    space = {"__name__": "gpudiag_probe"}
    # The engine's own code, in the engine's own interpreter.
    exec(compile(ast.Module([node], []), spec["file"], "exec"), space)  # noqa: S102
    return space[spec["name"]], node.lineno


def from_import(spec):
    module = importlib.import_module(spec["module"])
    owner = getattr(module, spec["class"]) if spec.get("class") else module
    found = inspect.unwrap(getattr(owner, spec["name"]))
    return found, found.__code__.co_firstlineno


class Functions:
    """Finds functions, and remembers how each was found."""

    def __init__(self, how):
        self.how = how
        self.notes = []

    def get(self, spec, **names):
        """The function with these names in its globals, where it lies, and how it was come by."""
        how = "source"
        if self.how == "import":
            try:
                found, line = from_import(spec)
                how = "import"
            except BaseException as error:  # an import may end in anything, SystemExit included
                self.notes.append(f"{spec['module']} could not be imported: {said(error)}")
                found, line = from_source(spec)
        else:
            found, line = from_source(spec)
        space = dict(found.__globals__)
        space.update(names)
        again = types.FunctionType(found.__code__, space, found.__name__, found.__defaults__, found.__closure__)
        again.__kwdefaults__ = found.__kwdefaults__
        return again, f"{spec['file']}:{line}", how


def layers_of(model, depth=0):
    """What a method wrote as layers_to_capture, wherever it wrote it."""
    for one in (getattr(model, "model", None), getattr(model, "language_model", None), model):
        if one is None or depth > 3:
            continue
        found = one.__dict__.get("layers_to_capture")
        if found is None and one is not model:
            found = layers_of(one, depth + 1)
        if found is not None:
            return [int(n) for n in found]
    return None


def sglang(request, functions, target, draft):
    specs = request["functions"]
    ids, read_at = sglang_ids(specs.get("reader"), functions, draft)
    last = types.SimpleNamespace(pp_group=types.SimpleNamespace(is_last_rank=True))
    config = Bag(target)
    model = Model(config, request["layers"])
    method, where, how = functions.get(specs["method"], get_parallel=lambda: last)
    inner_config = config
    for part in LANGUAGE_PARTS:
        inner_config = getattr(config, part, inner_config) if isinstance(target.get(part), dict) else inner_config
    model.language_model = Model(inner_config, request["layers"])
    if specs.get("inner"):
        inner, where, how = functions.get(specs["inner"], get_parallel=lambda: last)
        model.language_model.set_eagle3_layers_to_capture = types.MethodType(inner, model.language_model)
    method(model, ids)
    fed = layers_of(model)
    if fed is None:
        raise LookupError(f"{specs['method']['name']} wrote no layers")
    return [{"path": "sglang", "fed": fed, "how": how, "where": where, "reader": read_at, "named": ids is not None}]


def sglang_ids(spec, functions, draft):
    """The ids that SGLang takes out of the drafter's configuration, None for its own default, and where it does so."""
    if spec is not None:
        yes, no = (lambda: True), (lambda: False)
        algorithm = types.SimpleNamespace(is_eagle=yes, is_eagle3=yes, is_standalone=no, is_none=no)
        settings = types.SimpleNamespace(speculative_draft_model_path="draft", speculative_draft_model_revision=None)
        read_config = types.SimpleNamespace(
            hf_config=Bag(draft),
            num_nextn_predict_layers=None,
            num_hidden_layers=1,
            num_attention_layers=1,
            is_hybrid_swa=False,
            is_deepseek_v4_arch=False,
        )
        asked = types.SimpleNamespace(eagle_aux_hidden_state_layer_ids=None, eagle_use_aux_hidden_state=False)
        asked.draft_kv_num_layers = asked.draft_model_config = asked.eagle_draft_num_layers = None
        try:
            reader, where, _ = functions.get(
                spec,
                get_spec=lambda: settings,
                ModelConfig=types.SimpleNamespace(from_server_args=lambda *_, **__: read_config),
            )
            reader(config=asked, server_args=settings, model_config=read_config, spec_algorithm=algorithm, is_draft_worker=False)
            return asked.eagle_aux_hidden_state_layer_ids, where
        except Exception as error:  # another version has another reader
            functions.notes.append(f"{spec['name']}: {said(error)}")
    nested = draft.get("eagle_config")
    return (nested.get(IDS) if isinstance(nested, dict) else None), ""


def vllm(request, functions, target, draft):
    specs = request["functions"]
    hf = vllm_config(request, functions, draft)
    settings = types.SimpleNamespace(draft_model_config=types.SimpleNamespace(hf_config=hf))
    model = Model(Bag(target), request["layers"])
    if specs.get("inner"):
        model.language_model = Model(model.config, request["layers"])
        inner = functions.get(specs["inner"])[0]
        setattr(model.language_model, specs["inner"]["name"], types.MethodType(inner, model.language_model))
    answers = []
    for path, argument in (("vllm-v1", types.SimpleNamespace(speculative_config=settings)), ("vllm-v2", settings)):
        if not specs.get(path):
            continue
        reader, where, how = functions.get(specs[path])
        ids = reader(argument)
        if not ids:
            default, at, _ = functions.get(specs["default"])
            answer = {"fed": default(model), "reader": where, "where": at, "named": False}
        else:
            answer = {"fed": ids, "reader": where, "where": where, "named": True}
        # EagleModelMixin._set_aux_hidden_state_layers, in every version that has it.
        answer["fed"] = sorted({int(n) for n in answer["fed"]})
        answers.append(dict(answer, path=path, how=how))
    return answers


def vllm_config(request, functions, draft):
    """The drafter's configuration as vLLM has it by then: with its own reader, or as that is known to treat the dialects."""
    if functions.how == "import":
        try:
            return importlib.import_module("vllm.transformers_utils.config").get_config(request["draft"], trust_remote_code=False)
        except BaseException as error:  # an import may end in anything
            functions.notes.append(f"vLLM's own reader of configurations: {said(error)}")
    if "speculators_model_type" not in draft:
        return Bag(draft)
    inner = dict(draft.get("transformer_layer_config") or {})
    if draft.get(IDS):
        inner[IDS] = draft[IDS]
    return Bag(inner)


def runner():
    """Which of vLLM's model runners will serve, and why; None where both may (config/vllm.py, use_v2_model_runner)."""
    wanted = os.environ.get("VLLM_USE_V2_MODEL_RUNNER")
    if wanted in ("0", "1"):
        return f"vllm-v{1 + int(wanted)}", f"VLLM_USE_V2_MODEL_RUNNER={wanted}"
    if importlib.util.find_spec("triton") is None:
        return "vllm-v1", "model runner V2 needs Triton, which is not installed there"
    return None, "V2 unless a feature that it lacks is asked for; VLLM_USE_V2_MODEL_RUNNER decides"


def main():
    request = json.loads(sys.argv[1]) if len(sys.argv) > 1 else {}
    answer = {"schema": SCHEMA, "probe": "resolve_aux_layers", "ok": True, "layers": [], "notes": [], "runner": None, "why": ""}
    functions = Functions(request.get("how", "source"))
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        try:
            request["layers"] = min(int(request["layers"]), MAX_LAYERS)
            target = json.loads(read(os.path.join(request["target"], "config.json"), MAX_CONFIG))
            draft = json.loads(read(os.path.join(request["draft"], "config.json"), MAX_CONFIG))
            ask = sglang if request["engine"] == "sglang" else vllm
            answer["layers"] = ask(request, functions, target, draft)
            if request["engine"] == "vllm":
                answer["runner"], answer["why"] = runner()
        except Exception as error:  # the engine's own functions may raise anything
            answer["ok"] = False
            functions.notes.append(said(error))
    answer["notes"] = functions.notes[:10]
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
    # What an engine's import started (threads, children) must not keep this process.
    os._exit(0)
