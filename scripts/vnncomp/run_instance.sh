#!/bin/bash
# VNN-COMP: run_instance.sh v1 CATEGORY ONNX VNNLIB RESULTS_FILE TIMEOUT
# Decides an instance.  The first line of RESULTS_FILE is sat, unsat, unknown, timeout or error; a witness follows.
# Exit code 0 whenever that file was written, also with an error in it.

set -euo pipefail
# shellcheck source=scripts/vnncomp/common.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"
check_arguments "v1 CATEGORY ONNX VNNLIB RESULTS_FILE TIMEOUT" "${1:-}" $#
prop=$4 results=$5 timeout=$6
[[ $timeout =~ ^[0-9]+(\.[0-9]*)?$ ]] || fail "the time limit '$timeout' is not a number of seconds"

# An answer that is late by a moment counts as none.  The verifier answers within a second after its limit, and the
# interpreter needs a moment to end: the limit is 2 s earlier, or three quarters of a very short one.
limit=$(compute "$timeout" '(t > 8) ? t - 2 : 0.75 * t')
# Should the verifier hang where it cannot notice, it is killed when the time is almost up.
last=$(compute "$timeout" '(t > 8) ? t - 0.5 : 0.95 * t')

# Emptied first: no answer of an earlier run may be taken for this one's.
: >"$results" || fail "$results cannot be written"

if ! listed=$(networks "$3"); then
    echo error >"$results"
    exit 0
fi
arguments=()
while IFS= read -r named; do
    arguments+=(--network "$named")
done <<<"$listed"

began=$(date +%s.%N)
status=0
timeout --signal=KILL "$last" \
    "$PYTHON" -m verifier "$prop" "${arguments[@]}" --timeout "$limit" --result "$results" --quiet || status=$?

if [ ! -s "$results" ]; then  # the process ended without an answer
    spent=$(compute "$(date +%s.%N)" "t - $began")
    answer=$(compute "$spent" "(t >= $limit) ? \"timeout\" : \"error\"")
    echo "run_instance.sh: the verifier ended with status $status after $spent s and gave no answer" >&2
    echo "$answer" >"$results"
fi
