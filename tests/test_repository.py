"""What must hold for the repository as a whole: its layers, its sizes, its pins, its links."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import tomllib
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from saccade.models import entries

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "saccade"
SOURCES = sorted(PACKAGE.rglob("*.py"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])

HEIGHTS = [  # a room may import its own height and what is lower: see docs/design.md
    {"version"},
    {"core"},
    {"batch"},
    {"ops"},
    {"metrics", "language", "world", "vision"},
    {"data"},
    {"features"},
    {"nn"},
    {"models"},
    {"explain"},
    {"decoding"},
    {"tasks"},
    {"training"},
    {"interop"},
    {"search"},
    {"serve"},
    {"lab"},
    {"cli", "__main__"},
]
HEIGHT = {room: height for height, rooms in enumerate(HEIGHTS) for room in rooms}
SERVICE = {"fastapi", "starlette", "pydantic", "prometheus_client", "uvicorn", "h11"}
DISTRIBUTION_OF_MODULE = {"PIL": "pillow", "yaml": "pyyaml"}


def tracked() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    return [path for name in listed.decode().split("\0") if name and (path := ROOT / name).is_file()]


def imports(path: Path) -> Iterator[tuple[str, bool]]:
    """Every module that a file imports, and whether it does so when it is itself imported."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    within = {
        node
        for part in ast.walk(tree)
        if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef)
        or (isinstance(part, ast.If) and ast.unparse(part.test) == "TYPE_CHECKING")
        for node in ast.walk(part)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are written in full"
            assert node.module is not None
            names = [f"saccade.{a.name}" for a in node.names] if node.module == "saccade" else [node.module]
        else:
            continue
        yield from ((name, node not in within) for name in names)


def requirements(lines: list[str]) -> dict[str, Requirement]:
    return {canonicalize_name(r.name): r for r in map(Requirement, lines)}


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_nothing_lower_imports_anything_higher(path: Path) -> None:
    room = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    if room == "__init__":  # the front door opens onto every room
        return
    assert room in HEIGHT, f"{room} is a new room: give it a height here and a row in docs/design.md"
    for module, _ in imports(path):
        if module.startswith("saccade."):
            other = module.split(".")[1]
            assert HEIGHT.get(other, 99) <= HEIGHT[room], f"{room} must not know {other}"


def test_models_know_operators_not_their_fast_forms() -> None:
    for path in [*(PACKAGE / "models").rglob("*.py"), *(PACKAGE / "nn").rglob("*.py")]:
        fast = [name for name, _ in imports(path) if name.startswith(("saccade.ops.native", "saccade.ops.triton"))]
        assert not fast, f"{path.relative_to(ROOT)} imports {fast[0]}: that is for a row of a dispatch table"


def test_importing_the_package_needs_only_its_dependencies() -> None:
    declared = requirements(PROJECT["dependencies"]).keys()
    for path in SOURCES:
        for module, at_import in imports(path):
            top = module.split(".")[0]
            if top == "triton" and path.parent.name == "triton":
                continue  # kernels: imported by what has found Triton (see below)
            if path.parent.name == "serve" and path.parent.parent == PACKAGE and top in SERVICE:
                continue  # imported by the verb, which has looked for them (tests/serve/test_serve_cli.py)
            if at_import and top != "saccade" and top not in sys.stdlib_module_names:
                name = canonicalize_name(DISTRIBUTION_OF_MODULE.get(top, top))
                assert name in declared, (
                    f"{path.relative_to(ROOT)} imports {top}, which pyproject.toml does not require"
                )


def test_importing_a_room_brings_nothing_heavy() -> None:
    heavy = {"transformers", "h5py", "lmdb", "tensorboard", "lightning_fabric", "triton"}
    script = f"import sys, saccade.vision, saccade.data, saccade.explain; print(*({heavy} & sys.modules.keys()))"
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert found.stdout.split() == []


def test_the_lock_pins_exactly_what_the_project_asks_for() -> None:
    lines = (ROOT / "requirements.lock").read_text(encoding="utf-8").splitlines()
    pins = [line for line in lines if not line.startswith("#")]
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.]+", pin) for pin in pins), "name==version, and no more"
    locked = requirements(pins)
    assert str(locked["torch"].specifier) == "==2.13.0"
    assert not [name for name in locked if name.startswith(("nvidia", "triton", "cuda"))]
    for name, wanted in requirements(PROJECT["dependencies"] + PROJECT["optional-dependencies"]["dev"]).items():
        assert name in locked, f"{name} is not in requirements.lock: run `make lock`"
        version = str(locked[name].specifier).removeprefix("==")
        assert wanted.specifier.contains(version), f"{name} {version} is not {wanted.specifier}: run `make lock`"


def test_no_file_names_a_machine_or_a_registry() -> None:
    traces = re.compile(rb"/(?:work|farm|root)/|(?:pypi|npmjs|debian)\.org")
    for path in tracked():
        found = traces.search(path.read_bytes())
        assert not found, f"{path.relative_to(ROOT)} holds {found.group().decode()!r}"


def test_no_file_is_large() -> None:
    for path in tracked():
        most = 40_000_000 if path.suffix == ".safetensors" else 1_000_000
        assert path.stat().st_size <= most, f"{path.relative_to(ROOT)} has {path.stat().st_size:,} bytes"


def test_the_weights_of_the_package_are_small() -> None:
    sizes = {path: path.stat().st_size for path in PACKAGE.rglob("weights/**/*") if path.is_file()}
    photos = {"scan-flickr8k", "show_attend_tell-flickr8k", "bottomup"}  # matcher, captioner and detector
    for most, counted in ((60_000_000, [p for p in sizes if p.parent.name in photos]), (66_000_000, list(sizes))):
        total = sum(sizes[path] for path in counted)
        assert 0 < total < most, f"{total:,} bytes of trained weights come with the package"


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_source_files_are_small_and_named_for_what_they_hold(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 500
    assert path.stem not in {"utils", "util", "helpers", "helper", "misc", "common"}


def test_every_name_is_defined() -> None:
    """Ruff and mypy do not say so in this project: both would take the shapes of jaxtyping for names."""
    folders = ("src", "tests", "scripts", "benchmarks")
    command = [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "F821", "--output-format", "json"]
    found = subprocess.run([*command, *folders], cwd=ROOT, capture_output=True, text=True)
    undefined = []
    for fault in json.loads(found.stdout):
        path, place = Path(fault["filename"]), fault["location"]
        line = path.read_text(encoding="utf-8").splitlines()[place["row"] - 1]
        if line[: place["column"] - 1].count('"') % 2 == 0:  # not within the quotes of a shape
            undefined.append(f"{path.relative_to(ROOT)}:{place['row']}: {fault['message']}")
    assert undefined == []


def test_no_two_files_of_tests_have_one_name() -> None:
    """Pytest imports them by name alone: of two with one name, the second is not run."""
    names = [path.name for path in (ROOT / "tests").rglob("*.py") if path.name not in ("conftest.py", "__init__.py")]
    assert sorted({name for name in names if names.count(name) > 1}) == []


def test_every_folder_says_what_lives_there() -> None:
    for folder in {path.parent for path in SOURCES}:
        front = folder / "__init__.py"
        assert front.exists(), f"{folder.relative_to(ROOT)} has no __init__.py"
        assert ast.get_docstring(ast.parse(front.read_text(encoding="utf-8"))), (
            f"{front.relative_to(ROOT)}: one sentence"
        )


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    text = re.sub(r"^```.*?^```|`[^`\n]*`", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if not target.startswith(("http://", "https://", "#")):
            assert (page.parent / target.split("#")[0]).exists(), f"{target} is not there"


def test_the_site_has_every_page_and_only_those() -> None:
    def pages(nav: object) -> Iterator[str]:
        if isinstance(nav, str):
            yield nav
        else:
            for part in nav.values() if isinstance(nav, dict) else nav:  # type: ignore[attr-defined]
                yield from pages(part)

    listed = list(pages(yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]))
    written = [str(p.relative_to(ROOT / "docs")) for p in (ROOT / "docs").rglob("*.md")]
    made = [f"notebooks/{p.stem}.md" for p in (ROOT / "notebooks").glob("*.ipynb")]  # by scripts/site_notebooks.py
    assert sorted(listed) == sorted(written + made)


def test_the_command_line_page_says_what_the_program_says() -> None:
    script = [sys.executable, ROOT / "scripts" / "cli_docs.py", "--check"]
    result = subprocess.run(script, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


def test_every_model_has_its_page_and_is_marked_as_here() -> None:
    def rows(path: Path) -> dict[str, str]:
        """The table of systems: name (as written, link and all) and state."""
        pattern = r"^\| (?:[–\d]+ \| )?([^|]*\w[^|]*) \|.*\| (\*\*here\*\*[^|]*|coming[^|]*) \|$"
        return dict(re.findall(pattern, path.read_text(encoding="utf-8"), re.MULTILINE))

    listed = rows(ROOT / "docs" / "systems" / "index.md")
    plain = {re.sub(r"\[(.*)\]\(.*\)", r"\1", name): state for name, state in listed.items()}
    assert rows(ROOT / "README.md") == plain
    pages = [re.search(r"\]\((.*)\.md\)", name) for name, state in listed.items() if state.startswith("**here**")]
    named = {e.name for e in entries() if e.task != "detection" and not e.fine_tunes}  # the detectors share a page
    assert {page and page.group(1) for page in pages} == named | {"../detector"}
    assert all((ROOT / "docs" / "systems" / f"{name}.md").exists() for name in named)


def test_make_puts_its_environment_where_it_is_told() -> None:
    environment = {**os.environ, "SACCADE_VENV": "elsewhere"}
    plan = subprocess.run(["make", "-n", "test"], cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    assert "elsewhere/bin/python -m pytest" in plan.stdout
    assert ".venv" not in plan.stdout


def test_ci_runs_the_test_command_of_the_readme() -> None:
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    assert re.search(r"^make test$", script.read_text(encoding="utf-8"), re.MULTILINE)
    assert re.search(r"^make test\b", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE)


def test_the_time_of_the_tests_is_stated_once() -> None:
    stated = re.compile(r"(?:make test|the tests|test suite|pytest)\b[^.;\n]{0,60}\b(?:minutes?|about \w+)\b")
    pages = [*PAGES, ROOT / "Makefile", ROOT / ".ci" / "run", ROOT / "pyproject.toml", ROOT / "tests" / "conftest.py"]
    texts = {page: " ".join(page.read_text(encoding="utf-8").split()) for page in pages}
    assert {page.name: len(stated.findall(text)) for page, text in texts.items() if stated.search(text)} == {
        "README.md": 1
    }
    assert "README.md says how long" in texts[ROOT / "Makefile"]


def test_a_run_says_at_its_end_what_it_covered(tmp_path: Path) -> None:
    """Once, also where the tests ran in two processes."""
    (tmp_path / "tests" / "core").mkdir(parents=True)
    (tmp_path / "tests" / "conftest.py").write_text("from covered import pytest_terminal_summary\n")
    shutil.copy(ROOT / "tests" / "covered.py", tmp_path / "tests")
    (tmp_path / "tests" / "core" / "test_a.py").write_text(
        "import pytest\n@pytest.mark.parametrize('name', ['scan', 'vse', 'vse'])\n"
        "def test(name, record_property): record_property('goldens verified', name)\n"
        "def test_fails(record_property): record_property('goldens verified', 'camp'); assert False\n"
    )
    (tmp_path / "tests" / "test_b.py").write_text("def test(): pass\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "xdist", "-n", "2", "tests"]
    alone = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    said = subprocess.run(command, cwd=tmp_path, env=alone, capture_output=True, text=True, check=False).stdout
    assert said.count("what was covered") == 1
    assert "4 passed: core 3, repository 1\ngoldens verified: 2 (scan, vse)\n" in said
