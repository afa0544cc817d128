"""The child's entry: one request (a JSON file) in, JSON lines out. Exit status 0 with a result, 3 with a refusal in one line."""

from __future__ import annotations

import importlib
import json
import sys

from eagle3.talk import Talk

VERBS = {"replay": "eagle3.replay", "train": "eagle3.train", "compare": "eagle3.compare"}


def main(path):
    talk = Talk()
    with open(path, encoding="utf-8") as file:
        request = json.load(file)
    import torch

    torch.manual_seed(request.get("seed", 0))
    from eagle3.tensors import BadFileError

    try:
        result = importlib.import_module(VERBS[request["verb"]]).run(request, talk)
    except BadFileError as refusal:
        talk.say(event="refused", why=str(refusal))
        return 3
    except torch.OutOfMemoryError as error:
        talk.say(event="refused", why=f"out of GPU memory: {str(error).splitlines()[0]}")
        return 3
    talk.say(event="result", **result)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
