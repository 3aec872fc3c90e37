"""``lmlib export``."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from lmlib.bpe import Tokenizer
from lmlib.cli.errors import out_of_memory_explained, warnings_in_a_line
from lmlib.cli.hugging_face.options import ADVICE, FolderOptions
from lmlib.cli.hugging_face.report import model_facts, report, torch_dtype
from lmlib.cli.models import Checkpoint, EndOfText, OtherTokenizer, which
from lmlib.cli.tokenizer.options import Flattened

__all__ = ["EXAMPLES", "USAGE", "ExportOptions", "app", "export"]

USAGE = "Usage: lmlib export RUN --out FOLDER [OPTIONS]"

NOTES = """The folder holds config.json, model.safetensors, and the files of the
tokenizer. The model must be a GPT-2 (layernorm, gelu, learned positions, bias)
or a Llama (rmsnorm, swiglu, rope); others have no layout there. In Python,
AutoModelForCausalLM.from_pretrained("my-model") opens it, and AutoTokenizer.
"""

EXAMPLES = """Examples:

  lmlib export runs/1 --out my-model

  lmlib export runs/1/checkpoints/step-00001000 --dtype bf16 --out my-model
"""


@dataclass(frozen=True, kw_only=True)
class ExportOptions(FolderOptions):
    """Options of ``lmlib export``."""

    checkpoint: Checkpoint = None
    tokenizer: OtherTokenizer = None
    end_of_text: EndOfText = None

    def __post_init__(self) -> None:
        """Check what would be noticed only after loading."""
        super().__post_init__()
        which(self.checkpoint)


app = App(name="export", usage=USAGE, help_epilogue=f"{NOTES}\n{EXAMPLES}")


@app.default
def export(
    run: Annotated[
        Path, Parameter(help="The folder of a run, or of a checkpoint in it.")
    ],
    /,
    *,
    options: Flattened[ExportOptions],
) -> None:
    """Write a trained model as a folder for Hugging Face's transformers."""
    from lmlib.data.prepare import END_OF_TEXT
    from lmlib.export import load_trained, save_hugging_face

    end_of_text = options.end_of_text
    with warnings_in_a_line(), out_of_memory_explained(ADVICE):
        trained = load_trained(run, which(options.checkpoint))
        tokenizer = trained.tokenizer
        if options.tokenizer is not None:
            tokenizer = Tokenizer.from_pretrained(options.tokenizer)
        save_hugging_face(
            options.out,
            trained.model,
            tokenizer,
            dtype=torch_dtype(options.dtype),
            end_of_text=END_OF_TEXT if end_of_text is None else end_of_text,
        )
    step, loss = trained.step, trained.validation_loss
    facts = model_facts(
        trained.config, tokenizer, trained.no_tokenizer, options.out
    )
    read = {"run": str(run), "step": step, "validation_loss": loss}
    measured = "" if loss is None else f", validation loss {loss:.4f}"
    report(options, read, f"step {step:,}{measured}", facts)
