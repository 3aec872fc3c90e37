"""lmlib.bpe.formats: a tokenizer goes to tiktoken's ranks, and theirs come here, without a changed id."""

import base64
import sys

import pytest
from tiktoken.load import load_tiktoken_bpe

from lmlib.bpe import reference
from lmlib.bpe.formats import (
    read_tiktoken,
    tiktoken_ranks,
    to_hugging_face,
    to_tiktoken,
)
from lmlib.bpe.patterns import GPT2_PATTERN
from lmlib.bpe.spec import TokenizerSpec
from tests.bpe_specs import (
    ALL_PATTERNS,
    BYTES,
    SPECIAL,
    hugging_face_ids,
    ids_of,
    small,
    texts_with_special_tokens,
)

# None of them starts another: then tiktoken does not promise that the longest wins.
APART = {name: i for name, i in SPECIAL.items() if name != "<|end|>\n"}


@pytest.mark.parametrize("name", ALL_PATTERNS)
def test_tiktoken_gives_our_ids(name, tmp_path):
    spec = small(ALL_PATTERNS[name], (*APART.items(),))
    theirs = to_tiktoken(spec, "mine")
    assert (theirs.name, theirs.max_token_value) == ("mine", 4000)
    for text in texts_with_special_tokens(10, 500, APART):
        ids = theirs.encode(text, allowed_special="all")
        assert ids == ids_of(spec, text), ascii(text)
        assert theirs.decode(ids) == reference.decode(ids, spec.vocab)
    path = tmp_path / "ranks.tiktoken"
    path.write_bytes(tiktoken_ranks(spec))
    assert load_tiktoken_bpe(str(path)) == spec.ids
    assert read_tiktoken(path, spec.pattern, APART) == spec


def test_ranks_are_in_order_and_may_have_gaps(tmp_path):
    """As after Hugging Face's trainer: special tokens first."""
    vocab = {i + 5: token for i, token in BYTES.items()} | {300: b"ab", 310: b"abc", 0: b"<|end|>"}
    spec = TokenizerSpec(vocab, [(b"a", b"b"), (b"ab", b"c")], {"<|end|>": 0}, None)
    path = tmp_path / "ranks.tiktoken"
    path.write_bytes(tiktoken_ranks(spec))
    lines = path.read_bytes().splitlines()
    assert (lines[0], lines[-1], len(lines)) == (b"AA== 5", b"YWJj 310", 258)
    assert read_tiktoken(path, None, {"<|end|>": 0}) == spec
    assert to_tiktoken(spec).encode("xabcab<|end|>", allowed_special="all") == [125, 310, 300, 0]


def test_ids_out_of_order_are_no_ranks():
    spec = TokenizerSpec(BYTES | {257: b"ab", 256: b"abc"}, [(b"a", b"b"), (b"ab", b"c")], {}, None)
    for write in [tiktoken_ranks, to_tiktoken]:
        with pytest.raises(ValueError, match="A later merge has a smaller id"):
            write(spec)
    assert hugging_face_ids(to_hugging_face(spec), "abcab") == [256, 257]


def test_tiktoken_would_encode_to_a_token_that_no_merge_makes():
    spec = TokenizerSpec(BYTES | {256: b"<|end|>"}, [], {}, None)
    for write in [tiktoken_ranks, to_tiktoken]:
        with pytest.raises(ValueError, match=r"No merge makes token 256, b'<\|end\|>', but tiktoken"):
            write(spec)


SINGLES = [b"%b %d" % (base64.b64encode(token), i) for i, token in BYTES.items()]
BROKEN_RANKS = {
    "no base64": (b"Y!Jj 256", r"line 257 is b'Y!Jj 256', not a token in base64"),
    "no padding": (b"YWJ 256", "line 257 is"),
    "no rank": (b"YWI=", "line 257 is b'YWI=', not"),
    "three fields": (b"YWI= 256 1", "line 257 is"),
    "a rank below 0": (b"YWI= -1", "line 257 is"),
    "a rank in letters": (b"YWI= x", "line 257 is"),
    "not UTF-8": (b"\xff\xff 256", "line 257 is"),
    "a rank twice": (b"YWI= 97", "line 257 repeats rank 97 of line 98"),
    "a token twice": (b"YQ== 256", "line 257 repeats b'a' of line 98"),
    "three parts": (b"YWJj 256", r"make \[b'a', b'b', b'c'\] of b'abc', rank 256, not two"),
    "a special token's id": (b"YWI= 300", r"special token '<\|x\|>' has id 300, which is the rank of b'ab'"),
}


@pytest.mark.parametrize(("line", "message"), BROKEN_RANKS.values(), ids=BROKEN_RANKS)
def test_a_broken_line_of_ranks_is_named(line, message, tmp_path):
    path = tmp_path / "ranks.tiktoken"
    path.write_bytes(b"\n".join([*SINGLES, line, b""]))
    with pytest.raises(ValueError, match=message) as error:
        read_tiktoken(path, GPT2_PATTERN, {"<|x|>": 300})
    assert str(path) in str(error.value)


def test_ranks_without_a_byte_are_refused(tmp_path):
    (tmp_path / "ranks.tiktoken").write_bytes(b"\n".join(SINGLES[1:]))
    with pytest.raises(ValueError, match=r"is b'.x00': every byte"):
        read_tiktoken(tmp_path / "ranks.tiktoken", None, {})


def test_lines_may_end_as_on_windows(tmp_path):
    (tmp_path / "ranks.tiktoken").write_bytes(b"\r\n".join([*SINGLES, b"YWI= 256", b""]))
    assert read_tiktoken(tmp_path / "ranks.tiktoken", None, {}).merges == [(b"a", b"b")]


@pytest.mark.parametrize(
    ("build", "package"), [(to_tiktoken, "tiktoken"), (to_hugging_face, "tokenizers")], ids=["tiktoken", "tokenizers"]
)
def test_a_missing_package_is_named(build, package, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=f"pip install {package}"):
        build(small())
