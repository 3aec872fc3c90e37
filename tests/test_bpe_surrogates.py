"""lmlib.bpe.surrogates: what no UTF-8 can hold is replaced as tiktoken replaces it."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lmlib.bpe.surrogates import replace_surrogates
from tests.bpe_peers import make_encoding

BYTES = make_encoding({bytes([i]): i for i in range(256)}, r"(?s).")


@pytest.mark.parametrize(
    ("text", "replaced"),
    [
        ("", ""),
        ("\ufeffa\ufeff", "\ufeffa\ufeff"),
        ("a\ud800b", "a\ufffdb"),
        ("\udc00", "\ufffd"),
        ("\udc00\ud800", "\ufffd\ufffd"),
        ("\ud83c\udf0d", "🌍"),
        ("\ud83c\ud83c\udf0d", "\ufffd🌍"),
        ("\ud800a", "\ufffda"),
        ("a\ud800", "a\ufffd"),
    ],
)
def test_lone_surrogates_are_replaced_and_pairs_are_joined(text, replaced):
    assert replace_surrogates(text) == replaced


@given(st.text(st.one_of(st.characters(), st.characters(categories=["Cs"]))))
@settings(deadline=None)
def test_result_is_what_tiktoken_reads(text):
    assert replace_surrogates(text).encode() == bytes(BYTES.encode_ordinary(text))


@given(st.text(st.characters(exclude_categories=["Cs"])))
@settings(deadline=None)
def test_other_text_stays_as_it_is(text):
    assert replace_surrogates(text) == text
