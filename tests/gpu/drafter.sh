#!/usr/bin/env bash
# The drafter on one GPU: the whole loop with a real SGLang, then a drafter that loses long texts, and four that are served wrong.
#
#   tests/gpu/drafter.sh OUT ARCHIVE
#
# ARCHIVE is a .tar.xz with SGLang for this python3 and models/tiny-llama-eagle3. Evidence goes to OUT as it comes in. SKIP='loop
# faults' leaves parts out. Seconds that a part may take: LOOP_S, FAULTS_S.
set -u
cd "$(dirname "$0")/../.." || exit 2
out=${1:?directory for the evidence} archive=${2:?archive with SGLang and a model} skip=" ${SKIP:-} "
work=$(mktemp -d /tmp/gpudiag-drafter.XXXX)
began=$SECONDS
for place in $(tr : ' ' <<<"${PYTHONPATH:-}"); do PATH=$PATH:$place/bin; done
say() { echo "== $((SECONDS - began)) s: $*"; }
keep() { tar czf "$out/$1.tgz" --exclude='core.*' --exclude=planted --exclude='*.safetensors' --exclude='*.pt' -C "$work" "$1"; }

mkdir -p "$work/site"
tar xJf "$archive" -C "$work/site" || exit 2
python=$work/python
printf '#!/bin/sh\nPYTHONPATH=%s exec %s "$@"\n' "$work/site" "$(command -v python3)" >"$python"
chmod +x "$python"
model=$work/site/models/tiny-llama-eagle3
export SGLANG_SKIP_SGL_KERNEL_VERSION_CHECK=1 HF_HUB_OFFLINE=1
options=(--attention-backend triton --sampling-backend pytorch --grammar-backend none --disable-cuda-graph
    --disable-custom-all-reduce --mem-fraction-static 0.3 --max-total-tokens 65536 --max-running-requests 32 --skip-server-warmup)
say "unpacked: $(du -sh "$work/site" | cut -f1)"

case $skip in *" loop "*) ;; *)
    say "generate, extract, train, serve, measure, replay"
    (timeout -k 10 "${LOOP_S:-420}" python3 -m tests.servers.drafter_loop --engine sglang --python "$python" --target "$model/target" \
        --out "$work/loop" --force --ready 260 --concurrency 32 --steps 3000 --minutes "${MINUTES:-0.5}" -- "${options[@]}" 2>&1 | cut -c1-3000
    say "loop: status ${PIPESTATUS[0]}"
    keep loop) &
    loop=$!
    # The other servers start when the GPU has served the target: their starts would be in the loop's first figures.
    while kill -0 $loop 2>/dev/null && [ ! -s "$work/loop/answers.jsonl" ]; do sleep 0.5; done
;; esac

case $skip in *" faults "*) ;; *)
    say "long texts, a healthy server, other layers, another embedding"
    timeout -k 10 "${FAULTS_S:-210}" python3 -m tests.gpu.drafter --python "$python" --site "$work/site" --model "$model" \
        --interpreter "$(command -v python3)" --out "$work/faults" -- "${options[@]}" 2>&1 | cut -c1-3000
    say "faults: status ${PIPESTATUS[0]}"
    keep faults
;; esac
wait
say "done"
