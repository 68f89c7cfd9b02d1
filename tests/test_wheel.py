"""The wheel holds the two packages, typed, and nothing else."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The text of each file in the wheel, by path; those of its metadata under "dist-info"."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    (path,) = folder.iterdir()
    distribution = "-".join(path.name.split("-")[:2])
    with zipfile.ZipFile(path) as file:
        return {
            name.replace(f"{distribution}.dist-info/", "dist-info/"): file.read(name).decode()
            for name in file.namelist()
        }


def test_it_holds_just_the_two_packages(wheel: dict[str, str]) -> None:
    assert {name.partition("/")[0] for name in wheel} == {"egraph", "lowering", "dist-info"}


@pytest.mark.parametrize("package", ["egraph", "lowering"])
def test_a_package_is_whole_and_typed(wheel: dict[str, str], package: str) -> None:
    packed = {name for name in wheel if name.startswith(f"{package}/")}
    tree = (ROOT / package).rglob("*")
    source = {p.relative_to(ROOT).as_posix() for p in tree if p.suffix in (".py", ".txt")}
    assert packed == source | {f"{package}/py.typed"}


def test_it_installs_the_command(wheel: dict[str, str]) -> None:
    assert "fxsat = lowering.cli:main" in wheel["dist-info/entry_points.txt"].splitlines()


def test_it_carries_the_licence(wheel: dict[str, str]) -> None:
    assert wheel["dist-info/licenses/LICENSE"] == (ROOT / "LICENSE").read_text()
