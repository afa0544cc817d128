#!/usr/bin/env bash
# What takes two GPUs, in one go and in the order of what it needs; evidence goes to OUT as it comes in, so that a run that is
# cut short still leaves some.
#
#   tests/gpu/session.sh OUT [ARCHIVE]
#
# ARCHIVE is a .tar.xz with SGLang for this python3 and models/tiny-llama-eagle3: the server is started only if it is given.
# SKIP='dumps ratio' leaves parts out (dumps, ratio, serve, launch). Seconds that a part may take: DUMPS_S, RATIO_S, SERVE_S,
# LAUNCH_S, ARMING_S. LAUNCH_OPTIONS are for tests.gpu.launch.
set -u
cd "$(dirname "$0")/../.." || exit 2
out=${1:?directory for the evidence} archive=${2:-} skip=" ${SKIP:-} "
work=$(mktemp -d /tmp/gpudiag-session.XXXX)
began=$SECONDS
# `pip install --target` puts programs where no PATH leads.
for place in $(tr : ' ' <<<"${PYTHONPATH:-}"); do PATH=$PATH:$place/bin; done
command -v py-spy >/dev/null || { echo "py-spy is not on PATH: no stacks, no verdicts" >&2; exit 2; }
say() { echo "== $((SECONDS - began)) s: $*"; }

if [ -n "$archive" ]; then
    mkdir -p "$work/site"
    tar xJf "$archive" -C "$work/site" &
    unpacking=$!
fi

case $skip in *" dumps "*) ;; *)
    say "stuck kernels named by CUDA core dumps; other calls and a lost message by flight recorders"
    GPUDIAG_GPU_RECORDINGS=$work/scenes timeout -k 5 "${DUMPS_S:-140}" python3 -m pytest -q -n0 -p no:cacheprovider --basetemp="$work/pytest" \
        tests/gpu/test_scenarios.py::test_kernel_dump tests/gpu/test_scenarios.py::test_armed_scenario \
        -k 'dump or other_operation or send_without_recv' 2>&1 | cut -c1-1500
    cat "$work/scenes/table.json" 2>/dev/null
    tar czf "$out/scenarios.tgz" -C "$work" scenes 2>/dev/null
    find "$work/pytest" -name 'core.*' | sort | while read -r core; do
        echo "## $core $(stat -c %s "$core")"
        (ulimit -c 0; timeout 20 cuda-gdb -nx -batch -iex 'set auto-load off' -ex "target cudacore $core" -ex 'info cuda kernels' \
            -ex 'cuda kernel 0' -ex 'backtrace 4' -ex 'cuda kernel 1' -ex 'backtrace 4')
        echo "## status $?"
    done >"$out/dumps.txt" 2>&1
    core=$(find "$work/pytest" -name 'core.*' | head -n 1)
    if [ -n "$core" ]; then
        for part in 1000 1000000 50000000; do
            head -c $part "$core" >"$work/cut"
            echo "## the first $part bytes"
            (ulimit -c 0; timeout 20 cuda-gdb -nx -batch -iex 'set auto-load off' -ex "target cudacore $work/cut" -ex 'info cuda kernels')
            echo "## status $?"
        done >>"$out/dumps.txt" 2>&1
    fi
    find "$work/pytest" -name 'core.*' -delete
;; esac

case $skip in *" ratio "*) ;; *)
    say "NCCL's state: memory against ncclras"
    timeout -k 5 "${RATIO_S:-60}" python3 - "$work/ratio" <<'PYTHON' 2>&1 | tee "$out/ratio.txt"
import subprocess, sys
from pathlib import Path
from tests.gpu.test_scenarios import Scene
scene = Scene("missing_rank", Path(sys.argv[1]), 29_450)
try:
    scene.enter()
    pids = Path(f"/proc/{scene.process.pid}/task/{scene.process.pid}/children").read_text().split()
    subprocess.run(["ncclras", "-v"], timeout=20)
    subprocess.run([sys.executable, "benchmarks/nccl_memory.py", *(a for pid in pids for a in ("--pid", pid))], timeout=50)
finally:
    scene.close()
PYTHON
;; esac

if [ -n "$archive" ]; then case $skip in *" serve "*) ;; *)
    wait "$unpacking"
    say "unpacked: $(du -sh "$work/site" | cut -f1); a real SGLang with EAGLE-3"
    timeout -k 10 "${SERVE_S:-300}" python3 tests/gpu/serve.py --site "$work/site" --model "$work/site/models/tiny-llama-eagle3" \
        --out "$work/serve" --ready "${READY_S:-200}"
    say "server: status $?"
    tar czf "$out/serve.tgz" -C "$work" serve
;; esac; fi

if [ -n "$archive" ]; then case $skip in *" launch "*) ;; *)
    wait "$unpacking"
    say "unpacked: $(du -sh "$work/site" | cut -f1); gpudiag launch of a real SGLang with EAGLE-3"
    # shellcheck disable=SC2086  several options
    timeout -k 10 "${LAUNCH_S:-300}" python3 -m tests.gpu.launch --site "$work/site" --model "$work/site/models/tiny-llama-eagle3" \
        --out "$work/launch" --ready "${READY_S:-200}" ${LAUNCH_OPTIONS:-}
    say "launch: status $?"
    tar czf "$out/launch.tgz" --exclude='core.*' -C "$work" launch
    run=$(find "$work/launch/runs" -maxdepth 1 -mindepth 1 -type d 2>/dev/null | head -n 1)
    if [ -n "$run" ]; then
        say "what arming costs"
        timeout -k 5 "${ARMING_S:-110}" python3 -m tests.gpu.arming --run "$run" >"$out/arming.jsonl"
        cut -c1-200 "$out/arming.jsonl"
    fi
;; esac; fi
say "done"
