"""lmlib.bpe.fast.encoder, and how Tokenizer uses it: tiktoken's ids, whatever is known, new, long or repeated."""

import random
import threading
import time
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lmlib.bpe import Tokenizer, reference, text_encoder, tokenizer, train_bpe
from lmlib.bpe.encode import WordEncoder
from lmlib.bpe.fast import encoder as module
from lmlib.bpe.fast import word_merges
from lmlib.bpe.fast.encoder import BlockEncoder
from lmlib.bpe.surrogates import replace_surrogates
from lmlib.corpora import load_corpus
from tests.bpe_peers import PATTERNS, adversarial_texts, encoding, random_texts, ranks

MOBY_DICK = load_corpus("moby_dick")
LANGUAGES = [language.text for language in load_corpus("udhr").values()]
END = "<|endoftext|>"
each_name = pytest.mark.parametrize("name", PATTERNS)


def encoder_of(known, pattern=PATTERNS["gpt2"]):
    """An encoder with tokens and their ids, which ascend."""
    return BlockEncoder(known, pattern, WordEncoder(SimpleNamespace(ids=known, ids_ascend=True)))


def make_encoder(name):
    known = ranks(name)
    return encoder_of({token: known[token] for token in sorted(known, key=known.get)}, PATTERNS[name])


@pytest.fixture(scope="module")
def encoders():
    return {name: make_encoder(name) for name in PATTERNS}


def split(ids, places):
    bounds = [-1, *places.tolist(), len(ids)]
    return [ids[start + 1 : end].tolist() for start, end in pairwise(bounds)]


def check(encoder, name, texts):
    texts = [replace_surrogates(text) for text in texts]
    found = split(*encoder.encode([text.encode() for text in texts]))
    for text, ids in zip(texts, found, strict=True):
        assert ids == encoding(name).encode_ordinary(text), text


@each_name
def test_ids_are_tiktokens(name, encoders):
    """New words, then known ones; random ones, real ones, and both mixed up."""
    texts = [*random_texts(seed=1, number=1000), MOBY_DICK[:100_000], "", *LANGUAGES[::4]]
    check(encoders[name], name, texts)
    check(encoders[name], name, texts[::-1])


@each_name
@given(texts=st.lists(adversarial_texts, min_size=1, max_size=3))
@settings(max_examples=40)
def test_ids_are_tiktokens_for_adversarial_texts(name, encoders, texts):
    check(encoders[name], name, texts)


@pytest.mark.slow
@each_name
@pytest.mark.parametrize("seed", range(100, 107))
def test_ids_are_tiktokens_for_a_million_texts(name, seed, encoders):
    for part in range(10):
        check(encoders[name], name, random_texts(seed * 10 + part, number=5000))


@each_name
def test_words_of_every_size(name, encoders):
    """Around the sizes of keys, and those up to which words are merged together."""
    rng = random.Random(0)
    sizes = [*range(1, 70), 127, 128, 129, 511, 512, 513, 700]
    words = ["".join(rng.choices("etaoinshrdlu", k=size)) for size in sizes for _ in range(10)]
    check(encoders[name], name, words)
    check(encoders[name], name, ["é" * (size // 2) + "x" * (size % 2) for size in sizes])
    check(encoders[name], name, ["=" * size for size in sizes])


def all_together(patch):
    patch.setattr(module, "_FEW", 0)
    patch.setattr(word_merges, "_FEW", 0)


@pytest.mark.parametrize("few", [0, 10, 10**9])
def test_words_together_and_one_by_one(few, monkeypatch):
    all_together(monkeypatch)
    monkeypatch.setattr(word_merges, "_FEW", few)
    monkeypatch.setattr(module, "_FEW", few)
    encoder = make_encoder("gpt2")
    check(encoder, "gpt2", [*random_texts(seed=2, number=300), MOBY_DICK[:50_000]])


def test_nothing(encoders):
    assert split(*encoders["gpt2"].encode([b""])) == [[]]
    assert split(*encoders["gpt2"].encode([b"", b"", b"a", b""])) == [[], [], [64], []]


@pytest.mark.parametrize("size", [1, 5, 6, 7, 100])
def test_documents_in_blocks_of_every_size(size, monkeypatch):
    """Words are known and new in each of them, and documents are empty, short, or longer than a block."""
    monkeypatch.setattr(module, "_BLOCK", size)
    texts = ["", "one", "two one", "three two one" * 3, "", "", "four one three", ""]
    encoder = make_encoder("gpt2")
    for _ in range(2):
        check(encoder, "gpt2", texts)
        check(encoder, "gpt2", [""])


def small_vocabulary(text, num_merges):
    vocab, merges = train_bpe([text], 256 + num_merges)
    return {token: i for i, token in vocab.items()}, merges


@given(st.text("ab c", min_size=2, max_size=60), st.lists(st.text("ab c", max_size=30), min_size=1, max_size=9))
@settings(max_examples=100)
def test_ids_are_the_references_with_a_vocabulary_of_few_letters(text, documents):
    """Here the same token comes of several pairs, and words have the same lowest rank at several places."""
    known, _ = small_vocabulary(text, 20)
    with pytest.MonkeyPatch.context() as patch:
        all_together(patch)
        encoder = encoder_of(known)
        found = split(*encoder.encode([document.encode() for document in documents]))
    assert found == [reference.encode(document, known) for document in documents]


def test_tokens_that_no_text_holds():
    """Byte 0xFF, also in a token, which in a key would look like the end of a word."""
    known = {bytes([i]): i for i in range(256)} | {b"a\xff": 256, b"ab": 257, b"\xff\xff": 258, b"b\xffa": 259}
    encoder = encoder_of(known)
    assert split(*encoder.encode([b"a", b"ab", b"b", b"ba"])) == [[97], [257], [98], [98, 97]]


def test_a_token_that_merging_does_not_make_is_a_word_but_no_part_of_one(monkeypatch):
    """No token has ``cd`` or ``da`` side by side, so these words are cut there."""
    all_together(monkeypatch)
    known = {bytes([i]): i for i in range(256)} | {b"abc": 256, b"ef": 257}
    words = ["abc", "abcd", "dabc", "dabcdabcef", "ef", "abcef", "abc"]
    encoder = encoder_of(known)
    for _ in range(2):
        found = split(*encoder.encode([word.encode() for word in words]))
        assert found == [reference.encode_pretoken(word.encode(), known) for word in words]


def test_words_beyond_latin_are_made_of_few_parts():
    """Else they would be slow, and no other test would notice."""
    encoder = make_encoder("gpt2")
    known = encoder._words.table.next_number
    check(encoder, "gpt2", LANGUAGES)
    assert 15_000 < encoder._words.table.next_number - known < 16_000
    assert encoder._parts.table.next_number < 3000


def test_memory_is_bounded(monkeypatch):
    monkeypatch.setattr(module, "_MOST_BYTES", 2**22)
    encoder = make_encoder("gpt2")
    least = encoder._nbytes()  # the tokens
    rng = random.Random(0)
    sizes = []
    for _ in range(24):
        block = " ".join(str(rng.random()) * rng.choice([1, 1, 1, 5]) for _ in range(4000))
        check(encoder, "gpt2", [block])
        sizes.append(encoder._nbytes())
    assert least + 2**22 < max(sizes) < least + 2**23
    assert any(later < earlier for earlier, later in pairwise(sizes))


def test_memory_is_counted_in_long_words_too(monkeypatch):
    encoder = make_encoder("gpt2")
    before = encoder._nbytes()
    encoder.encode([b"x" * 100_000])
    assert encoder._nbytes() > before + 100_000


@pytest.mark.parametrize("function", ["merge_words", "_joined", "_in_order"])
def test_words_that_an_interrupt_left_without_ids_are_learned_again(function, monkeypatch):
    text = " ".join(LANGUAGES[::8])
    encoder = make_encoder("gpt2")

    def interrupt(*arguments):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(module, function, interrupt)
        with pytest.raises(KeyboardInterrupt):
            encoder.encode([text.encode()])
    check(encoder, "gpt2", [text])
    known = encoder._words.table.next_number
    check(encoder, "gpt2", [text])
    assert encoder._words.table.next_number == known


def test_several_threads_may_use_it(encoders, monkeypatch):
    encoder = make_encoder("gpt2")
    texts = [MOBY_DICK[i : i + 100_000] for i in range(0, 800_000, 100_000)]
    errors = []

    def work(text):
        try:
            check(encoder, "gpt2", [text])
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=[text]) for text in texts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors


# --- as Tokenizer uses it -----------------------------------------------------------------------------------------


@pytest.fixture
def always_in_blocks(monkeypatch):
    monkeypatch.setattr(text_encoder, "_LARGE", 0)
    monkeypatch.setattr(text_encoder, "_BLOCK", 3000)
    monkeypatch.setattr(text_encoder, "_PART", 1000)
    monkeypatch.setattr(module, "_BLOCK", 800)


@pytest.fixture(scope="module")
def gpt2():
    return Tokenizer.from_pretrained("gpt2")


@pytest.fixture(scope="module")
def odd():
    """A vocabulary with special tokens that overlap, and ids in no order."""
    vocab, merges = train_bpe([MOBY_DICK[:50_000]], 600)
    numbers = random.Random(0).sample(range(2**31, 2**32), len(vocab))
    special = {name: 1000 + i for i, name in enumerate(["<|a|>", "<|a|><|b|>", "ab", "aa", "aaa", " the", "'s"])}
    return Tokenizer({numbers[i]: token for i, token in vocab.items()} | special_vocab(special), merges, special)


def special_vocab(special):
    return {i: name.encode() for name, i in special.items()}


def test_batches_are_the_texts_one_by_one(gpt2, always_in_blocks):
    texts = [*random_texts(seed=3, number=400), "", "", MOBY_DICK[:20_000], "\ud800", *LANGUAGES[:5], ""]
    expected = [encoding("gpt2").encode_ordinary(text) for text in texts]
    assert gpt2.encode_batch(iter(texts), disallowed_special=()) == expected
    arrays = gpt2.encode_batch_to_arrays(texts, np.uint16, disallowed_special=())
    assert [array.tolist() for array in arrays] == expected
    assert {array.dtype for array in arrays} == {np.dtype(np.uint16)}
    assert [gpt2.encode(text, disallowed_special=()) for text in texts] == expected
    assert gpt2.encode_batch([]) == []
    assert all(type(i) is int for i in gpt2.encode("Hello, world! Hello?"))


def test_special_tokens_between_and_around_texts(odd, always_in_blocks):
    texts = ["<|a|>", "<|a|>x<|a|><|b|>", "", "aaaab the ab's", "<|a|><|a|>", MOBY_DICK[50_000:60_000], "x<|b|>"]
    names = dict(odd.special_tokens)
    of_id = {token: i for i, token in odd.vocab.items() if i not in names.values()}
    rank = reference.mergeable_ranks(*train_bpe([MOBY_DICK[:50_000]], 600))
    for allowed in [set(names), {"<|a|>", "'s"}, set()]:
        found = odd.encode_batch(texts, allowed_special=allowed, disallowed_special=())
        for text, ids in zip(texts, found, strict=True):
            expected = reference.encode(text, rank, {name: -1 - names[name] for name in allowed})
            tokens = list(rank)
            assert ids == [-1 - i if i < 0 else of_id[tokens[i]] for i in expected], text


@given(text=adversarial_texts, seed=st.integers(0, 10**6))
@settings(max_examples=60)
def test_both_ways_are_the_same(odd, text, seed):
    rng = random.Random(seed)
    for _ in range(3):
        at = rng.randrange(len(text) + 1)
        text = text[:at] + rng.choice([*odd.special_tokens]) + text[at:]
    policy = {"allowed_special": set(rng.sample([*odd.special_tokens], 3)), "disallowed_special": ()}
    by_pieces = Tokenizer.from_spec(odd.spec).encode(text, **policy)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_encoder, "_LARGE", 0)
        assert odd.encode(text, **policy) == by_pieces
        assert list(odd.encode_iterable([text[:5], text[5:]], **policy)) == by_pieces


def test_what_is_disallowed_is_refused_wherever_it_is(gpt2, always_in_blocks):
    for texts in [["a", END], [MOBY_DICK + END], ["x" * 5000, f"{END}a", "b"]]:
        with pytest.raises(ValueError, match="holds the special token"):
            gpt2.encode_batch(texts)
        with pytest.raises(ValueError, match="holds the special token"):
            gpt2.encode_batch_to_arrays(texts)
    with pytest.raises(TypeError, match="A text is a str, not bytes"):
        gpt2.encode_batch(["a", b"b"])


def test_large_texts_go_in_blocks_and_small_ones_by_pieces(monkeypatch):
    blocks = []
    encode = BlockEncoder.encode
    monkeypatch.setattr(
        BlockEncoder, "encode", lambda self, documents: blocks.append(len(documents)) or encode(self, documents)
    )
    ours = Tokenizer.from_pretrained("gpt2")
    half = MOBY_DICK[:600_000]
    ours.encode("a" * 1000)
    ours.encode_batch([MOBY_DICK[:100]] * 10)
    assert not blocks
    assert ours.encode(half) == encoding("gpt2").encode_ordinary(half)
    assert blocks == [1]
    ours.encode("a" * 1000)
    assert blocks == [1]
    assert ours.encode_to_array(MOBY_DICK * 2).tolist() == encoding("gpt2").encode_ordinary(MOBY_DICK * 2)
    assert blocks == [1, 4, 1]  # that many parts, four of them at once
    Tokenizer(ours.vocab, ours.merges, pattern=r"\w+|\W").encode(MOBY_DICK[:300_000] * 3)
    assert blocks == [1, 4, 1]


def test_lists_hold_integers_that_exist_once_many_were_made(gpt2, odd):
    expected = encoding("gpt2").encode_ordinary(MOBY_DICK[:300_000])
    ours = Tokenizer.from_spec(gpt2.spec)
    first, second = ours.encode_batch([MOBY_DICK[:300_000]] * 2)
    assert first == second == ours.encode(MOBY_DICK[:300_000]) == expected
    assert {type(i) for i in second} == {int}
    assert all(one is other for one, other in zip(first, second, strict=True))
    assert ours.encode_batch(["a b"]) == [[64, 275]]
    [again, _] = odd.encode_batch([MOBY_DICK] * 2, disallowed_special=())
    assert again == odd.encode_to_array(MOBY_DICK, np.uint32, disallowed_special=()).tolist()
    assert odd._as_list is tokenizer._as_list  # a table of its ids would be a gigabyte


@pytest.mark.parametrize("text", ["a" * 500_000, "0" * 200_000, " " * 500_000, "中" * 100_000])
def test_text_without_a_place_to_cut_takes_seconds(text, gpt2):
    start = time.process_time()
    ids = gpt2.encode_to_array(text)
    assert time.process_time() - start < 60
    assert gpt2.decode(ids) == text
