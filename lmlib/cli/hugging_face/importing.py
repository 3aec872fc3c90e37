"""``lmlib import``."""

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from lmlib.cli.errors import out_of_memory_explained
from lmlib.cli.hugging_face.options import ADVICE, FolderOptions
from lmlib.cli.hugging_face.report import model_facts, report, torch_dtype
from lmlib.cli.tokenizer.options import Flattened

__all__ = ["EXAMPLES", "USAGE", "app", "import_model"]

USAGE = "Usage: lmlib import FOLDER --out RUN [OPTIONS]"

NOTES = """Nothing is downloaded, and no pickle is opened. The tokenizer is taken if
it is byte-level BPE that lmlib can read exactly; the report says if it is not.
The folder is like that of a run, with the model as its checkpoint of step 0.
"""

EXAMPLES = """Examples:

  lmlib import gpt2 --out runs/gpt2

  lmlib import my-llama --dtype fp32 --out runs/my-llama
"""


app = App(name="import", usage=USAGE, help_epilogue=f"{NOTES}\n{EXAMPLES}")


@app.default
def import_model(
    folder: Annotated[
        Path,
        Parameter(
            help="What save_pretrained of transformers wrote: config.json, weights "
            "as safetensors, in one file or several, and a tokenizer.json."
        ),
    ],
    /,
    *,
    options: Flattened[FolderOptions],
) -> None:
    """Read a GPT-2 or a Llama from a folder of Hugging Face."""
    from lmlib.export import load_hugging_face, save_trained

    with out_of_memory_explained(ADVICE):
        loaded = load_hugging_face(folder, dtype=torch_dtype(options.dtype))
        save_trained(options.out, loaded.model, loaded.tokenizer)
    facts = model_facts(
        loaded.config, loaded.tokenizer, loaded.no_tokenizer, options.out
    )
    report(options, {"folder": str(folder)}, str(folder), facts)
