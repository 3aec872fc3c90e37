"""lmlib.bpe: it needs no torch, and an installed package holds all of it."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from lmlib import bpe

ROOT = Path(__file__).parents[1]
MODULES = sorted(f"lmlib.bpe.{path.stem}" for path in Path(bpe.__file__).parent.glob("[a-z]*.py"))


def test_modules_are_found():
    assert "lmlib.bpe.reference" in MODULES


@pytest.mark.parametrize("module", ["lmlib.bpe", *MODULES])
def test_it_imports_where_there_is_no_torch(module):
    code = (
        "import sys\n"
        "sys.modules['torch'] = None  # now importing it fails\n"
        f"import {module}\n"
        "sys.exit('numpy' in sys.modules)  # nor is that needed so far\n"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


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
