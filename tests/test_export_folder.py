"""lmlib.export: folders that transformers opens, with our logits and ids; folders of its own, opened here."""

import json
import os
import pickle
import resource
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    GPT2Config,
    GPT2LMHeadModel,
    GPT2Model,
    LlamaConfig,
    LlamaForCausalLM,
)

from lmlib.bpe import Tokenizer, train_bpe
from lmlib.config import ModelConfig
from lmlib.corpora import load_corpus
from lmlib.export import load_hugging_face, save_hugging_face, save_trained, to_transformers_state_dict
from lmlib.export import writing as writing_module
from lmlib.model import TransformerLM
from lmlib.train import RunFolder

pytestmark = pytest.mark.usefixtures("one_thread")

TEXT = load_corpus("moby_dick")[:20_000]
END = "<|endoftext|>"
TOKENIZER = Tokenizer(*train_bpe([TEXT], 300, progress=False), [END, "<|other|>"])
SIZES = {"vocab_size": 320, "context_length": 32, "d_model": 48, "num_layers": 2, "num_heads": 6}
GPT2 = {"norm": "layernorm", "mlp": "gelu", "position": "learned", "bias": True}
SHAPES = [
    GPT2 | {"tie_embeddings": True, "dropout": 0.1},
    GPT2 | {"d_ff": 80, "norm_eps": 1e-3},
    {"num_kv_heads": 2, "bias": True, "d_ff": 80, "rope_theta": 500.0, "norm_eps": 1e-3},
    {"num_kv_heads": 1, "tie_embeddings": True, "dropout": 0.1},
]
FILES = ["config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"]


def build(**changes):
    """A model whose every parameter has a value of its own, also those that begin as 0 or 1."""
    generator = torch.Generator().manual_seed(0)
    model = TransformerLM(ModelConfig(**SIZES | changes), generator=generator).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.1)
    return model


def same_state(one, other):
    return one.keys() == other.keys() and all(
        one[name].dtype == other[name].dtype and torch.equal(one[name], other[name]) for name in one
    )


@torch.no_grad()
def generate(model, ids, length, stop):
    """The likeliest token, time and again."""
    while ids.shape[1] < length:
        ids = torch.cat([ids, model(ids)[:, -1:].argmax(-1)], dim=1)
        if ids[0, -1] == stop:
            break
    return ids


# --- transformers opens what we write ------------------------------------------------------------------------------


@pytest.mark.parametrize("changes", SHAPES)
def test_logits_and_generations_of_transformers_are_ours(tmp_path, changes):
    model = build(**changes)
    save_hugging_face(tmp_path / "model", model, TOKENIZER)
    assert sorted(os.listdir(tmp_path)) == ["model"]
    assert sorted(os.listdir(tmp_path / "model")) == FILES
    assert len({stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "model").iterdir()}) == 1
    theirs, report = AutoModelForCausalLM.from_pretrained(tmp_path / "model", output_loading_info=True)
    assert not any(report.values()), report  # nothing missing, nothing left over
    assert theirs.dtype == torch.float32
    ids = torch.tensor([TOKENIZER.encode(TEXT)[:32], TOKENIZER.encode(TEXT)[50:82]])
    with torch.no_grad():
        logits, expected = model(ids), theirs(ids).logits
    assert expected.std() > 0.3
    torch.testing.assert_close(logits, expected, rtol=0, atol=1e-5)
    for start in range(3):
        prompt = ids[:1, start : start + 5]
        generated = theirs.generate(prompt, do_sample=False, max_length=32)
        assert torch.equal(generated, generate(model, prompt, 32, TOKENIZER.special_tokens[END]))


def test_generation_stops_at_the_end_of_a_text_and_begins_there(tmp_path):
    model = build(tie_embeddings=True)
    end = TOKENIZER.special_tokens[END]
    with torch.no_grad():  # logits of 0 for all but the end
        model.token_embedding.weight.zero_()[end] = 1
        model.final_norm.weight.fill_(1)
    save_hugging_face(tmp_path / "model", model, TOKENIZER)
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    sign = model(torch.tensor([[end]]))[0, -1, end].sign()
    if sign < 0:
        pytest.fail("the seed makes the end unlikely: choose another")
    assert theirs.generate(do_sample=False, max_length=32).tolist() == [[end, end]]
    assert theirs.generation_config.pad_token_id == end  # of shorter texts in a batch
    assert theirs.config.pad_token_id is None  # else its embedding would not be trained further


@pytest.mark.parametrize("changes", [SHAPES[0], SHAPES[3]])
def test_ids_and_texts_of_transformers_are_ours(tmp_path, changes):
    save_hugging_face(tmp_path / "model", build(**changes), TOKENIZER)
    theirs = AutoTokenizer.from_pretrained(tmp_path / "model")
    for text in ["", " ", "Call me Ishmael .", f"don't  stop{END}é <|other|>\n\n x , y", TEXT[:500]]:
        ids = theirs(text).input_ids
        assert ids == TOKENIZER.encode(text, allowed_special="all")
        assert theirs.decode(ids) == text
    end = TOKENIZER.special_tokens[END]
    assert (theirs.eos_token_id, theirs.bos_token_id, theirs.model_max_length) == (end, end, 32)


def test_a_model_without_a_tokenizer(tmp_path):
    model = build()
    save_hugging_face(tmp_path / "model", model)
    assert sorted(os.listdir(tmp_path / "model")) == FILES[:3]
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    assert (theirs.config.bos_token_id, theirs.config.eos_token_id) == (None, None)  # not the 1 and 2 of Llama
    loaded = load_hugging_face(tmp_path / "model")
    assert (loaded.tokenizer, loaded.no_tokenizer) == (None, "there is no tokenizer.json")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_another_dtype(tmp_path, dtype):
    model = build(**SHAPES[0])
    save_hugging_face(tmp_path / "model", model, dtype=dtype)
    expected = {name: weight.to(dtype) for name, weight in model.state_dict().items()}
    assert same_state(load_hugging_face(tmp_path / "model").model.state_dict(), expected)
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    assert theirs.dtype == dtype
    state = {name: weight for name, weight in theirs.state_dict().items() if name != "lm_head.weight"}
    assert same_state(state, to_transformers_state_dict(model.config, expected))
    wide = load_hugging_face(tmp_path / "model", dtype=torch.float32).model
    assert same_state(wide.state_dict(), {name: weight.float() for name, weight in expected.items()})


def test_a_model_of_several_dtypes_is_stored_in_the_widest(tmp_path):
    model = build().bfloat16()
    model.final_norm.float()
    save_hugging_face(tmp_path / "model", model)
    assert {weight.dtype for weight in load_file(tmp_path / "model" / "model.safetensors").values()} == {torch.float32}


# --- we open what we wrote, and what transformers did --------------------------------------------------------------


@pytest.mark.parametrize("changes", SHAPES)
def test_there_and_back_is_the_same_to_the_bit(tmp_path, changes):
    model = build(**changes)
    save_hugging_face(tmp_path / "model", model, TOKENIZER)
    loaded = load_hugging_face(tmp_path / "model")
    assert loaded.config == model.config
    assert same_state(loaded.model.state_dict(), model.state_dict())
    assert not loaded.model.training
    assert (loaded.tokenizer.spec, loaded.no_tokenizer) == (TOKENIZER.spec, None)
    save_hugging_face(tmp_path / "again", loaded.model, loaded.tokenizer)
    for name in FILES:
        assert (tmp_path / "again" / name).read_bytes() == (tmp_path / "model" / name).read_bytes()


def theirs_gpt2(**changes):
    ends = {"bos_token_id": 5, "eos_token_id": 5}
    return GPT2LMHeadModel(
        GPT2Config(vocab_size=320, n_positions=32, n_embd=48, n_layer=2, n_head=6, **ends, **changes)
    )


def theirs_llama(**changes):
    sizes = {"hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 6, "intermediate_size": 80}
    return LlamaForCausalLM(
        LlamaConfig(vocab_size=320, max_position_embeddings=32, num_key_value_heads=2, **sizes, **changes)
    )


THEIRS = [
    lambda: theirs_gpt2(),
    lambda: theirs_gpt2(tie_word_embeddings=False, n_inner=100, layer_norm_epsilon=1e-3),
    lambda: theirs_llama(rms_norm_eps=1e-3, rope_parameters={"rope_type": "default", "rope_theta": 500.0}),
    lambda: theirs_llama(tie_word_embeddings=True, attention_bias=True, mlp_bias=True),
]


def shuffle(theirs):
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.1)
    return theirs.eval()


@pytest.mark.parametrize("shard_size", ["1GB", "30KB"])
@pytest.mark.parametrize("make", THEIRS)
def test_what_transformers_saved(tmp_path, make, shard_size):
    theirs = shuffle(make())
    theirs.save_pretrained(tmp_path, max_shard_size=shard_size)
    shards = [*tmp_path.glob("*.safetensors")]
    assert len(shards) == 1 if shard_size == "1GB" else len(shards) > 2
    ours = load_hugging_face(tmp_path).model
    ids = torch.randint(320, (2, 32), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        torch.testing.assert_close(ours(ids), theirs(ids).logits, rtol=0, atol=1e-5)


def test_a_folder_as_that_of_gpt2s_release(tmp_path):
    """Saved from the model without a head, with its masks."""
    theirs = shuffle(theirs_gpt2())
    GPT2Model.save_pretrained(theirs.transformer, tmp_path)
    path = tmp_path / "model.safetensors"
    state = load_file(path)
    assert "wte.weight" in state
    save_file(state | {f"h.{i}.attn.bias": torch.ones(1, 1, 32, 32, dtype=torch.bool) for i in range(2)}, path)
    ids = torch.arange(32)[None]
    with torch.no_grad():
        torch.testing.assert_close(load_hugging_face(tmp_path).model(ids), theirs(ids).logits, rtol=0, atol=1e-5)


def test_a_loaded_model_needs_its_file_no_more(tmp_path):
    model = build(**SHAPES[0])
    save_hugging_face(tmp_path / "model", model)
    loaded = load_hugging_face(tmp_path / "model").model
    path = tmp_path / "model" / "model.safetensors"
    path.write_bytes(bytes(path.stat().st_size))
    assert same_state(loaded.state_dict(), model.state_dict())
    for parameter in loaded.parameters():
        assert parameter.is_contiguous()
        assert parameter.requires_grad
        assert parameter.untyped_storage().nbytes() == parameter.nbytes  # no part of query, key and value together


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda content: content["pre_tokenizer"].update(type="Metaspace"), "pre_tokenizer is Metaspace"),
        (lambda content: content["model"].update(byte_fallback=True), "model.byte_fallback is True"),
    ],
)
def test_a_tokenizer_that_is_not_ours_is_left_out_with_a_reason(tmp_path, change, reason):
    model = build()
    save_hugging_face(tmp_path / "model", model, TOKENIZER)
    path = tmp_path / "model" / "tokenizer.json"
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))
    loaded = load_hugging_face(tmp_path / "model")
    assert loaded.tokenizer is None
    assert reason in loaded.no_tokenizer
    assert same_state(loaded.model.state_dict(), model.state_dict())


# --- what is not written -------------------------------------------------------------------------------------------


def refuse_to_write(folder, error, message, *arguments, **options):
    before = sorted(os.listdir(folder.parent))
    with pytest.raises(error, match=message):
        save_hugging_face(folder, *arguments, **options)
    assert sorted(os.listdir(folder.parent)) == before


def test_what_cannot_be_exported_is_said_before_anything_is_written(tmp_path):
    out = tmp_path / "model"
    learned = TransformerLM(ModelConfig(**SIZES, position="learned"))
    refuse_to_write(out, ValueError, "a Llama has position='rope'", learned)
    small = build(vocab_size=301)
    refuse_to_write(out, ValueError, "ids up to 301, and the model's vocab_size is 301: use", small, TOKENIZER)
    refuse_to_write(out, ValueError, "cannot be torch.float64: choose one of torch.float32", build().double())
    refuse_to_write(out, ValueError, "cannot be torch.int8", build(), dtype=torch.int8)
    refuse_to_write(out, ValueError, "no special token '<end>' .* there is '<|endoftext|>'".replace("|", r"\|"),
                    build(), TOKENIZER, end_of_text="<end>")  # fmt: skip
    refuse_to_write(out, ValueError, "no special token '<end>' .* there is none", build(), end_of_text="<end>")
    large = build()
    with torch.no_grad():
        large.final_norm.weight[3] = -70_000
    refuse_to_write(
        out, ValueError, r"'final_norm.weight' goes up to 7e\+04, and fp16 to 6.55e\+04: choose bf16", large,
        dtype=torch.float16,
    )  # fmt: skip


def test_the_tokenizer_of_a_padded_vocabulary_may_be_as_large_as_it_is(tmp_path):
    assert TOKENIZER.vocab_size == 302
    save_hugging_face(tmp_path / "model", build(vocab_size=302), TOKENIZER)
    assert load_hugging_face(tmp_path / "model").tokenizer.vocab_size == 302


def test_without_an_end_of_text(tmp_path):
    plain = Tokenizer(*train_bpe([TEXT], 300, progress=False))
    for name, tokenizer, end in [("a", plain, END), ("b", TOKENIZER, None)]:
        save_hugging_face(tmp_path / name, build(), tokenizer, end_of_text=end)
        theirs = AutoTokenizer.from_pretrained(tmp_path / name)
        assert theirs.eos_token is None
        assert json.loads((tmp_path / name / "generation_config.json").read_text())["eos_token_id"] is None


def test_what_is_there_is_kept(tmp_path):
    out = tmp_path / "model"
    out.mkdir()
    save_hugging_face(out, build())  # an empty folder is as good as none
    before = {path: path.read_bytes() for path in out.iterdir()}
    refuse_to_write(out, FileExistsError, "is there already: name another folder, or remove it", build(bias=True))
    assert {path: path.read_bytes() for path in out.iterdir()} == before
    for path in (tmp_path / "file", tmp_path / "link"):
        (path.write_text("") if path.name == "file" else path.symlink_to("nowhere"))
        refuse_to_write(path, FileExistsError, "is there already", build())


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError(28, "No space left on device")])
def test_nothing_is_left_of_an_export_that_fails(tmp_path, monkeypatch, error):
    def fail(weights, path, metadata):
        path.write_bytes(b"half")
        raise error

    monkeypatch.setattr(writing_module, "save_file", fail)
    expected = OSError if isinstance(error, OSError) else error
    refuse_to_write(tmp_path / "model", expected, "$", build(), TOKENIZER)


def test_nobody_waits_for_a_training_to_end(tmp_path):
    model = build()
    (tmp_path / "run").mkdir()
    with RunFolder(tmp_path / "run").locked():
        for save in (save_hugging_face, save_trained):
            with pytest.raises(BlockingIOError, match=r"Another process trains in .*/run: name a folder elsewhere"):
                save(tmp_path / "run" / "model", model)
        save_trained(tmp_path / "run" / "new" / "model", model)
    save_trained(tmp_path / "run" / "model", model)


@pytest.mark.parametrize(("limit", "name"), [(100_000, "model.safetensors"), (100, "config.json")])
def test_nothing_is_left_where_the_disk_is_full(tmp_path, limit, name):
    """A limit on the size of files: the kernel refuses to write on, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
        refuse_to_write(tmp_path / "model", OSError, f"{name}.*File too large|File too large.*{name}", build())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_transformers_is_not_needed():
    code = (
        "import sys; sys.modules['transformers'] = sys.modules['tokenizers'] = None\n"
        "import tempfile; from lmlib.bpe import Tokenizer; from lmlib.config import ModelConfig\n"
        "from lmlib.export import load_hugging_face, save_hugging_face; from lmlib.model import TransformerLM\n"
        "config = ModelConfig(256, 8, 8, 1, 1)\n"
        "folder, tokenizer = tempfile.mkdtemp(), Tokenizer({i: bytes([i]) for i in range(256)}, [])\n"
        "save_hugging_face(folder, TransformerLM(config), tokenizer)\n"
        "assert load_hugging_face(folder).config == config"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


# --- what is not read ----------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path):
    """One that can be read, until a test breaks it."""
    save_hugging_face(tmp_path / "model", build(), TOKENIZER)
    return tmp_path / "model"


def refuse_to_read(folder, error, message):
    with pytest.raises(error, match=message):
        load_hugging_face(folder)


def change_config(folder, **changes):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_missing_files(folder):
    refuse_to_read(folder / "nowhere", FileNotFoundError, "no config.json in .*nowhere: name a folder .* downloaded")
    (folder / "model.safetensors").unlink()
    refuse_to_read(folder, FileNotFoundError, r"neither model\.safetensors nor model\.safetensors\.index\.json in ")
    (folder / "config.json").unlink()
    refuse_to_read(folder, FileNotFoundError, "no config.json in ")


class _Code:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "weights.pth"])
def test_a_pickle_is_refused_and_not_opened(folder, name):
    trace = folder / "trace"
    (folder / name).write_bytes(pickle.dumps(_Code(trace)))
    load_hugging_face(folder)  # beside safetensors it does no harm
    (folder / "model.safetensors").unlink()
    refuse_to_read(folder, FileNotFoundError, rf"{name} is a pickle, which can run anything when it is opened")
    assert not trace.exists()
    pickle.loads((folder / name).read_bytes())
    assert trace.exists()


@pytest.mark.parametrize("damage", [lambda data: data[:-100], lambda data: b"", lambda data: b"\xff" * 100])
def test_damaged_weights(folder, damage):
    path = folder / "model.safetensors"
    path.write_bytes(damage(path.read_bytes()))
    refuse_to_read(folder, ValueError, r"model cannot be read: model\.safetensors is damaged, or no safetensors file")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "mamba"}, "model_type is 'mamba': only models of type 'gpt2' or 'llama'"),
        ({"vocab_size": 302}, r"embed_tokens\.weight' has the shape \(320, 48\), .* asks for \(302, 48\)"),
        ({"intermediate_size": 64}, r"mlp\.gate_proj\.weight' has the shape \(128, 48\), .* \(64, 48\)"),
        ({"num_key_value_heads": 2}, r"k_proj\.weight' has the shape \(48, 48\), .* \(16, 48\)"),
        ({"tie_word_embeddings": True}, r"has no place for: 'lm_head\.weight'"),
        ({"attention_bias": True, "mlp_bias": True}, r"asks for: 'model\.layers\.0\.mlp\.down_proj\.bias'"),
        ({"num_hidden_layers": 3}, "num_layers=3, and there are weights of 2"),
        ({"num_hidden_layers": 10**9}, "num_layers=1000000000, and there are weights of 2"),
        ({"vocab_size": 10**19}, r"asks for .*e\+2. parameters, which is more than any weights hold"),
        ({"hidden_size": 3 * 10**9, "intermediate_size": 10**12}, "more than any weights hold"),
        ({"head_dim": 16}, "head_dim is 16"),
        ({"rope_scaling": {"rope_type": "yarn"}}, "rope_scaling is of type 'yarn'"),
    ],
)
def test_a_config_that_the_weights_do_not_fit(folder, changes, message):
    change_config(folder, **changes)
    refuse_to_read(folder, ValueError, f"model cannot be read: .*{message}")


def test_a_config_that_is_no_json(folder):
    (folder / "config.json").write_text("{")
    refuse_to_read(folder, ValueError, r"config\.json is not JSON")


def test_weights_that_are_no_floats(folder):
    path = folder / "model.safetensors"
    save_file({name: weight.to(torch.int8) for name, weight in load_file(path).items()}, path)
    refuse_to_read(folder, ValueError, "is torch.int8: only weights in fp32, bf16 or fp16 can be read")


def test_a_tokenizer_with_more_ids_than_the_model(folder, tmp_path):
    save_hugging_face(tmp_path / "small", build(vocab_size=302), TOKENIZER)
    Tokenizer(*train_bpe([TEXT], 302, progress=False), [END]).save(tmp_path / "small" / "tokenizer.json")
    refuse_to_read(
        tmp_path / "small", ValueError, "ids up to 302, and the model's vocab_size is 302: use the tokenizer"
    )


def test_an_index_that_is_wrong(tmp_path):
    theirs_llama().save_pretrained(tmp_path, max_shard_size="30KB")
    path = tmp_path / "model.safetensors.index.json"
    good = path.read_text()
    first, *_, last = sorted(each.name for each in tmp_path.glob("*.safetensors"))
    path.write_text(json.dumps({"metadata": {}}))
    refuse_to_read(tmp_path, ValueError, r"index\.json: weight_map is missing or empty")
    for elsewhere in ("", "../model.safetensors", "/etc/passwd", ["a"]):
        names = json.loads(good)["weight_map"]
        path.write_text(json.dumps({"weight_map": names | {"lm_head.weight": elsewhere}}))
        refuse_to_read(tmp_path, ValueError, r"'lm_head\.weight' is said to be in .* no file of this folder")
    path.write_text(json.dumps({"weight_map": names | {"lm_head.weight": last}}))
    refuse_to_read(tmp_path, ValueError, "do not agree on whether it holds 'lm_head.weight'")
    path.write_text(good)
    (tmp_path / first).unlink()
    refuse_to_read(tmp_path, FileNotFoundError, f"{first} is missing, and model.safetensors.index.json names it")
