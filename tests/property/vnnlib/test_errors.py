"""Every bad file ends in one sentence with its line."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from property.oracles import declared

from verifier.errors import InputError
from verifier.property.property import Property
from verifier.property.vnnlib import clauses, load_property, parse

HEAD = declared(2, 1)  # lines 1 to 3
BOX = HEAD + "(assert (and (<= 0 X_0 1) (<= 0 X_1 1)))\n"  # line 4
NET = "(vnnlib-version <2.0>)\n(declare-network f\n(declare-input X float32 [1,2])\n(declare-output Y float32 [1])\n)\n"

CASES = [
    ("", None, "the file is empty: it holds no declaration and no assert"),
    ("; only a comment\n", None, "the file is empty: it holds no declaration and no assert"),
    (HEAD, None, "the file holds no assert"),
    ("(assert (<= 0 1))", None, "the file declares no input variable X_i"),
    (
        "(declare-const X_0 Real)(assert (<= 0 X_0 1))",
        None,
        "the file declares no output variable Y_j".replace("j", "i"),
    ),
    (BOX + "(assert (<= Y_0 0)", 5, "this '(' is never closed"),
    (BOX + "\n(assert (<= Y_0 0)))", 6, "there is a ')' without its '('"),
    (BOX + "\n\ngarbage", 7, "'garbage' stands outside of all parentheses"),
    (BOX + "()", 5, "these parentheses are empty"),
    (BOX + "(assert ())", 5, "a condition is expected here"),
    (BOX + "(assert (<= Y_1 0))", 5, "'Y_1' is not declared"),
    (BOX + "(assert (and (<= Y_0 0)\n(<= Y_0\n\nfoo)))", 8, "'foo' is not declared"),
    (BOX + "(assert (<= Y_0 1.2.3))", 5, "'1.2.3' is neither a variable nor a number"),
    (BOX + "(assert (<= Y_0 nan))", 5, "'nan' is not a finite number"),
    (BOX + "(assert (<= -inf Y_0))", 5, "'-inf' is not a finite number"),
    (BOX + "(assert (<= Y_0 1e400))", 5, "the number 1e400 is outside of the range of 64-bit floats"),
    (BOX + "(assert (<= Y_0))", 5, "'<=' has 1 arguments, it needs two"),
    (BOX + "(assert (<= (0.5 Y_0)))", 5, "'0.5' is not a known operator or command"),
    (BOX + "(assert (!= Y_0 1 2))", 5, "'!=' takes two arguments"),
    (BOX + "(assert ((<= Y_0 1)))", 5, "an operator is expected after '('"),
    (BOX + "(assert (Y_0 < 1))", 5, "'Y_0' is not a known operator or command"),
    (BOX + "(assert (not (<= Y_0 1)))", 5, "the operator 'not' is not supported"),
    (BOX + "(assert (<= (* Y_0 Y_0) 1))", 5, "a product of variables is not linear, which VNN-LIB 1.0 does not have"),
    (BOX + "(assert (<= (/ 1 Y_0) 1))", 5, "only division by a constant other than zero is supported"),
    (BOX + "(assert (<= (/ Y_0 0) 1))", 5, "only division by a constant other than zero is supported"),
    (BOX + "(assert (<= (+) 1))", 5, "'+' has no arguments"),
    (BOX + "(assert (<= (*) 1))", 5, "'*' has 0 arguments"),
    (BOX + "(assert (or))", 5, "'or' has no arguments"),
    (BOX + "(assert (and Y_0))", 5, "a condition is expected here"),
    (BOX + "(assert (<= (<= Y_0 1) 1))", 5, "a variable, a number or a term is expected here"),
    (BOX + "(assert (+ Y_0 1))", 5, "a condition is expected here"),
    (BOX + "(assert)", 5, "'assert' has 0 arguments, it takes one condition"),
    (BOX + "(assert (and (assert (<= Y_0 1))))", 5, "'assert' must stand at the top level"),
    (BOX + "(<= Y_0 1)", 5, "'<=' must stand inside of an assert or a declaration"),
    (BOX + "(assert (<= Y_0[0] 1))", 5, "'Y_0[0]' is not declared"),
    (BOX + "(assert (<= Y_0 [ 1))", 5, "'[' has no place here"),
    (BOX + "(declare-const Y_0 Real)", 5, "the variable 'Y_0' is declared twice"),
    (BOX + "(declare-const Z Real)", 5, "the variable 'Z' is neither an input X_i nor an output Y_j"),
    (BOX + "(declare-const X_02 Real)", 5, "the variable 'X_02' is neither an input X_i nor an output Y_j"),
    (BOX + "(declare-const Y_1 Int)", 5, "the variable 'Y_1' has type 'Int', only Real is supported"),
    (BOX + "(declare-const Y_1)", 5, "a declaration reads (declare-const X_0 Real)"),
    (BOX + "(declare-const Y_2 Real)", None, "Y_2 is declared, but Y_1 is not"),
    (HEAD + "(assert (<= X_0 1))(assert (<= 0 X_1 1))", 1, "the input X_0 has no lower bound"),
    (HEAD + "(assert (<= 0 X_0 1))(assert (>= X_1 1))", 2, "the input X_1 has no upper bound"),
    (
        HEAD + "(assert (<= 0 X_0 1)) (assert (or (<= 0 X_1 1) (<= X_1 1)))",
        2,
        "the input X_1 has no lower bound in disjunct 2 of 2",
    ),
    (BOX + "(vnnlib-version <2.0>)", 5, "the version must come first"),
    ("(vnnlib-version 2)", 1, "the version reads (vnnlib-version <2.0>)"),
    ("(vnnlib-version <3.1>)", 1, "VNN-LIB version 3.1 is not supported"),
    ("(vnnlib-version <2.0>)", None, "the file declares no network"),
    ("(vnnlib-version <2.0>)\n" + HEAD, 2, "'declare-const' belongs to VNN-LIB 1.0, this file says version 2.0"),
    (NET[23:] + "\n", 1, "'declare-network' needs (vnnlib-version <2.0>) in front"),
    (NET + "(assert (<= X[0,2] 1))", 6, "'X[0,2]' lies outside of the shape [1, 2]"),
    (NET + "(assert (<= X[0] 1))", 6, "'X[0]' has 1 indices, 'X' has 2 axes"),
    (NET + "(assert (<= X 1))", 6, "'X' has 0 indices, 'X' has 2 axes"),
    (NET + "(assert (<= Z[0] 1))", 6, "'Z[0]' is not declared"),
    (NET + "(assert (<= 0 X[0,0] 1))", 3, "the input X[0,1] has no lower bound"),
    (NET.replace("[1,2]", ""), 3, "'X' needs a type and a shape (float32 [1,5]), not 'float32'"),
    (NET.replace("[1,2]", "[1,,2]"), 3, "'X' needs a type and a shape (float32 [1,5]), not 'float32[1,,2]'"),
    (NET.replace("[1,2]", "[0]"), 3, "the tensor 'X' has 0 elements, 1 to 10000000 are allowed"),
    (
        NET.replace("[1,2]", "[99999999,99999999]"),
        3,
        "the tensor 'X' has 9999999800000001 elements, 1 to 10000000 are allowed",
    ),
    (
        NET.replace("float32 [1,2]", "int8 [1,2]"),
        3,
        "'X' has type 'int8', only real, float16, float32 and float64 are supported",
    ),
    (NET.replace("-output Y", "-input Y"), 2, "the network 'f' declares no output"),
    (NET.replace("(declare-output Y float32 [1])", ""), 2, "the network 'f' declares no output"),
    (
        NET.replace("[1])", '[1])\n(declare-hidden H real [1] "t")'),
        5,
        "'declare-hidden' (conditions on hidden layers) is not supported",
    ),
    (NET + "(declare-network g\n(equal-to f))", 6, "the network 'g' declares no input"),
    (NET + "(declare-network g\n(equal-to f g))", 7, "a relation to another network reads (equal-to f)"),
    (
        NET + "(declare-network g\n(equal-to h)\n(declare-input Z real [2])\n(declare-output W real [1]))",
        6,
        "'equal-to' names 'h', which is not declared before",
    ),
    (
        NET + "(declare-network g\n(isomorphic-to f)\n(declare-input Z real [3])\n(declare-output W real [1]))",
        6,
        "'g' is isomorphic-to 'f', but has other tensors",
    ),
    (
        NET + "(declare-network g\n(declare-input Z real [1])\n(isomorphic-to f))",
        8,
        "a network holds at most one relation, then declarations of inputs and outputs",
    ),
    (
        NET + "(declare-network f\n(declare-input Z real [2])\n(declare-output W real [1]))",
        6,
        "the network 'f' is declared twice",
    ),
    (
        NET + "(assert (<= Y 0))\n(declare-network g\n(declare-input Z real [2])\n(declare-output W real [1]))",
        7,
        "all networks must be declared before the first assert",
    ),
    (
        "(vnnlib-version <2.0>)\n(assert (<= 0 1))" + NET[23:],
        2,
        "an assert comes before the declaration of the network",
    ),
]


@pytest.mark.parametrize(("text", "line", "message"), CASES)
def test_message_and_line(text: str, line: int | None, message: str) -> None:
    with pytest.raises(InputError) as caught:
        parse(text, "p.vnnlib")
    assert caught.value.message == message
    assert caught.value.line == line
    assert str(caught.value) == (f"p.vnnlib: {message}" if line is None else f"p.vnnlib:{line}: {message}")


def test_bytes_that_are_no_text() -> None:
    with pytest.raises(InputError) as caught:
        parse(BOX.encode() + b"; \xff\n")
    assert (caught.value.message, caught.value.line) == ("the file is not text in UTF-8", 5)


def test_multiplying_out_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    choice = "(or " + " ".join(f"(<= Y_0 {k})" for k in range(100)) + ")"
    for text in (f"(assert {choice})" * 3, f"(assert (and {choice} {choice} {choice}))"):
        with pytest.raises(InputError, match="multiplying the disjunctions out gives 1000000 clauses"):
            parse(BOX + text)
    monkeypatch.setattr(clauses, "MAX_ATOMS", 10)
    with pytest.raises(InputError, match="more than the 200000 and 10 that are allowed"):
        parse(BOX + "(assert (or (<= Y_0 0) (<= Y_0 1)))" * 3)
    monkeypatch.setattr(clauses, "MAX_BOX_NUMBERS", 3)
    with pytest.raises(InputError, match="would not fit into memory"):
        parse(BOX + "(assert (or (<= X_0 0.5) (<= X_0 0.25) (<= X_0 0.1)))")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    good = tmp_path / "good.vnnlib.gz"
    good.write_bytes(gzip.compress((BOX + "(assert (<= Y_0 0))").encode()))
    assert load_property(good).n_x == 2
    assert load_property(tmp_path / "good.vnnlib").n_x == 2  # the name without .gz serves too
    cut = tmp_path / "cut.vnnlib.gz"
    cut.write_bytes(good.read_bytes()[:-12])
    damaged = tmp_path / "damaged.vnnlib.gz"
    damaged.write_bytes(good.read_bytes()[:20] + b"\0\0\0\0" + good.read_bytes()[24:])
    bad = [
        (tmp_path / "none.vnnlib", "the file does not exist"),
        (tmp_path, "this is a directory, not a file"),
        (cut, "the gzip file is truncated or damaged"),
        (damaged, "the gzip file is truncated or damaged"),
    ]
    if os.geteuid() != 0:  # root may read everything
        locked = tmp_path / "locked.vnnlib"
        locked.write_text(BOX)
        locked.chmod(0)
        bad.append((locked, "the file may not be read (permission denied)"))
    for path, message in bad:
        with pytest.raises(InputError) as caught:
            load_property(path)
        assert str(caught.value) == f"{path}: {message}"


SAMPLE = (BOX + "(assert (or (and (<= Y_0 0.5) (>= X_0 1e-1)) (< (* 2 Y_0) (- X_1 3))))\n").encode()
SAMPLE_2 = (NET + "(assert (and (<= 0 X[0,0] 1) (<= 0 X[0,1] 1)))(assert (!= Y[0] 2))").encode()
CHARACTERS = st.sampled_from(
    [bytes([c]) for c in b"()[]<>=!+-*/.,;_XY0e \n\0"] + [b"\xff", b"\xc3\xbc", b"1e9", b"and"]
)


@settings(max_examples=500)
@given(st.sampled_from([SAMPLE, SAMPLE_2]), st.data())
def test_a_mutated_file_is_read_or_refused(text: bytes, data: st.DataObject) -> None:
    for _ in range(data.draw(st.integers(1, 3))):
        place, length = data.draw(st.integers(0, len(text))), data.draw(st.integers(0, 4))
        text = text[:place] + data.draw(CHARACTERS | st.just(b"")) + text[place + length :]
    found = _read_or_refuse(text)
    if isinstance(found, str):
        assert found.startswith("mutated:")
        assert "\n" not in found
    else:
        assert found.boxes.lower.shape == (len(found.boxes), found.n_x)


def _read_or_refuse(text: bytes) -> Property | str:
    try:
        return parse(text, "mutated")
    except InputError as error:
        return str(error)
