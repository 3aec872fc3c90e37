"""lmlib.bpe.formats.canonical: when merges by pair and ranks by result give the same ids."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from lmlib.bpe import reference
from lmlib.bpe.formats import (
    gpt2_byte_alphabet,
    gpt2_files,
    read_vocab_bpe,
    to_hugging_face,
    to_tiktoken,
    tokenizer_json,
)
from lmlib.bpe.formats.canonical import canonical_merges, check_canonical, split_tokens
from lmlib.bpe.patterns import GPT2_PATTERN
from lmlib.corpora import load_corpus
from tests.bpe_specs import LANGUAGES, check_text, every_split, hugging_face_ids, spec_of


@st.composite
def merge_lists(draw):
    """Merges of tokens made before; most lists are not canonical somewhere."""
    tokens, merges = [b"a", b"b"], []
    for _ in range(draw(st.integers(1, 9))):
        left, right = draw(st.sampled_from(tokens)), draw(st.sampled_from(tokens))
        if left + right not in tokens:
            tokens.append(left + right)
            merges.append((left, right))
    return merges


def is_canonical(merges):
    try:
        check_canonical(merges)
    except ValueError:
        return False
    return True


def are_canonical_by_definition(merges):
    return [*split_tokens(left + right for left, right in merges)] == [[*pair] for pair in merges]


def hugging_face_of(merges):
    """Their tokenizer with any merges, which `to_hugging_face` would refuse."""
    content = json.loads(tokenizer_json(spec_of([])))
    alphabet = gpt2_byte_alphabet()
    spelled = [["".join(alphabet[byte] for byte in token) for token in pair] for pair in merges]
    for pair in spelled:
        content["model"]["vocab"].setdefault("".join(pair), len(content["model"]["vocab"]))
    content["model"]["merges"] = spelled
    return Tokenizer.from_str(json.dumps(content))


def without_the_rest(merges):
    """Only the merges that keep the list canonical."""
    kept = []
    for merge in merges:
        if are_canonical_by_definition([*kept, merge]):
            kept.append(merge)
    return kept


@given(merge_lists())
@settings(max_examples=200)
def test_the_check_is_the_definition(merges):
    assert is_canonical(merges) == are_canonical_by_definition(merges)
    kept = without_the_rest(merges)
    assert is_canonical(kept)
    for left, right in merges:
        assert is_canonical([*kept, (left, right)]) == are_canonical_by_definition([*kept, (left, right)])


@given(merge_lists(), st.lists(st.text("ab", max_size=30), min_size=5, max_size=20))
@settings(max_examples=80)
def test_with_canonical_merges_hugging_face_and_tiktoken_agree(merges, texts):
    spec = spec_of(without_the_rest(merges))
    theirs, tiktokens = to_hugging_face(spec), to_tiktoken(spec)
    for text in texts:
        assert check_text(spec, theirs, text) == tiktokens.encode(text)


def test_with_other_merges_they_differ():
    merges = [(b"a", b"a"), (b"a", b"aa")]
    assert not is_canonical(merges)
    assert hugging_face_ids(hugging_face_of(merges), "aaa") == [256, ord("a")]
    assert to_tiktoken(spec_of(merges)).encode("aaa") == [257]
    for write in [tokenizer_json, gpt2_files, to_hugging_face]:
        with pytest.raises(ValueError, match=r"merge \(b'a', b'aa'\) is not what earlier merges lead to"):
            write(spec_of(merges))


@given(merge_lists(), st.lists(st.text("ab", max_size=30), min_size=5, max_size=20))
@settings(max_examples=80)
def test_of_every_split_only_one_is_met(merges, texts):
    kept = without_the_rest(merges)
    assert canonical_merges(every_split(kept)) == kept
    theirs = hugging_face_of([*every_split(kept)])
    for text in texts:
        check_text(spec_of(kept), theirs, text)


def test_merges_for_one_token_at_two_places_are_refused():
    with pytest.raises(ValueError, match="b'aaa' is made by two merges"):
        canonical_merges([(b"a", b"a"), (b"aa", b"a"), (b"a", b"b"), (b"a", b"aa")])


def test_what_training_gives_is_canonical():
    documents = [text.text[:300] for text in LANGUAGES.values()]
    for pattern in [GPT2_PATTERN, None]:
        _, merges = reference.train(documents[:: 1 if pattern else 9], 330, pattern=pattern)
        assert len(merges) == 74
        check_canonical(merges)
    check_canonical(read_vocab_bpe(load_corpus("gpt2_merges"))[1])
