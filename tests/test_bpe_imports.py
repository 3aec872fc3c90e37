"""lmlib.bpe: it needs neither torch nor anything else that is optional, and an installed package holds all of it."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
OPTIONAL = ["torch", "tiktoken", "tokenizers", "transformers", "matplotlib"]


@pytest.mark.parametrize("module", ["lmlib.bpe", "lmlib.bpe.reference", "lmlib.cli"])
def test_it_imports_where_nothing_optional_is_installed(module):
    blocked = "; ".join(f"sys.modules[{name!r}] = None" for name in OPTIONAL)  # importing it then fails
    assert subprocess.run([sys.executable, "-c", f"import sys; {blocked}; import {module}"]).returncode == 0


def test_the_table_comes_with_an_installed_package(tmp_path):
    source, installed = tmp_path / "source", tmp_path / "installed"
    source.mkdir()
    for name in ["pyproject.toml", "README.md", "LICENSE"]:
        shutil.copy(ROOT / name, source)
    shutil.copytree(ROOT / "lmlib", source / "lmlib", ignore=shutil.ignore_patterns("__pycache__"))
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "--target", installed, source], check=True)
    copied = installed / "lmlib" / "bpe" / "unicode_table.txt"
    assert copied.read_bytes() == (ROOT / "lmlib" / "bpe" / "unicode_table.txt").read_bytes()
