#!/bin/bash
# VNN-COMP: install_tool.sh v1
# Installs everything into .venv of this repository, once.  With STRATA_PYTHON set nothing is installed, only checked.

set -euo pipefail
# shellcheck source=scripts/vnncomp/common.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"
check_arguments "v1" "${1:-}" $#

as_root() {
    if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo "$@"; fi
}

if [ -z "${STRATA_PYTHON:-}" ]; then
    # A fresh Debian or Ubuntu has Python, but neither make nor the module venv.
    if ! { command -v make && python3 -c 'import ensurepip, venv'; } >/dev/null 2>&1; then
        as_root apt-get update
        as_root apt-get install -y make python3 python3-venv
    fi
    make -C "$ROOT" install
fi
"$PYTHON" -m verifier --version || fail "$PYTHON cannot run the verifier"
check_imports
