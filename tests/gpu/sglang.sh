# Sourced by scripts that need a real SGLang with EAGLE-3 on one GPU: `unpack ARCHIVE` first, then `serve PORT LOG`.
# ARCHIVE is a .tar.xz with SGLang for this python3 and models/tiny-llama-eagle3.

unpack() {
    site=$(mktemp -d /tmp/gpudiag-sglang.XXXX) model=$site/models/tiny-llama-eagle3
    tar xJf "$1" -C "$site"
}

# Starts a server in a session of its own; its pid is in $!.
serve() {
    (cd "$site" && PYTHONPATH=$site SGLANG_SKIP_SGL_KERNEL_VERSION_CHECK=1 HF_HUB_OFFLINE=1 exec setsid python3 -m sglang.launch_server \
        --model-path "$model/target" --served-model-name tiny --port "$1" --attention-backend triton --sampling-backend pytorch \
        --grammar-backend none --disable-cuda-graph --disable-custom-all-reduce --mem-fraction-static 0.3 \
        --max-total-tokens 65536 --max-running-requests 32 --skip-server-warmup --speculative-algorithm EAGLE3 \
        --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4 \
        --speculative-draft-model-path "$model/draft" >"$2" 2>&1) &
}

# The first answer compiles kernels.
complete() {
    curl -s -m 150 -f -H 'Content-Type: application/json' http://127.0.0.1:"$1"/v1/completions \
        -d '{"model": "tiny", "prompt": "def hello", "max_tokens": 4, "temperature": 0, "ignore_eos": true}'
}
