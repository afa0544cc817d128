#!/usr/bin/env bash
# Two SGLang with EAGLE-3 on one GPU and one empty cache: the first request of one compiles, the other's waits for the cache's lock,
# and `gpudiag attach` has to say so of the second (GPD314, by the first one's pid).
#
#   tests/gpu/shared_cache.sh OUT ARCHIVE          ARCHIVE: see sglang.sh
set -u
cd "$(dirname "$0")/../.." || exit 2
out=${1:?directory for the evidence} archive=${2:?archive with SGLang and a model}
. tests/gpu/sglang.sh
for place in $(tr : ' ' <<<"${PYTHONPATH:-}"); do PATH=$PATH:$place/bin; done

unpack "$archive" || exit 2
rm -rf ~/.cache/flashinfer ~/.cache/tvm-ffi
serve 30000 "$out/first.log"
first=$!
serve 30001 "$out/second.log"
second=$!
trap 'kill -9 -- -$first -$second 2>/dev/null; wait' EXIT
# Not by /health: SGLang 0.5.17 generates a token for an answer, which already compiles.
for log in "$out/first.log" "$out/second.log"; do
    until grep -qs 'Uvicorn running' "$log"; do
        kill -0 $first $second 2>/dev/null || { tail -n 20 "$out"/*.log; exit 1; }
        sleep 0.5
    done
done
echo "== $SECONDS s: both are up: $first and $second"
complete 30000 >"$out/first.json" &
asked=$!
# The second one asks when the first one compiles, and only then waits.
until pgrep -x 'ninja|nvcc|cicc|cc1plus' >/dev/null; do sleep 0.1; done
complete 30001 >"$out/second.json" &
asked="$asked $!"
sleep 2
for look in 1 2 3; do
    echo "== $SECONDS s: look $look"
    python3 -m gpudiag attach $second --fail-on never --record "$out/look$look.gpudiag"
    sleep 2
done
python3 -m gpudiag attach $second --fail-on never --confirm --record "$out/look4.gpudiag"
pgrep -x -a 'ninja|nvcc|cicc|cc1plus|ptxas' | cut -c1-120
# shellcheck disable=SC2086
wait $asked
echo "== $SECONDS s: answered: $(cut -c1-80 "$out/first.json") $(cut -c1-80 "$out/second.json")"
