#!/bin/bash
# VNN-COMP: prepare_instance.sh v1 CATEGORY ONNX VNNLIB
# Looks whether the files are there and brings the libraries into the disk cache.  No analysis.  A failure skips the
# instance.

set -euo pipefail
# shellcheck source=scripts/vnncomp/common.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"
check_arguments "v1 CATEGORY ONNX VNNLIB" "${1:-}" $#

is_there() {
    [ -r "$1" ] || [ -r "$1.gz" ] || fail "$1: no such file, nor with .gz added"
}

listed=$(networks "$3")
while IFS= read -r named; do
    is_there "${named#*=}"
done <<<"$listed"
is_there "$4"
check_imports
