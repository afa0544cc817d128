#!/usr/bin/env bash
# Whether watching a serving SGLang with EAGLE-3 on one GPU does it any harm: tests/harm/serving.py on a machine with cores to spare.
#
#   tests/gpu/harm.sh OUT ARCHIVE [OPTIONS OF tests.harm.serving]          ARCHIVE: see sglang.sh
set -u
cd "$(dirname "$0")/../.." || exit 2
out=${1:?directory for the evidence} archive=${2:?archive with SGLang and a model}
shift 2
. tests/gpu/sglang.sh
for place in $(tr : ' ' <<<"${PYTHONPATH:-}"); do PATH=$PATH:$place/bin; done

unpack "$archive" || exit 2
serve 30000 "$out/server.log"
server=$!
trap 'kill -- -$server 2>/dev/null; wait' EXIT
until complete 30000 >/dev/null; do
    kill -0 $server 2>/dev/null || { tail -n 20 "$out/server.log"; exit 1; }
    sleep 0.5
done
echo "serving after $SECONDS s"
python3 -m tests.harm.serving --pid $server --url http://127.0.0.1:30000 "$@" 2>&1 | tee "$out/harm.txt"
exit "${PIPESTATUS[0]}"
