"""What is installed here, what is missing, and the command that mends it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from types import ModuleType

__all__ = [
    "Missing",
    "Package",
    "driver_version",
    "find_c_compiler",
    "find_missing",
    "import_torch",
    "required_packages",
]

CORE = "core"
DRIVER_FILE = Path("/proc/driver/nvidia/version")
PCI_DEVICES = Path("/sys/bus/pci/devices")
NVIDIA, DISPLAY = "0x10de", "0x03"  # a vendor, the start of a class


@dataclass(frozen=True)
class Package:
    """A package that lmlib asks for: what for, which versions, and the one here.

    ``needed_for`` is an extra of lmlib's, or ``"core"``; ``installed`` is None
    where there is none.
    """

    name: str
    needed_for: str
    wanted: str
    installed: str | None

    @property
    def fits(self) -> bool:
        """Whether it is there, in a version that lmlib asks for."""
        if self.installed is None:
            return False
        here = _release(self.installed)
        lower = re.search(r">=\s*([\d.]+)", self.wanted)
        upper = re.search(r"<\s*([\d.]+)", self.wanted)
        return (not lower or here >= _release(lower[1])) and (
            not upper or here < _release(upper[1])
        )


@dataclass(frozen=True)
class Missing:
    """What is missing, and the command that mends it."""

    what: str
    command: str


def _release(version: str) -> tuple[int, ...]:
    """The numbers that a version starts with, zeros at their end left out."""
    numbers = re.match(r"[\d.]*", version)[0].strip(".").split(".")
    release = [int(number) for number in numbers if number]
    while release and release[-1] == 0:
        release.pop()
    return tuple(release)


def required_packages() -> tuple[Package, ...]:
    """Packages that the installed lmlib declares; none if it is not installed."""
    try:
        lines = metadata.requires("lmlib") or []
    except metadata.PackageNotFoundError:
        return ()
    pattern = re.compile(
        r"(?P<name>[\w.-]+)(\[.*?\])?\s*(?P<wanted>[^;]*?)\s*"
        r"(;.*extra == ['\"](?P<extra>.+?)['\"].*)?$"
    )
    matches = [pattern.match(line) for line in lines]
    return tuple(
        Package(
            name=match["name"],
            needed_for=match["extra"] or CORE,
            wanted=match["wanted"],
            installed=_installed_version(match["name"]),
        )
        for match in matches
        if match and match["name"] != "lmlib"  # an extra that includes another
    )


def _installed_version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def import_torch() -> ModuleType | None:
    """Torch, or None where it is not installed or does not start."""
    try:
        import torch
    except (ImportError, OSError):  # OSError: one of its libraries is not found
        return None
    return torch


def driver_version() -> str | None:
    """Version of the NVIDIA driver that runs here, or None."""
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(
            query, capture_output=True, text=True, timeout=20, check=True
        )
        return done.stdout.split()[0]
    except (OSError, subprocess.SubprocessError, IndexError):
        pass  # not installed, or it finds no driver
    try:
        found = re.search(r"\s(\d+\.[\d.]+)\s", DRIVER_FILE.read_text())
    except OSError:
        return None
    return found[1] if found else None


def find_c_compiler() -> str | None:
    """The C compiler that ``torch.compile`` finds here, or None."""
    names = (os.environ.get("CC", ""), "gcc", "clang", "cc")
    return next(filter(None, map(shutil.which, names)), None)


def has_nvidia_gpu() -> bool:
    """Whether an NVIDIA GPU is plugged in, with a driver or without one (Linux)."""
    for device in PCI_DEVICES.glob("*"):
        try:
            vendor = (device / "vendor").read_text()
            kind = (device / "class").read_text()
        except OSError:
            continue
        if vendor.startswith(NVIDIA) and kind.startswith(DISPLAY):
            return True
    return False


# --- what is missing --------------------------------------------------------------


def find_missing(
    packages: Iterable[Package], torch: ModuleType | None, driver: str | None
) -> tuple[Missing, ...]:
    """What keeps a part of lmlib, or a GPU, from being used."""
    packages = tuple(packages)
    found = list(_missing_packages(packages))
    if torch is None:
        found += _broken_torch(packages)
    elif torch.cuda.device_count() == 0:
        found += _missing_for_gpu(torch, driver)
    elif find_c_compiler() is None:
        found.append(
            Missing(
                "a C compiler, which torch.compile makes kernels with",
                _package_command("gcc"),
            )
        )
    return tuple(found)


def _missing_packages(packages: Sequence[Package]) -> Iterator[Missing]:
    if not packages:
        yield Missing("lmlib as a package (only its files)", _install_command(CORE))
    lacking = defaultdict(list)
    for package in packages:
        if not package.fits:
            here = package.installed or "missing"
            lacking[package.needed_for].append(
                f"{package.name} {package.wanted} ({here})"
            )
    for extra, names in lacking.items():
        what = "lmlib" if extra == CORE else f"lmlib[{extra}]"
        yield Missing(f"for {what}: {', '.join(names)}", _install_command(extra))


def _install_command(extra: str) -> str:
    """Never by its name alone: in the public index that is another project."""
    project = "." if extra == CORE else f"'.[{extra}]'"
    return f"python -m pip install -e {project}  # in lmlib's repository"


def _broken_torch(packages: Sequence[Package]) -> list[Missing]:
    return [
        Missing(
            f"torch that starts: {package.installed} is installed, "
            "but importing it fails",
            _reinstall_command(package.installed),
        )
        for package in packages
        if package.name == "torch" and package.fits
    ]


def _reinstall_command(version: str) -> str:
    """Install torch again, in the build that pip takes for this machine."""
    release = version.partition("+")[0]
    return f"python -m pip install --force-reinstall torch=={release}"


def _missing_for_gpu(torch: ModuleType, driver: str | None) -> list[Missing]:
    if driver is None and not has_nvidia_gpu():
        return []
    if torch.version.cuda is None:
        return [
            Missing(
                f"torch with CUDA: {torch.__version__} is a build for CPUs, "
                "but there is an NVIDIA GPU",
                _reinstall_command(torch.__version__),
            )
        ]
    if driver is None:
        return [
            Missing(
                "a driver: there is an NVIDIA GPU without one", _driver_command()
            )
        ]
    if "CUDA_VISIBLE_DEVICES" in os.environ:
        return [
            Missing(
                "GPUs: CUDA_VISIBLE_DEVICES hides them",
                "unset CUDA_VISIBLE_DEVICES",
            )
        ]
    return [
        Missing(
            f"a driver for CUDA {torch.version.cuda}: torch cannot use a GPU "
            f"with driver {driver}",
            _driver_command(),
        )
    ]


def _driver_command() -> str:
    if shutil.which("ubuntu-drivers"):
        return "sudo ubuntu-drivers install"
    return _package_command("nvidia-driver")


def _package_command(name: str) -> str:
    if shutil.which("apt-get"):
        return f"sudo apt-get install {name}"
    return f"install {name} with this system's package manager"
