"""``lmlib generate``."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from lmlib.cli.files import Json
from lmlib.cli.models import Checkpoint, EndOfText, OtherTokenizer
from lmlib.cli.numbers import Number, WholeNumber
from lmlib.cli.tokenizer.options import Flattened

__all__ = ["EXAMPLES", "USAGE", "GenerateOptions", "app", "generate"]

USAGE = "Usage: lmlib generate MODEL [OPTIONS]"

NOTES = """One sample is written while it is made, with the prompt before it.
Special tokens in a prompt are ordinary text.
"""

EXAMPLES = """Examples:

  lmlib generate runs/1 --prompt "Call me"

  lmlib generate my-model --prompt "The whale" --num-samples 5 --seed 1 --json

  head -c 500 book.txt | lmlib generate runs/1 --prompt - --temperature 0
"""


@dataclass(frozen=True, kw_only=True)
class GenerateOptions:
    """Options of ``lmlib generate``."""

    prompt: Annotated[
        str | None,
        Parameter(
            help="What the text goes on from; - is standard input, whose last line "
            "break counts. A line break, not shown, if left out."
        ),
    ] = None
    max_new_tokens: WholeNumber = 128
    """Most tokens of a sample."""
    temperature: Annotated[
        Number,
        Parameter(
            help="Below 1, the likely tokens become likelier; 0 always takes the "
            "likeliest. As in the samples of lmlib train, if left out."
        ),
    ] = 0.8
    top_k: WholeNumber | None = None
    """Draw from that many of the likeliest tokens."""
    top_p: Number | None = None
    """Draw from the fewest of the likeliest that have this probability."""
    seed: Annotated[
        WholeNumber | None,
        Parameter(
            help="The same seed, the same text; the second sample has the next "
            "seed, and so on. Another each time, and shown, if left out."
        ),
    ] = None
    num_samples: WholeNumber = 1
    """How many texts to make, all at once."""
    end_of_text: EndOfText = None
    ignore_end: bool = False
    """Go on after the end of a text."""
    checkpoint: Checkpoint = None
    tokenizer: OtherTokenizer = None
    device: str = "auto"
    """A device to compute on: cpu, cuda:0, mps; auto for the best."""
    json: Json = False
    quiet: Annotated[
        bool, Parameter(help="Show the text alone, and not how fast it came.")
    ] = False


DEFAULTS = GenerateOptions()

app = App(name="generate", usage=USAGE, help_epilogue=f"{NOTES}\n{EXAMPLES}")


@app.default
def generate(
    model: Annotated[
        Path,
        Parameter(
            help="The folder of a run, of a checkpoint in it, or of a GPT-2 or a "
            "Llama of Hugging Face, such as lmlib export writes."
        ),
    ],
    /,
    *,
    options: Flattened[GenerateOptions] = DEFAULTS,
) -> None:
    """Let a model go on with a text."""
    from lmlib.cli.generate.samples import make_samples

    make_samples(model, options)
