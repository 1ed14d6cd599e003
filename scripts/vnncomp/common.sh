# shellcheck shell=bash
# What the three scripts of the competition share.  Sourced, not run.

readonly VERSION=v1
ROOT=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd)
# The interpreter that `install_tool.sh` prepares, or another one in which the requirements are installed.
PYTHON=${STRATA_PYTHON:-$ROOT/.venv/bin/python}
export PYTHONPATH=$ROOT${PYTHONPATH:+:$PYTHONPATH}

fail() {
    echo "$(basename -- "$0"): $1" >&2
    exit 1
}

# check_arguments WANTED VERSION_GIVEN NUMBER_GIVEN: the usage in words, the first argument, and how many there are.
check_arguments() {
    [ "$3" -eq "$(wc -w <<<"$1")" ] || fail "usage: $(basename -- "$0") $1"
    [ "$2" = "$VERSION" ] || fail "the interface is $VERSION, not '$2'"
}

# compute T FORMULA: the value of a formula in t; bash itself has no fractions.
compute() {
    LC_ALL=C awk -v t="$1" "BEGIN { printf \"%s\n\", ($2) }"
}

# networks ARGUMENT: a line `NAME=PATH` for each network.  The argument is a path, or since 2026 the text of a Python
# list of pairs such as [('f', 'a.onnx'), ('g', 'b.onnx')].
networks() {
    if [[ $1 != \[* ]]; then
        printf 'f=%s\n' "$1"
        return
    fi
    "$PYTHON" -c '
import ast, sys
for name, path in ast.literal_eval(sys.argv[1]):
    print(f"{name}={path}")
' "$1" 2>/dev/null || fail "the network argument is neither a path nor a list of pairs: $1"
}

# check_imports: fails with one sentence unless all libraries of the verifier can be loaded, which also brings them into
# the disk cache.  onnx2torch is loaded by the verifier's own means, without torchvision.
check_imports() {
    local missing
    missing=$("$PYTHON" -c '
import importlib, sys
for name in sys.argv[1:]:
    try:
        importlib.import_module(name)
    except BaseException as error:
        print(f"{name} ({type(error).__name__}: {error})".replace("\n", " "))
        break
else:
    try:
        from verifier.network.lowering.convert import load_onnx2torch
        load_onnx2torch()
        import verifier.api
    except BaseException as error:
        print(f"the verifier ({type(error).__name__}: {error})".replace("\n", " "))
' torch onnx onnxruntime numpy click yaml tqdm highspy msgspec jaxtyping) ||
        fail "$PYTHON cannot be run, or a library ended it"
    [ -z "$missing" ] || fail "$PYTHON cannot load $missing; see the README"
}
