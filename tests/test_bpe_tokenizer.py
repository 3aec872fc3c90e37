"""lmlib.bpe.tokenizer: tiktoken's ids for every text, however it is given, and the text again."""

import pickle
import random
import subprocess
import sys
import tempfile
import time
from base64 import b64encode
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import tiktoken
from hypothesis import given, settings
from hypothesis import strategies as st

from lmlib.bpe import GPT2_PATTERN, Tokenizer, reference, train_bpe
from lmlib.bpe.surrogates import replace_surrogates
from lmlib.corpora import load_corpus
from tests.bpe_peers import PATTERNS, adversarial_texts, encoding, make_encoding, random_texts, ranks

MOBY_DICK = load_corpus("moby_dick")
LANGUAGES = load_corpus("udhr")
END = "<|endoftext|>"
LONGEST = ["<|a|>", "<|a|><|b|>", "ab", "bc", "aa", "aaa", " the", "'s"]  # overlap, hold one another


NAMES = [*PATTERNS, "trained here"]


@cache
def tokenizer(name):
    """A published vocabulary, or one trained here, in many languages."""
    if name == "gpt2":
        return Tokenizer.from_pretrained("gpt2")
    if name == "trained here":
        texts = [language.text for language in LANGUAGES.values()]
        return Tokenizer(*train_bpe([MOBY_DICK[:200_000], *texts], 3000, [END]), [END])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, f"{name}.tiktoken")
        path.write_bytes(b"".join(b"%b %d\n" % (b64encode(token), rank) for token, rank in ranks(name).items()))
        return Tokenizer.from_tiktoken(path, PATTERNS[name], {"<|endofprompt|>": 200_018})


@cache
def peer(name):
    """tiktoken's tokenizer with the same vocabulary."""
    if name != "trained here":
        return encoding(name)
    ours = tokenizer(name)
    return make_encoding(reference.mergeable_ranks(ours.vocab, ours.merges), GPT2_PATTERN, ours.special_tokens)


@cache
def with_special_tokens(pattern=GPT2_PATTERN):
    """A small vocabulary with special tokens that overlap, and hold one another."""
    vocab, merges = train_bpe([MOBY_DICK[:50_000]], 400)
    return Tokenizer(vocab, merges, LONGEST, pattern)


# --- equal to tiktoken --------------------------------------------------------------------------------------------


def check(name, text):
    ids = tokenizer(name).encode_ordinary(text)
    assert ids == peer(name).encode_ordinary(text), text
    assert tokenizer(name).decode(ids) == replace_surrogates(text)


@pytest.mark.parametrize("name", NAMES)
def test_ids_are_tiktokens_for_moby_dick(name):
    for start in range(0, len(MOBY_DICK), 200_000):
        check(name, MOBY_DICK[start : start + 200_000])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("code", LANGUAGES)
def test_ids_are_tiktokens_in_every_language(name, code):
    check(name, LANGUAGES[code].text)


@pytest.mark.parametrize("name", NAMES)
def test_ids_are_tiktokens_for_code(name):
    for path in Path(reference.__file__).parent.glob("*.py"):
        check(name, path.read_text())


@pytest.mark.parametrize("name", NAMES)
def test_ids_are_tiktokens_for_random_adversarial_texts(name):
    for text in random_texts(seed=6, number=3000):
        check(name, text)


@pytest.mark.parametrize("name", NAMES)
@given(text=adversarial_texts)
@settings(max_examples=80)
def test_ids_are_tiktokens_for_adversarial_text(name, text):
    check(name, text)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("seed", range(100, 105))
def test_ids_are_tiktokens_for_a_million_adversarial_texts(name, seed):
    for text in random_texts(seed, number=50_000):
        check(name, text)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("unit", ["a", " ", "\n", "ab", "1", "'", "é", "あ", "🌍", "\u0301", " a", "\r\n"])
def test_ids_are_tiktokens_for_runs(name, unit):
    for length in [1, 2, 3, 31, 32, 33, 1000]:
        check(name, unit * length)


@pytest.mark.parametrize("pattern", [None, r"\w+|\W+", r"(\S+|\s)"])
def test_ids_are_tiktokens_with_any_pattern(pattern):
    ours = Tokenizer(*train_bpe([MOBY_DICK[:100_000]], 1000, pattern=pattern), pattern=pattern)
    theirs = ours.to_tiktoken()
    for text in [MOBY_DICK[100_000:105_000], *random_texts(seed=7, number=500)]:
        assert ours.encode(text) == theirs.encode(text), text


def test_it_is_the_reference_with_its_own_vocabulary():
    ours = tokenizer("trained here")
    for text in [MOBY_DICK[300_000:310_000], *random_texts(seed=8, number=300)]:
        expected = reference.encode(
            text, reference.mergeable_ranks(ours.vocab, ours.merges), ours.special_tokens, ours.pattern
        )
        assert ours.encode(text, allowed_special="all") == expected
        assert ours.decode(expected) == reference.decode(expected, ours.vocab)


def test_ids_that_do_not_ascend_with_merges():
    """The order of merges ranks, not the ids: a vocabulary may number its tokens as it likes."""
    vocab, merges = train_bpe([MOBY_DICK[:100_000]], 600)
    numbers = random.Random(0).sample(range(10_000), len(vocab))
    ours = Tokenizer({numbers[i]: token for i, token in vocab.items()}, merges)
    expected = Tokenizer(vocab, merges).encode(MOBY_DICK[:200_000])
    assert ours.encode(MOBY_DICK[:200_000]) == [numbers[i] for i in expected]
    assert ours.decode(ours.encode(MOBY_DICK)) == MOBY_DICK


def test_the_lecture_example():
    ids = tokenizer("gpt2").encode("Hello, 🌍! 你好!")
    assert len(ids) == 12
    assert tokenizer("gpt2").encode("Hello, world!") == [15496, 11, 995, 0]


# --- special tokens -----------------------------------------------------------------------------------------------


ALLOWED = [set(), {END}, "all", [END], frozenset({END}), {"<|fim|>"}]
DISALLOWED = ["all", (), {END}, {"<|fim|>"}, {"ordinary"}]


@pytest.mark.parametrize("allowed", ALLOWED)
@pytest.mark.parametrize("disallowed", DISALLOWED)
@pytest.mark.parametrize(
    "text", ["plain", f"one{END}two", f"{END}{END}", "<|fim|>", "an ordinary text", f"<|fim|>{END}"]
)
def test_what_is_allowed_and_refused_is_tiktokens(allowed, disallowed, text):
    special_tokens = {END: 50256, "<|fim|>": 50300}
    ours = Tokenizer(tokenizer("gpt2").vocab, tokenizer("gpt2").merges, special_tokens)
    theirs = make_encoding(ranks("gpt2"), GPT2_PATTERN, special_tokens)
    policy = {"allowed_special": allowed if allowed == "all" else set(allowed), "disallowed_special": disallowed}
    try:
        expected = theirs.encode(text, **policy)
    except ValueError:
        with pytest.raises(ValueError, match=r"holds the special token '.*allowed_special=.*disallowed_special=\(\)"):
            ours.encode(text, allowed_special=allowed, disallowed_special=disallowed)
        with pytest.raises(ValueError, match="holds the special token"):
            list(ours.encode_iterable([text], allowed_special=allowed, disallowed_special=disallowed))
    else:
        assert ours.encode(text, allowed_special=allowed, disallowed_special=disallowed) == expected


def test_the_longest_special_token_wins():
    ours = with_special_tokens()
    ids = ours.encode("<|a|><|b|><|a|>aaaab", allowed_special="all")
    names = [ours.decode([i]) for i in ids]
    assert names == ["<|a|><|b|>", "<|a|>", "aaa", "ab"]
    assert set(ids) <= set(ours.special_tokens.values())


def test_special_tokens_get_the_ids_that_the_vocabulary_has_or_new_ones():
    vocab, merges = train_bpe(["abc"], 258, ["<s>"])
    ours = Tokenizer(vocab, merges, ["<t>", "<s>", "bc"])
    assert ours.special_tokens == {"<t>": 258, "<s>": 257, "bc": 259}
    assert vocab[256] == b"bc"  # an ordinary token with the same bytes stays one
    assert ours.encode("bc", allowed_special="all") == [259]
    assert ours.encode("bc", disallowed_special=()) == [256]


@given(text=adversarial_texts)
@settings(max_examples=80)
def test_special_tokens_in_adversarial_text_are_the_references(text):
    ours = with_special_tokens()
    text = text + "<|a|>" + text[::-1]
    expected = reference.encode(text, reference.mergeable_ranks(ours.vocab, ours.merges), ours.special_tokens)
    assert ours.encode(text, allowed_special="all") == expected


# --- streaming ----------------------------------------------------------------------------------------------------


def cut_at_random(text, rng):
    bounds = sorted([0, len(text), *(rng.randrange(len(text) + 1) for _ in range(rng.randrange(8)))])
    return [text[start:stop] for start, stop in pairwise(bounds)]


@given(text=adversarial_texts, seed=st.integers(0, 10**6))
@settings(max_examples=200)
def test_a_stream_gives_the_ids_of_the_whole_however_it_is_cut(text, seed):
    rng = random.Random(seed)
    for _ in range(3):
        at, token = rng.randrange(len(text) + 1), rng.choice(LONGEST)
        text = text[:at] + token + text[at:]
    ours = with_special_tokens(rng.choice([*PATTERNS.values(), None, r"\w+|\W"]))
    allowed = set(rng.sample(LONGEST, 3))
    policy = {"allowed_special": allowed, "disallowed_special": ()}
    for pieces in [text, [text], cut_at_random(text, rng)]:
        assert list(ours.encode_iterable(pieces, **policy)) == ours.encode(text, **policy)


def test_a_long_stream_gives_the_ids_of_the_whole():
    text = MOBY_DICK[:300_000] + END + "".join(language.text for language in LANGUAGES.values())
    ours = tokenizer("gpt2")
    expected = ours.encode(text, allowed_special={END})
    for size in [10, 1000, 10**6]:
        pieces = (text[i : i + size] for i in range(0, len(text), size))
        assert list(ours.encode_iterable(pieces, allowed_special={END})) == expected
    assert list(ours.encode_iterable(text.splitlines(keepends=True), allowed_special={END})) == expected


def test_a_disallowed_special_token_over_two_pieces_is_refused():
    ids = tokenizer("gpt2").encode_iterable(["<|endof", "text|>"])
    with pytest.raises(ValueError, match="special token"):
        list(ids)


def test_a_stream_is_lazy():
    def pieces():
        yield "word " * 100_000
        raise AssertionError("asked for more than was needed")

    ids = tokenizer("gpt2").encode_iterable(pieces())
    assert [next(ids) for _ in range(1000)] == tokenizer("gpt2").encode("word " * 1000 + " ")[:1000]


@pytest.mark.parametrize(("megabytes", "limit"), [(40, 110), pytest.param(200, 200, marks=pytest.mark.slow)])
def test_streaming_a_file_keeps_little_of_it(tmp_path, megabytes, limit):
    rng = random.Random(0)
    words = [token.decode() for token in tokenizer("gpt2").vocab.values() if len(token) > 11 and token.isalpha()]
    path = tmp_path / "text.txt"
    with path.open("w") as file:
        for _ in range(megabytes):  # words that come again, and some that do not
            file.write(" ".join([*rng.choices(words, k=75_000), *(str(rng.random()) for _ in range(500)), "\n"]))
    assert path.stat().st_size > megabytes * 10**6
    code = """
import re, sys
from lmlib.bpe import Tokenizer
tokenizer = Tokenizer.from_pretrained("gpt2")
with open(sys.argv[1]) as file:
    print(sum(1 for _ in tokenizer.encode_iterable(file)))
with open("/proc/self/status") as file:  # getrusage would count the memory of this test too
    print(re.search(r"VmHWM:\\s*(\\d+) kB", file.read())[1])
"""
    output = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=True).stdout
    num_tokens, peak_kib = map(int, output.split())
    assert num_tokens > 75_000 * megabytes
    assert peak_kib * 1024 < limit * 10**6, f"{peak_kib * 1024:,} bytes"


# --- batches and arrays -------------------------------------------------------------------------------------------


def test_batches():
    texts = ["Hello", "", END, MOBY_DICK[:1000]]
    ours = tokenizer("gpt2")
    expected = [ours.encode(text, allowed_special="all") for text in texts]
    assert ours.encode_batch(texts, allowed_special="all") == expected
    assert ours.encode_batch(iter(texts), allowed_special="all") == expected
    arrays = ours.encode_batch_to_arrays(texts, dtype=np.uint32, allowed_special="all")
    assert [array.tolist() for array in arrays] == expected
    assert {array.dtype for array in arrays} == {np.dtype(np.uint32)}
    with pytest.raises(ValueError, match="holds the special token"):
        ours.encode_batch(texts)
    with pytest.raises(TypeError, match="list of texts"):
        ours.encode_batch("one text")


@pytest.mark.parametrize("dtype", [np.uint16, "uint16", np.int32, np.int64, ">u2"])
def test_arrays(dtype):
    array = tokenizer("gpt2").encode_to_array(MOBY_DICK[:1000], dtype)
    assert array.dtype == np.dtype(dtype)
    assert array.tolist() == tokenizer("gpt2").encode(MOBY_DICK[:1000])


@pytest.mark.parametrize(
    ("name", "dtype", "advice"), [("gpt2", np.int16, "uint16"), ("cl100k_base", np.uint16, "uint32")]
)
def test_a_dtype_that_ends_too_soon_is_refused(name, dtype, advice):
    """Whatever the text: else it would depend on the data when training fails."""
    with pytest.raises(ValueError, match=rf"ends at \d+: pass dtype={advice}"):
        tokenizer(name).encode_to_array("a", dtype)
    with pytest.raises(ValueError, match="pass dtype="):
        tokenizer(name).encode_batch_to_arrays([], dtype)


@pytest.mark.parametrize("dtype", [np.float32, bool, object])
def test_a_dtype_that_is_no_integer_is_refused(dtype):
    with pytest.raises(ValueError, match="Ids are integers"):
        tokenizer("gpt2").encode_to_array("a", dtype)


# --- decoding -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_any_ids_decode_as_tiktokens_do(name):
    rng = random.Random(0)
    for _ in range(300):
        ids = rng.choices(range(len(peer(name)._mergeable_ranks)), k=rng.randrange(12))
        assert tokenizer(name).decode(ids) == peer(name).decode(ids)
        assert tokenizer(name).decode_bytes(ids) == peer(name).decode_bytes(ids)
        assert tokenizer(name).decode_tokens_bytes(ids) == peer(name).decode_tokens_bytes(ids)


def test_ids_may_be_an_array():
    ours = tokenizer("gpt2")
    assert ours.decode(ours.encode_to_array("Hello, 🌍!")) == "Hello, 🌍!"


@pytest.mark.parametrize("i", [-1, 50257, 10**9])
def test_an_unknown_id_is_named(i):
    for method in ["decode", "decode_bytes", "decode_tokens_bytes", "decode_with_offsets"]:
        with pytest.raises(KeyError, match=str(i)):
            getattr(tokenizer("gpt2"), method)([0, i])


@given(text=adversarial_texts)
@settings(max_examples=80)
def test_offsets_are_tiktokens_for_text(text):
    for name in ["gpt2", "trained here"]:
        ids = tokenizer(name).encode_ordinary(text)
        assert tokenizer(name).decode_with_offsets(ids) == peer(name).decode_with_offsets(ids)


@given(ids=st.lists(st.integers(0, 300), max_size=20))
def test_offsets_of_what_is_not_utf8(ids):
    """A token starts in the character that decoding up to its first byte ends with, or in the next one."""
    ours = tokenizer("gpt2")
    text, offsets = ours.decode_with_offsets(ids)
    assert text == ours.decode(ids)
    assert offsets == sorted(offsets)
    for k, offset in enumerate(offsets):
        assert 0 <= offset < len(text)
        assert text[:offset] == ours.decode(ids[:k])[:offset]


# --- making, saving, sending --------------------------------------------------------------------------------------


def test_properties():
    ours = tokenizer("gpt2")
    assert ours.vocab_size == 50257
    assert len(ours.vocab) == 50257
    assert len(ours.merges) == 50_000
    assert ours.special_tokens == {END: 50256}
    assert ours.pattern == GPT2_PATTERN
    assert repr(ours) == "Tokenizer(vocab_size=50257, special_tokens=1)"


LARGE = pytest.param("o200k_base", marks=pytest.mark.slow)


@pytest.mark.parametrize("name", ["gpt2", "cl100k_base", LARGE, "trained here"])
def test_saving_and_loading(name, tmp_path):
    ours = tokenizer(name)
    ours.save(tmp_path / "tokenizer.json")
    for loaded in [
        Tokenizer.from_pretrained(tmp_path / "tokenizer.json"),
        Tokenizer.from_pretrained(str(tmp_path)),
        pickle.loads(pickle.dumps(ours)),
    ]:
        assert loaded.spec == ours.spec
        assert loaded.encode_ordinary(MOBY_DICK[:10_000]) == ours.encode_ordinary(MOBY_DICK[:10_000])


@pytest.mark.parametrize("name", ["gpt2", "cl100k_base", LARGE, "trained here"])
def test_real_peers_can_be_built(name):
    ours = tokenizer(name)
    text = MOBY_DICK[:10_000] + END
    ids = ours.encode_ordinary(text)
    assert ours.to_tiktoken().encode_ordinary(text) == ids
    assert ours.to_hugging_face().encode(text[: -len(END)]).ids == ours.encode(text[: -len(END)])


def test_peers_recognise_special_tokens():
    ours = with_special_tokens()
    text = "one<|a|>two"
    ids = ours.encode(text, allowed_special="all")
    assert ours.to_tiktoken().encode(text, allowed_special="all") == ids
    assert ours.to_hugging_face().encode(text).ids == ids
    assert isinstance(ours.to_tiktoken("mine"), tiktoken.Encoding)
    assert ours.to_tiktoken("mine").name == "mine"


def test_a_missing_tokenizer_is_named():
    with pytest.raises(FileNotFoundError, match=r"no tokenizer 'gpt3': pass 'gpt2', or .* Nothing is downloaded"):
        Tokenizer.from_pretrained("gpt3")


def test_a_failed_save_leaves_what_was_there(tmp_path, monkeypatch):
    path = tmp_path / "tokenizer.json"
    path.write_text("old")

    def full(file_descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        tokenizer("trained here").save(path)
    assert [(p.name, p.read_text()) for p in tmp_path.iterdir()] == [("tokenizer.json", "old")]


@pytest.mark.parametrize("text", [None, b"bytes", 5, ["a"]])
def test_what_is_no_text_is_refused(text):
    ours = tokenizer("gpt2")
    for call in [ours.encode, ours.encode_ordinary, lambda text: list(ours.encode_iterable([text]))]:
        with pytest.raises(TypeError, match="A text is a str, not"):
            call(text)


def test_policies_are_checked():
    for method in ["encode", "encode_to_array", "encode_iterable"]:
        with pytest.raises(ValueError, match=r"'<\|x\|>' is allowed, but it is no special token here"):
            getattr(tokenizer("gpt2"), method)("a", allowed_special={"<|x|>"})
        with pytest.raises(TypeError, match="is one name: pass a set"):
            getattr(tokenizer("gpt2"), method)("a", allowed_special=END)


def test_a_million_letters_take_seconds():
    """A way that looks at all pairs for each merge would take hours."""
    text = "".join(random.Random(0).choices("etaoinshrdlu", k=1_000_000))
    start = time.process_time()
    assert tokenizer("gpt2").decode(tokenizer("gpt2").encode(text)) == text
    assert time.process_time() - start < 120
