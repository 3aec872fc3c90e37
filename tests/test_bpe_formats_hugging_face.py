"""lmlib.bpe.formats: a tokenizer goes to Hugging Face's tokenizer.json, and theirs come here, without a changed id."""

import base64
import json
import re
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from lmlib import bpe
from lmlib.bpe import reference
from lmlib.bpe.formats import (
    gpt2_byte_alphabet,
    gpt2_files,
    read_gpt2,
    read_tiktoken,
    read_tokenizer_json,
    to_hugging_face,
    to_tiktoken,
    tokenizer_json,
)
from lmlib.bpe.patterns import CL100K_PATTERN, GPT2_PATTERN, O200K_PATTERN, compile_pattern
from lmlib.bpe.surrogates import replace_surrogates
from lmlib.bpe.unicode_table import class_ranges
from tests.bpe_peers import ALPHABET, PATTERNS, adversarial_texts, random_texts, ranks
from tests.bpe_specs import (
    ALL_PATTERNS,
    LANGUAGES,
    MOBY_DICK,
    SPECIAL,
    check_text,
    every_split,
    hugging_face_ids,
    small,
    texts_with_special_tokens,
    tokenizer_file,
    written_as_gpt2,
)
from tests.make_unicode_table import EVERY_CHARACTER

# --- Hugging Face: written here, opened there -------------------------------------------------------------------


@pytest.mark.parametrize("name", ALL_PATTERNS)
def test_hugging_face_gives_our_ids(name, tmp_path):
    spec = small(ALL_PATTERNS[name])
    path = tokenizer_file(tmp_path, tokenizer_json(spec))
    theirs = Tokenizer.from_file(str(path))
    for text in texts_with_special_tokens(2, 400):
        ids = check_text(spec, theirs, text)
        assert theirs.decode(ids, skip_special_tokens=False) == reference.decode(ids, spec.vocab)
    for name, i in SPECIAL.items():
        assert hugging_face_ids(theirs, f"a{name}b")[1:-1] == [i]
    assert read_tokenizer_json(path) == spec


@pytest.mark.parametrize("name", ALL_PATTERNS)
@given(text=adversarial_texts)
@settings(max_examples=80)
def test_hugging_face_gives_our_ids_for_adversarial_text(name, text):
    check_text(small(ALL_PATTERNS[name]), opened(name), text)


@cache
def opened(name):
    return to_hugging_face(small(ALL_PATTERNS[name]))


@pytest.mark.parametrize("name", PATTERNS)
def test_hugging_face_gives_our_ids_for_real_text(name):
    for text in [MOBY_DICK[:20_000], *(language.text[:1000] for language in LANGUAGES.values())]:
        check_text(small(PATTERNS[name]), opened(name), text)


@pytest.mark.parametrize("name", PATTERNS)
def test_hugging_face_gives_our_ids_around_every_troublemaker(name):
    for piece in ALPHABET:
        check_text(small(PATTERNS[name]), opened(name), f"a{piece}b {piece} {piece}{piece}\n{piece}'{piece}s")


CLASSES = {r"\p{L}": "L", r"\p{N}": "N", r"\p{M}": "M", r"\s": "White_Space"} | {
    rf"\p{{{name}}}": name for name in ["Lu", "Lt", "Ll", "Lm", "Lo"]
}


@pytest.mark.parametrize("escape", CLASSES)
def test_hugging_faces_classes_are_ours(escape):
    """Where a class starts and ends; every character is a slow test."""
    edges = sorted({p for pair in class_ranges(CLASSES[escape]) for edge in pair for p in (edge - 1, edge, edge + 1)})
    characters = "".join(chr(point) for point in edges if not 0xD800 <= point < 0xE000)
    check_class(escape, characters)


@pytest.mark.slow
@pytest.mark.parametrize("escape", CLASSES)
def test_hugging_faces_classes_are_ours_for_every_character(escape):
    check_class(escape, EVERY_CHARACTER)


def check_class(escape, characters):
    splitter = pre_tokenizers.Split(Regex(escape), "removed", invert=True)
    theirs = {piece for piece, _ in splitter.pre_tokenize_str(characters)}
    assert theirs == set(compile_pattern(escape).findall(characters))


@pytest.mark.slow
@pytest.mark.parametrize("name", PATTERNS)
def test_published_vocabularies_through_every_format(name, tmp_path):
    last = max(ranks(name).values())
    special_tokens = {"<|endoftext|>": last + 1, "<|endofprompt|>": last + 19}
    path = tmp_path / "ranks.tiktoken"
    path.write_bytes(b"".join(b"%b %d\n" % (base64.b64encode(token), i) for token, i in ranks(name).items()))
    spec = read_tiktoken(path, PATTERNS[name], special_tokens)
    assert spec.ids == ranks(name)
    assert read_tokenizer_json(tokenizer_file(tmp_path, tokenizer_json(spec))) == spec
    assert read_gpt2(*written_as_gpt2(tmp_path, spec), special_tokens, PATTERNS[name]) == spec
    theirs, tiktokens = to_hugging_face(spec), to_tiktoken(spec)
    for text in texts_with_special_tokens(3, 10_000, special_tokens):
        assert check_text(spec, theirs, text) == tiktokens.encode(text, allowed_special="all")
    assert check_text(spec, theirs, MOBY_DICK) == tiktokens.encode(MOBY_DICK)


OWN_PATTERNS = {
    "words and digits only": r"\p{L}+|\d",
    "escapes and sets": r"[^\r\n\s\-'']+[\x41-\x5a]?|\u00e9++|\s",
    "looking around": r"(?<!a)b+|(?<=b)a(?=b)|[ac]{2,3}?|\.\.",
    "a set that starts with a bracket": r"[]x-]+|[^]]",
}


@pytest.mark.parametrize("pattern", OWN_PATTERNS.values(), ids=OWN_PATTERNS)
def test_a_pattern_of_your_own_leaves_the_same_text_out(pattern, tmp_path):
    spec = small(pattern)
    theirs = to_hugging_face(spec)
    for text in [*texts_with_special_tokens(4, 200), "ab ba\n bab ]-x aacccc..", MOBY_DICK[:2000]]:
        check_text(spec, theirs, text)
    assert read_tokenizer_json(tokenizer_file(tmp_path, tokenizer_json(spec))) == spec


@pytest.mark.parametrize("pattern", [r"(?=a)|[\s\S]", r"(?<=a)|[\s\S]", r"x*|[\s\S]", r"a?", r"(?<=q)|[\s\S]"])
def test_a_pattern_that_matches_nothing_is_refused(pattern):
    for refuse in [tokenizer_json, to_tiktoken, to_hugging_face]:
        with pytest.raises(ValueError, match="matches nothing at all"):
            refuse(small(pattern))


@pytest.mark.parametrize(
    "pattern", [r"[a\-z]+|[^a\-z]", r"[-\d]|\D", r"[\d-]|\D", r"[\p{L}\d_-]+|.|\n", r"\x41|[^\x41]"]
)
def test_what_both_read_alike_is_written(pattern):
    ours, theirs = small(pattern), to_hugging_face(small(pattern))
    for text in ["a-z b9-_é A\n", "0-9 --a"]:
        assert theirs.encode(text).ids == bpe.Tokenizer.from_spec(ours).encode(text, allowed_special="all")


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        (r"\p{N}{1,3}+|\D", "{1,3}+"),
        (r".+$|\n", "$"),
        (r"^a|[\s\S]", "^"),
        (r"\w+|\W", r"\w"),
        (r"[\w]+", r"[\w]"),
        (r"[[:alpha:]]", "[[:alpha:]"),
        (r"a{2}?|.", "{2}?"),
        (r"\pL|.", r"\p"),
        (r"\ba|.", r"\b"),
        (r"(a)\1|.", r"\1"),
        (r"(?s).", "(?s"),
        (r"(?i:straße)", "(?i"),
        (r"(?P<x>.)", "(?P"),
        (r"\h+|\R", r"\h"),
        (r"a{,}b|[^a]", "{,}"),
        (r"\xe9|.", r"\x"),
        (r"[\xe9a]|.", r"[\xe9a]"),
        (r"[a-\d]|.", r"[a-\d]"),
        (r"[\d-z]|.", r"[\d-z]"),
        (r"[\p{L}-z]|.", r"[\p{L}-z]"),
        (r"\p{Script=Han}|.", r"\p"),
        (r"\p{gc=L}|.", r"\p"),
        (r"\p{Alphabetic}|.", r"\p"),
    ],
)
def test_what_hugging_face_would_read_otherwise_is_refused(pattern, found):
    content = json.loads(tokenizer_json(small()))
    content["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = pattern
    for refuse in [lambda: tokenizer_json(small(pattern)), lambda: read_content(content)]:
        with pytest.raises(ValueError, match=re.escape(f"holds {found!r} at position")):
            refuse()


@pytest.mark.parametrize("name", ["Ġ", "a", "the", "Ġt"])
def test_a_special_token_that_is_written_like_another_token_is_refused(name):
    spec = small(special_tokens=((name, 3000),))
    for write in [tokenizer_json, gpt2_files]:
        with pytest.raises(ValueError, match=f"Special token '{name}' is written like the token"):
            write(spec)
    assert to_tiktoken(spec).encode(name, allowed_special="all") == [3000]


# --- Hugging Face: written there, opened here -------------------------------------------------------------------


def read_content(content):
    with TemporaryDirectory() as folder:
        return read_tokenizer_json(tokenizer_file(Path(folder), content))


def byte_level(use_regex):
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=use_regex)


def isolated(pattern):
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"), byte_level(False)])


FIRST_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA_3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN = LLAMA_3.replace("{1,3}", "")

# How a file cuts, and the pattern that we read it as; the last leaves gaps, which Split keeps.
FOREIGN = {
    "GPT-2": (byte_level(True), GPT2_PATTERN),
    "nothing": (byte_level(False), None),
    "a sequence of one": (pre_tokenizers.Sequence([byte_level(True)]), GPT2_PATTERN),
    "GPT-2's first pattern": (isolated(FIRST_GPT2), GPT2_PATTERN),
    "cl100k's first pattern": (isolated(LLAMA_3), LLAMA_3),
    "digits one by one": (isolated(QWEN), QWEN),
    "o200k": (isolated(O200K_PATTERN), O200K_PATTERN),
    "cl100k": (isolated(CL100K_PATTERN.replace("{1,3}+", "{1,3}")), CL100K_PATTERN),
    "words": (isolated(r"\p{L}+"), r"(?:\p{L}+)|(?:(?!\p{L}+)[\s\S])+"),
}


def train_theirs(pre_tokenizer, special_tokens=("<|end|>", "<pad>"), vocab_size=600):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=list(special_tokens),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(MOBY_DICK[:60_000].splitlines(), trainer)
    return tokenizer


@pytest.mark.parametrize(("pre_tokenizer", "pattern"), FOREIGN.values(), ids=FOREIGN)
def test_what_hugging_face_trained_opens_here(pre_tokenizer, pattern, tmp_path):
    theirs = train_theirs(pre_tokenizer)
    theirs.add_tokens([AddedToken("later on"), "<é\n>"])
    theirs.post_processor = processors.TemplateProcessing(single="<pad> $A", special_tokens=[("<pad>", 1)])
    theirs.save(str(tmp_path / "tokenizer.json"))
    spec = read_tokenizer_json(tmp_path / "tokenizer.json")
    assert spec.pattern == pattern
    assert (spec.special_tokens["<|end|>"], spec.special_tokens["<pad>"]) == (0, 1)
    for text in texts_with_special_tokens(5, 200, spec.special_tokens):
        check_text(spec, theirs, text)
    # and back: what we write of it gives the same ids
    again = tokenizer_file(tmp_path, tokenizer_json(spec))
    assert read_tokenizer_json(again) == spec
    for text in texts_with_special_tokens(6, 50, spec.special_tokens):
        check_text(spec, Tokenizer.from_file(str(again)), text)


def test_patterns_known_to_cover_every_text_do():
    for pattern in [LLAMA_3, QWEN]:
        for text in random_texts(7, 1000):
            assert "".join(reference.pretokenize(text, pattern)) == replace_surrogates(text)


@pytest.mark.parametrize("of_lists", [False, True])
@pytest.mark.parametrize("use_regex", [{}, {"use_regex": True}])
def test_files_of_other_times(of_lists, use_regex):
    """Merges as text or as lists; use_regex not yet there; what only newer files have is missing."""
    content = json.loads(tokenizer_json(small()))
    merges = [merge.split(" ") for merge in content["model"]["merges"]]
    content["model"]["merges"] = merges if of_lists else [" ".join(pair) for pair in merges]
    content["pre_tokenizer"] = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True} | use_regex
    for field in ["ignore_merges", "byte_fallback"]:
        del content["model"][field]
    assert Tokenizer.from_str(json.dumps(content)).encode("<|end|>").ids == [3000]
    assert read_content(content) == small()


def test_a_file_that_was_converted_from_ranks_opens_here():
    """It lists every split, and looks whole pre-tokens up first."""
    content = json.loads(tokenizer_json(small(special_tokens=(("<|end|>", 3000),))))
    alphabet = gpt2_byte_alphabet()
    splits = [["".join(alphabet[byte] for byte in token) for token in pair] for pair in every_split([*small().merges])]
    assert len(splits) > 1.2 * len(small().merges)
    content["model"] |= {"merges": splits, "ignore_merges": True}
    theirs, spec = Tokenizer.from_str(json.dumps(content)), read_content(content)
    assert spec.merges == small().merges
    for text in texts_with_special_tokens(8, 500, ["<|end|>"]):
        check_text(spec, theirs, text)


def added(name, i, **changes):
    token = {"id": i, "content": name, "single_word": False, "lstrip": False, "rstrip": False}
    return token | {"normalized": False, "special": True} | changes


def test_added_tokens_that_the_model_lacks_keep_the_id_that_hugging_face_gives_them():
    content = json.loads(tokenizer_json(small(special_tokens=())))
    size = len(content["model"]["vocab"])
    content["added_tokens"] = [added("<a>", size), added("<b>", size + 1, special=False, normalized=True)]
    spec, theirs = read_content(content), Tokenizer.from_str(json.dumps(content))
    assert spec.special_tokens == {"<a>": size, "<b>": size + 1}
    for text in texts_with_special_tokens(9, 100, spec.special_tokens):
        check_text(spec, theirs, text)
    content["added_tokens"][1]["id"] = 9999
    assert Tokenizer.from_str(json.dumps(content)).encode("<b>").ids == [size + 1]
    with pytest.raises(ValueError, match=f"'<b>' has id 9999, but Hugging Face gives it {size + 1}"):
        read_content(content)


def test_two_passes_of_hugging_face_are_noticed():
    content = json.loads(tokenizer_json(small(special_tokens=())))
    size = len(content["model"]["vocab"])
    content["added_tokens"] = [added("y<", size, normalized=True), added("<x>", size + 1)]
    y = content["model"]["vocab"]["y"]
    assert Tokenizer.from_str(json.dumps(content)).encode("y<x>").ids == [y, size + 1]  # not [size, …]
    with pytest.raises(ValueError, match="'y<' and '<x>' can overlap, and differ in `normalized`"):
        read_content(content)
    content["added_tokens"][0]["normalized"] = False
    spec = read_content(content)
    for text in ["y<x>", "y<", "<x>y<x>", "y<<x>"]:
        check_text(spec, Tokenizer.from_str(json.dumps(content)), text)


def change(*path, to):
    """A change of one field of our own file."""

    def apply(content):
        for step in path[:-1]:
            content = content[step]
        if isinstance(content, list):
            content[path[-1] : path[-1] + 1] = [to]
        else:
            content[path[-1]] = to

    return apply


def also_added(name, i):
    return lambda content: content["added_tokens"].append(added(name, i))


SPLIT, BYTE_LEVEL = ("pre_tokenizer", "pretokenizers", 0), ("pre_tokenizer", "pretokenizers", 1)
NFC = {"type": "NFC"}
BROKEN = {
    "model": (change("model", to=None), "model is missing, or not an object"),
    "model.type": (change("model", "type", to="Unigram"), "model.type is 'Unigram': only 'BPE'"),
    "normalizer": (change("normalizer", to=NFC), "normalizer is set"),
    "truncation": (change("truncation", to={"max_length": 5}), "truncation is set"),
    "padding": (change("padding", to={"pad_id": 0}), "padding is set"),
    "dropout": (change("model", "dropout", to=0.1), r"model.dropout is 0.1"),
    "prefix": (change("model", "continuing_subword_prefix", to="##"), "model.continuing_subword_prefix is '##'"),
    "suffix": (change("model", "end_of_word_suffix", to="</w>"), "model.end_of_word_suffix is '</w>'"),
    "byte_fallback": (change("model", "byte_fallback", to=True), "model.byte_fallback is True"),
    "decoder": (change("decoder", to={"type": "Metaspace"}), "decoder is 'Metaspace'"),
    "no pre_tokenizer": (change("pre_tokenizer", to=None), "pre_tokenizer is missing"),
    "Metaspace": (change("pre_tokenizer", to={"type": "Metaspace"}), "pre_tokenizer is Metaspace: only"),
    "Digits too": (change("pre_tokenizer", "pretokenizers", 0, to={"type": "Digits"}), r"is Digits \+ ByteLevel"),
    "two splits": (change("pre_tokenizer", "pretokenizers", 0, to=None), "pretokenizers is not a list of objects"),
    "an empty sequence": (change("pre_tokenizer", "pretokenizers", to=[]), "pre_tokenizer is empty"),
    "add_prefix_space": (change(*BYTE_LEVEL, "add_prefix_space", to=True), "add_prefix_space is true"),
    "use_regex": (change(*BYTE_LEVEL, "use_regex", to=True), "use_regex is true after a Split"),
    "use_regex text": (change(*BYTE_LEVEL, "use_regex", to="no"), "use_regex is neither"),
    "behavior": (change(*SPLIT, "behavior", to="MergedWithNext"), "behavior='MergedWithNext' and invert=False"),
    "invert": (change(*SPLIT, "invert", to=True), "behavior='Isolated' and invert=True"),
    "a String": (change(*SPLIT, "pattern", to={"String": " "}), "the pattern of Split is not a Regex"),
    "a broken Regex": (change(*SPLIT, "pattern", to={"Regex": "("}), "invalid"),
    "vocab": (change("model", "vocab", to=[]), "model.vocab is missing, or not an object"),
    "an id twice": (change("model", "vocab", "new", to=5), "model.vocab gives id 5, of 'new', twice"),
    "an id that is text": (change("model", "vocab", "new", to="5"), "the id of 'new' is '5'"),
    "an id below 0": (change("model", "vocab", "new", to=-5), "Id -5 is not an integer"),
    "another alphabet": (change("model", "vocab", "▁new", to=5000), "model.vocab: '▁new' holds '▁'"),
    "merges": (change("model", "merges", to="a b"), "model.merges is missing, or not a list"),
    "a merge of three": (change("model", "merges", 0, to="Ġ t h"), "model.merges: 1 is 'Ġ t h', not two tokens"),
    "a merge of numbers": (change("model", "merges", 0, to=[1, 2]), r"model.merges: 1 is \[1, 2\], not two"),
    "a merge of nothing": (change("model", "merges", 0, to=["Ġt", ""]), "model.merges: 1 is .*, not two tokens"),
    "a merge without id": (change("model", "merges", 0, to="Ġ Ā"), "'ĠĀ' is not in model.vocab"),
    "merges out of order": (change("model", "merges", 0, to="Ġt he"), "is not what earlier merges lead to"),
    "added_tokens": (change("added_tokens", to={"a": 1}), "added_tokens is not a list"),
    "an added token": (change("added_tokens", 0, to="<|end|>"), "added_tokens holds '<|end|>'"),
    "no content": (change("added_tokens", 0, to={"id": 3}), "added_tokens: content is missing, or not a string"),
    "no id": (change("added_tokens", 0, to={"content": "<|end|>"}), "added_tokens: id is missing, or not a number"),
    "another id": (change("added_tokens", 0, "id", to=7), "' ' has id 7, but Hugging Face gives it 4000"),
    "an empty one": (also_added("", 2261), "A special token is empty"),
    "lstrip": (change("added_tokens", 0, "lstrip", to=True), "' ' has lstrip set"),
    "rstrip": (change("added_tokens", 0, "rstrip", to=True), "' ' has rstrip set"),
    "single_word": (change("added_tokens", 0, "single_word", to=True), "' ' has single_word set"),
    "an ordinary token": (also_added("he", 258), "No ordinary token .* is b'he'"),
    "ignore_merges": (change("model", "ignore_merges", to=True), "model.ignore_merges is true, and no merge makes"),
}


@pytest.mark.parametrize(("apply", "message"), BROKEN.values(), ids=BROKEN)
def test_what_would_change_ids_is_refused(apply, message, tmp_path):
    content = json.loads(tokenizer_json(small()))
    content["added_tokens"].reverse()
    apply(content)
    path = tokenizer_file(tmp_path, content)
    with pytest.raises(ValueError, match=message) as error:
        read_tokenizer_json(path)
    assert str(path) in str(error.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is not JSON"),
        (b"{}{", "is not JSON"),
        (b"[1]", "holds list, not a JSON object"),
        (b'{"model"\xff', "is not UTF-8 at byte 8"),
        (b"{" * 10, "is not JSON"),
        (b'{"a":' * 100_000, "is nested too deeply"),
        (b'{"model": {}, "model": {}}', "'model' stands twice"),
        (b"{}", "model is missing"),
    ],
)
def test_a_file_of_something_else_is_refused(content, message, tmp_path):
    (tmp_path / "tokenizer.json").write_bytes(content)
    with pytest.raises(ValueError, match=message):
        read_tokenizer_json(tmp_path / "tokenizer.json")


def test_a_token_that_no_merge_makes_is_not_met_by_hugging_face_either():
    content = json.loads(tokenizer_json(small()))
    content["model"]["vocab"]["zebra"] = 7000
    spec, theirs = read_content(content), Tokenizer.from_str(json.dumps(content))
    assert spec.unreachable == {7000: b"zebra"}
    check_text(spec, theirs, "zebra a zebra")
    assert theirs.decode([7000]) == "zebra"
