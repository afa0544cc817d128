#!/usr/bin/env bash
# Whether watching a serving SGLang with EAGLE-3 on one GPU does it any harm: tests/harm/serving.py on a machine with cores to spare.
#
#   tests/gpu/harm.sh OUT ARCHIVE [OPTIONS OF tests.harm.serving]
#
# ARCHIVE is a .tar.xz with SGLang for this python3 and models/tiny-llama-eagle3.
set -u
cd "$(dirname "$0")/../.." || exit 2
out=${1:?directory for the evidence} archive=${2:?archive with SGLang and a model}
shift 2
url=http://127.0.0.1:30000
work=$(mktemp -d /tmp/gpudiag-harm.XXXX)
for place in $(tr : ' ' <<<"${PYTHONPATH:-}"); do PATH=$PATH:$place/bin; done

mkdir -p "$work/site"
tar xJf "$archive" -C "$work/site" || exit 2
model=$work/site/models/tiny-llama-eagle3
cd "$work" || exit 2
PYTHONPATH=$work/site SGLANG_SKIP_SGL_KERNEL_VERSION_CHECK=1 HF_HUB_OFFLINE=1 setsid python3 -m sglang.launch_server \
    --model-path "$model/target" --served-model-name tiny --port 30000 --attention-backend triton --sampling-backend pytorch \
    --grammar-backend none --disable-cuda-graph --disable-custom-all-reduce --mem-fraction-static 0.3 --max-total-tokens 65536 \
    --max-running-requests 32 --skip-server-warmup --speculative-algorithm EAGLE3 --speculative-num-steps 3 \
    --speculative-eagle-topk 1 --speculative-num-draft-tokens 4 --speculative-draft-model-path "$model/draft" \
    >"$out/server.log" 2>&1 &
server=$!
trap 'kill -- -$server 2>/dev/null; wait' EXIT
cd - >/dev/null || exit 2
body='{"model": "tiny", "prompt": "def hello", "max_tokens": 4, "temperature": 0, "ignore_eos": true}'
# The first answer compiles kernels.
until curl -s -m 120 -f -H 'Content-Type: application/json' -d "$body" $url/v1/completions >/dev/null; do
    kill -0 $server 2>/dev/null || { tail -n 20 "$out/server.log"; exit 1; }
    sleep 0.5
done
echo "serving after $SECONDS s"
python3 -m tests.harm.serving --pid $server --url $url "$@" 2>&1 | tee "$out/harm.txt"
exit "${PIPESTATUS[0]}"
