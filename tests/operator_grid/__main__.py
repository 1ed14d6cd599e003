"""Show single cases: PYTHONPATH=tests python -m operator_grid slice:12"""

from __future__ import annotations

import sys

import onnx
from operator_grid.judge import judged
from operator_grid.table import case_of

for label in sys.argv[1:]:
    found = case_of(label)
    if found is None:
        print(f"{label}: this combination of settings means nothing")
        continue
    print(onnx.printer.to_text(found.model()))
    print(found.points)
    print(judged(found))
