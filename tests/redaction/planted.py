"""Two hundred secrets and where they stand: made anew from a seed, so that nothing can rest on one value.

A plant is a value that must not leave, in the sentence in which a server, a shell or a library would have it.
"""

from __future__ import annotations

import base64
import random
import string
from collections.abc import Callable
from typing import Literal, NamedTuple

Kind = Literal["token", "prompt", "host", "user", "address"]
Slot = Literal["text", "environ", "arguments", "socket"]
"""text: any string. environ: `name`=value. arguments: a list of arguments. socket: an end of a connection."""

LETTERS, HEX = string.ascii_letters + string.digits, "0123456789abcdef"
FIRST = (
    "anneke boris chidi dagmar eleni farouk gesine hamid ivana jorge kenji leila mbali nuria oskar priya quirin rosa sven tamar"
)
LAST = "abara bakker castell dorn engel farkas gruber hajek ivers jansen kovac lindner moreau novak okafor petrov quist rossi"
THINGS = "the diagnosis of patient|my neighbour's divorce|our merger with|the salary of|the passport number of|a poem about"


class Plant(NamedTuple):
    """`value` is what must be gone; `around` the text with '{}' in its place; `name` the variable for `environ`."""

    kind: Kind
    value: str
    around: str
    slot: Slot = "text"
    name: str = ""

    @property
    def text(self) -> str:
        """A quoted value is quoted as Python's repr does, with the other quotes where it holds an apostrophe."""
        if "'{}'" in self.around:
            return self.around.replace("'{}'", repr(self.value), 1)
        return self.around.replace("{}", self.value, 1)

    @property
    def marks(self) -> tuple[str, ...]:
        """What must not be found: the value, and of a prompt also the name in it."""
        return (self.value, self.value.split(" ")[-4]) if self.kind == "prompt" else (self.value,)


def plants(seed: int) -> list[Plant]:
    rng = random.Random(seed)  # noqa: S311, values need to be repeatable, not secret
    found = [
        *(Plant("token", make(rng), around) for make, around in TOKENS),
        *(Plant("token", letters(rng, 24), around) for around in NAMED_TOKENS),
        *(Plant("token", letters(rng, 30), "{}", "environ", name) for name in TOKEN_VARIABLES),
        *(Plant("token", letters(rng, 22), around, "arguments") for around in TOKEN_FLAGS),
        *(Plant("prompt", prompt(rng), around) for around in PROMPTS),
        *(Plant("host", host(rng), around) for around in HOSTS),
        *(Plant("host", host(rng), around, "arguments") for around in HOST_FLAGS),
        *(Plant("host", host(rng), "{}", "environ", name) for name in HOST_VARIABLES),
        *(Plant("user", user(rng), around) for around in USERS),
        *(Plant("user", user(rng), "{}", "environ", name) for name in USER_VARIABLES),
        *(Plant("address", make(rng), around) for make, around in ADDRESSES),
        *(Plant("address", make(rng), around, "socket") for make, around in SOCKETS),
    ]
    assert len({p.value for p in found}) == len(found)
    return found


def letters(rng: random.Random, count: int, alphabet: str = LETTERS) -> str:
    """Never without a digit: a secret of letters alone is a word."""
    return "".join(rng.choice(alphabet) for _ in range(count - 2)) + rng.choice("23456789") + rng.choice("abcdef")


def token(prefix: str, count: int, alphabet: str = LETTERS) -> Callable[[random.Random], str]:
    return lambda rng: prefix + letters(rng, count, alphabet)


def jwt(rng: random.Random) -> str:
    parts = (base64.urlsafe_b64encode(rng.randbytes(size)).decode().rstrip("=") for size in (15, 40, 32))
    return "eyJ{}.eyJ{}.{}".format(*parts)


def prompt(rng: random.Random) -> str:
    return f"{rng.choice(THINGS.split('|'))} {user(rng)} is number {rng.randrange(10**6)}"


def host(rng: random.Random) -> str:
    return f"{rng.choice(LAST.split())}-{rng.choice(['a100', 'h200', 'gpu', 'trn'])}-{rng.randrange(100, 1000)}"


def user(rng: random.Random) -> str:
    return f"{rng.choice(FIRST.split())}{rng.choice(['.', '_', ''])}{rng.choice(LAST.split())}{rng.randrange(10, 100)}"


def ipv4(rng: random.Random) -> str:
    return f"{rng.choice([10, 172, 192, 100])}.{rng.randrange(16, 250)}.{rng.randrange(1, 250)}.{rng.randrange(2, 250)}"


def ipv6(rng: random.Random) -> str:
    return ":".join(["2001", "db8", *(f"{rng.randrange(1, 65536):x}" for _ in range(6))])


def link_local(rng: random.Random) -> str:
    return "fe80::" + ":".join(f"{rng.randrange(4096, 65536):x}" for _ in range(4))


def mac(rng: random.Random) -> str:
    return ":".join(f"{rng.randrange(256):02x}" for _ in range(6))


TOKENS: list[tuple[Callable[[random.Random], str], str]] = [
    (token("hf_", 34), "huggingface_hub: 401 for {}"),
    (token("hf_", 34), "https://huggingface.co/api/models/x?token={}"),
    (token("sk-proj-", 40), "Incorrect API key provided: {}."),
    (token("sk-ant-api03-", 60), "key {} was refused"),
    (token("sk_live_", 24), "stripe {}"),
    (token("ghp_", 36), "git clone https://{}@github.example/x.git"),
    (token("github_pat_", 60), "remote: {} has expired"),
    (token("glpat-", 20), "glab auth {}"),
    (token("nvapi-", 60), "NGC said no to {}"),
    (token("xoxb-", 40), "slack {}"),
    (token("AKIA", 16, string.ascii_uppercase + "0123456789"), "botocore: credentials of {}"),
    (token("ASIA", 16, string.ascii_uppercase + "0123456789"), "assumed role of {}"),
    (token("AIza", 35), "google api {} is not enabled"),
    (token("npm_", 36), "npm token {}"),
    (token("pypi-AgEIcHlwaS5vcmc", 60), "twine upload with {}"),
    (token("dckr_pat_", 27), "docker login {}"),
    (token("dapi", 32, HEX), "databricks {}"),
    (token("gsk_", 52), "groq {}"),
    (token("r8_", 37), "replicate {}"),
    (token("SG.", 22), "sendgrid {}"),
    (jwt, "cookie of the dashboard is {}"),
    (jwt, "Authorization: Bearer {}"),
    (token("", 40, HEX), "wandb: currently logged in, key {}"),
]

NAMED_TOKENS = [
    "Authorization: Bearer {}",
    "authorization: basic {}",
    "X-Api-Key: {}",
    "Proxy-Authorization: Basic {}",
    "headers={'api-key': '{}'}",
    '{"access_token": "{}", "expires": 3600}',
    '{"client_secret":"{}"}',
    "Cookie: session={}",
    "Set-Cookie: sid={}; HttpOnly",
    "password={}",
    "PASSWORD: {}",
    "passphrase = '{}'",
    "https://bucket.s3.example/x?X-Amz-Credential=a&X-Amz-Signature={}&X-Amz-Expires=3600",
    "https://store.blob.example/x?sv=2024&sig={}&se=2026",
    "https://models.example/w.safetensors?key={}",
    "https://models.example/w.safetensors?access_token={}",
    "https://models.example/w.safetensors?auth={}&part=2",
    "https://storage.example/w?Signature={}",
    "postgres://svc:{}@db.example/kv",
    "redis://:{}@cache.example:6379/0",
    "amqp://svc:{}@mq.example",
    "https://oauth2:{}@git.example/x.git",
    "mongodb+srv://svc:{}@db.example/x",
    "https://hooks.slack.com/services/T0000/B0000/{}",
    "-----BEGIN OPENSSH PRIVATE KEY-----\n{}\n-----END OPENSSH PRIVATE KEY-----",
    "ssl_keyfile_password='{}'",
    "api_key='{}', base_url='http://127.0.0.1:8000'",
    "aws_secret_access_key = {}",
    "Namespace(api_key=['{}'], port=8000)",
    "server_args={'api_key': '{}', 'tp_size': 2}",
    "non-default args: {'model': '/m', 'api_key': ['{}']}",
    "export HF_TOKEN={}",
    "docker run -e HF_TOKEN={} image",
    "--hf-token={} --port 80",
    "curl -H 'Authorization: Bearer {}' http://127.0.0.1:8000/v1/models",
    "requests.exceptions.HTTPError: 401 Client Error for url: https://hub.example/api?access_token={}",
    "proxies={'https': 'http://svc:{}@proxy.example:3128'}",
    "secret_key: {}",
    "credentials='{}'",
    "openai.AuthenticationError: Incorrect API key: {}",
    "git remote add origin https://svc:{}@git.example/models.git",
    "wget --header='X-Auth-Token: {}' https://models.example/w",
    "WANDB_API_KEY={} python train.py",
    "token: {}",
]

TOKEN_VARIABLES = [
    "HF_TOKEN",
    "HUGGING_FACE_HUB_TOKEN",
    "VLLM_API_KEY",
    "SGLANG_API_KEY",
    "OPENAI_API_KEY",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "WANDB_API_KEY",
    "NGC_API_KEY",
    "MY_SERVICE_PASSWORD",
    "SENTRY_DSN",
    "DATABASE_URL",
    "NCCL_SECRET",
    "RAY_AUTH",
    "COMPANY_LICENCE",
]

TOKEN_FLAGS = [
    "--api-key {}",
    "--api-key={}",
    "--hf-token {}",
    "--ssl-keyfile-password {}",
    "--admin-api-key {}",
    "--auth-token={}",
    "--password {}",
    "--license-key {}",
    "-e HF_TOKEN={}",
    "--otlp-traces-headers authorization={}",
]

PROMPTS = [
    "INFO 11-29 10:00:00 [logger.py:39] Received request cmpl-1-0: prompt: '{}', params: SamplingParams(n=1)",
    'INFO 11-29 10:00:00 [logger.py:39] Received request chatcmpl-2: prompt: "{}", params: SamplingParams(n=1)',
    "Receive: obj=GenerateReqInput(rid='1', text='{}', input_ids=None)",
    'Receive: obj=GenerateReqInput(rid="1", text="{}", input_ids=None)',
    "Finish: obj=GenerateReqInput(text='x'), out={'text': '{}', 'meta_info': {}}",
    '{"model": "m", "prompt": "{}", "max_tokens": 5}',
    '{"messages": [{"role": "user", "content": "{}"}]}',
    "messages=[{'role': 'user', 'content': '{}'}]",
    "ValueError: prompt='{}' is longer than 512 tokens",
    "request = CompletionRequest(model='m', prompt='{}', stream=False)",
    "ChatCompletionRequest(messages=[{'content': '{}', 'role': 'system'}])",
    'generated_text="{}"',
    "completion: '{}'",
    '"input": "{}"',
    "input_text='{}'",
    'system_prompt: "{}"',
    "EngineCoreRequest(request_id='1', prompt='{}')",
    "NewRequestData(req_id=cmpl-1, prompt_text='{}', mm_features=[])",
    "outputs=[CompletionOutput(index=0, text='{}', token_ids=[1, 2])]",
    '"delta": {"content": "{}"}',
    "RequestOutput(request_id=1, prompt='{}', outputs=[])",
    "ERROR tokenizer failed on text='{}'",
    "instruction: '{}'",
    "extra_body={'query': '{}'}",
    "reasoning_content='{}'",
]

HOSTS = [
    "tcp://{}:29500",
    "connecting to http://{}/health",
    "grpc://{}:50051",
    "{}:4242:4250 [0] NCCL INFO Bootstrap : Using eth0",
    "{}:4242:4250 [3] include/alloc.h:125 NCCL WARN Cuda failure 'out of memory'",
    "Nov 29 09:59:58 {} kernel: [ 1234.5] NVRM: Xid (PCI:0000:3b:00): 79, pid=1",
    "2026-11-29T09:59:58.123456+00:00 {} systemd[1]: gpu.service: Main process exited",
    "[c10d] The client socket has failed to connect to [{}]:29500 (errno: 113 - No route to host).",
    "[c10d] The client socket has timed out after 60000ms while trying to connect to ({}, 29500).",
    "GPU 0 managed by process 692 on node {}",
    "(RayWorkerWrapper pid=77, node={}) ERROR",
    "ssh: connect to host {} port 22: Connection refused",
    "worker died on host {} with exit code 1",
    "socket.gaierror: [Errno -2] Name or service not known: '{}'",
    "Rank 3 on {}.cluster.example is gone",
    "scp weights.bin svc@{}:/models/",
    "Host: {}",
    "hostname={}",
    "node_ip='{}'",
    "srun: error: {}: task 3: Killed",
    "https://{}.cluster.example:8443/metrics",
    "could not resolve host: {}",
    "rsync -a x svc@{}:/models/",
    "#0-1 Rank 1 -- GPU 1 managed by process 693 on node {}",
    "slurmstepd: error: *** JOB 77 ON {} CANCELLED AT 2026-11-29T10:00:00 ***",
]

HOST_FLAGS = ["--dist-init-addr {}:5000", "--master-addr {}", "--rdzv-endpoint={}:29400", "--data-parallel-address {}"]
HOST_VARIABLES = ["MASTER_ADDR", "HOSTNAME", "SLURM_NODELIST", "SLURMD_NODENAME", "RAY_HEAD_NODE_HOST", "NODE_NAME"]

USERS = [
    "/home/{}/venv/lib/python3.12/site-packages/vllm/engine.py",
    "/nfs/home/{}/models/llama",
    "/Users/{}/x.py",
    "/var/home/{}/x",
    "~{}/models",
    "/tmp/torchinductor_{}/ab/cab.py",
    "/tmp/ray-{}/session",
    "/var/tmp/triton-{}/cache",
    "/scratch/{}/checkpoints",
    "/data/users/{}/llama",
    "/lustre/fs1/users/{}/ckpt",
    "{}@mail.example wrote to the list",
    "sudo -u {} gpudiag attach",
    "user={} gid=1000",
    "ssh {}@login.example",
    "PermissionError: [Errno 13] owned by user {}",
    "/mnt/home/{}/.cache/huggingface",
    "/export/home/{}/x",
    "/private/Users/{}/x",
    "chown: invalid user: '{}'",
    'File "/home/{}/serve/patch.py", line 3, in forward',
    "/fsx/{}/models",
]
USER_VARIABLES = ["USER", "LOGNAME", "SUDO_USER", "SLURM_JOB_USER"]

ADDRESSES: list[tuple[Callable[[random.Random], str], str]] = [
    (ipv4, "tcp://{}:29500"),
    (ipv4, "NCCL INFO NET/Socket : Using [0]eth0:{}<0>"),
    (ipv4, "Connection closed by peer [{}]:25322"),
    (ipv4, "(RayWorkerWrapper pid=77, ip={}) ERROR"),
    (ipv4, "http://{}:8000/v1"),
    (ipv4, "::ffff:{}:80"),
    (ipv4, "GPU 1 managed by process 9 on node {}"),
    (ipv4, "peers={}/24"),
    (ipv4, "host_ip='{}',"),
    (ipv4, "client {} asked"),
    (ipv4, 'INFO:     {}:51514 - "POST /v1/completions HTTP/1.1" 200 OK'),
    (ipv4, "[c10d] connect to [::ffff:{}]:29500 failed"),
    (ipv6, "NCCL INFO NET/Socket : Using [0]eth0:{}<0>"),
    (ipv6, "[{}]:29500"),
    (ipv6, "http://[{}]:8000/v1"),
    (ipv6, "listening on {}"),
    (link_local, "Using [0]eth0:{}%eth0<0>"),
    (mac, "eth0: link/ether {} brd ff:ff:ff:ff:ff:ff"),
    (mac, "HWaddr {}"),
]
SOCKETS: list[tuple[Callable[[random.Random], str], str]] = [(ipv4, "{}:5000"), (ipv4, "{}:41234"), (ipv6, "{}:7000")]
