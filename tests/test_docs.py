"""What must hold for the documentation: the site, its mathematics, its glossary, and what it says can be run."""

from __future__ import annotations

import base64
import json
import os
import re
import runpy
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import markdown
import pytest
import yaml

from saccade.models import entries

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
SECTIONS = ["Start", "Guides", "Systems", "Data", "Results", "Reference"]
CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.DOTALL | re.MULTILINE)

# Pages that a newcomer reads, and the terms that they link to the glossary where they first use them.
MAIN_PAGES = ["index", "quickstart", "concepts", "photos", "training", "evaluation", "captioning", "systems/index"]
TERMS = {
    "extractor": r"[Ee]xtractors?",
    "backbone": r"[Bb]ackbones?",
    "recipe": r"[Rr]ecipes?",
    "rsum": r"rsum",
    "hard-twins": r"[Hh]ard\s+twins",
    "hard-negatives": r"[Hh]ard(?:est)?\s+negatives?",
    "self-critical": r"[Ss]elf-critical",
    "contrastive-loss": r"[Cc]ontrastive\s+loss",
    "cider-d": r"CIDEr-D",
    "golden": r"[Gg]oldens?",
    "foil": r"[Ff]oils?",
}


def plain(page: Path) -> str:
    """The page without code."""
    return CODE.sub(lambda code: " " * len(code.group()), page.read_text(encoding="utf-8"))


def anchors(page: Path) -> set[str]:
    """Where links into a page can lead: its headings."""
    headings = re.findall(r"^#+ (.+)$", plain(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


def first_use(text: str, term: str) -> re.Match[str] | None:
    """The first place in running text, neither in a heading nor within a link to elsewhere."""
    away = re.compile(r"^#.*?$|\[[^\]]*\]\((?![^)]*glossary\.md#)[^)]*\)|!\[[^\]]*\]|\]\([^)]*\)", re.MULTILINE)
    return re.search(rf"(?<![\w-]){term}(?![\w-])", away.sub(lambda m: " " * len(m.group()), text))


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built once."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    built = subprocess.run(command, cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, capture_output=True)
    assert built.returncode == 0, built.stderr.decode()
    return folder


def test_a_page_fetches_nothing_from_elsewhere_and_search_needs_no_server(site: Path) -> None:
    fetched = re.compile(r'<(?:script|img|iframe|source)[^>]*\ssrc="([^"]+)"|<link[^>]*\shref="([^"]+)"')
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 70
    for page in pages:
        if page.name == "404.html":  # whose addresses are those of a server
            continue
        for address in {a or b for a, b in fetched.findall(page.read_text(encoding="utf-8"))}:
            parts = urlsplit(address)
            assert not parts.scheme, f"{page.name} fetches {address}"
            assert not parts.netloc, f"{page.name} fetches {address}"
            assert parts.path in (".", "") or (page.parent / parts.path).exists(), f"{page.name}: {address} is missing"
    for sheet in site.rglob("*.css"):
        for address in re.findall(r"url\([\"']?([^)\"']+)", sheet.read_text(encoding="utf-8")):
            assert address.startswith("data:") or (sheet.parent / address).exists(), f"{sheet.name}: {address}"

    index = (site / "search" / "search_index.js").read_text(encoding="utf-8")
    found = json.loads(index.removeprefix("var __index = "))["docs"]
    assert any(entry["location"] == "glossary.html#hard-twins" for entry in found)
    for needed in ("assets/iframe-worker/shim.js", "assets/katex/katex.min.js", "assets/mathematics.js"):
        assert f'src="../{needed}"' in (site / "systems" / "scan.html").read_text(encoding="utf-8")


def test_every_equation_is_set_and_uses_what_katex_knows() -> None:
    katex = (DOCS / "assets" / "katex" / "katex.min.js").read_text(encoding="utf-8")
    known = set(re.findall(r"\\\\([A-Za-z]+)", katex)) | {"begin", "end", "left", "right", "text", "operatorname"}
    marked = re.compile(r'class="arithmatex">\\[\(\[](.*?)\\[\)\]]<', re.DOTALL)
    options = {"pymdownx.arithmatex": {"generic": True}}
    assert options in yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["markdown_extensions"]
    reader = markdown.Markdown(extensions=["tables", "fenced_code", *options], extension_configs=options)
    for page in [*sorted((DOCS / "systems").glob("*.md")), DOCS / "concepts.md"]:
        text = plain(page)
        assert text.count("$$") % 2 == 0, page.name
        written = len(re.findall(r"\$\$.+?\$\$|(?<![\$\\])\$(?!\s)[^$\n]+?\$", text, re.DOTALL))
        found = marked.findall(reader.reset().convert(page.read_text(encoding="utf-8")))
        assert len(found) == written, f"{page.name}: {written} equations are written, {len(found)} are set"
        for equation in found:
            unknown = set(re.findall(r"\\([A-Za-z]+)", equation)) - known
            assert not unknown, f"{page.name}: {equation}"
            assert equation.count("{") - equation.count(r"\{") == equation.count("}") - equation.count(r"\}"), equation
            assert equation.count(r"\left") - equation.count(r"\leftarrow") == equation.count(r"\right"), equation
    named = [entry.name for entry in entries() if (DOCS / "systems" / f"{entry.name}.md").exists()]
    for name in named:
        assert "$" in plain(DOCS / "systems" / f"{name}.md"), f"{name}.md has no equation"
        assert not re.search(
            r"^```text\n[^`]*[Σ∝√]", (DOCS / "systems" / f"{name}.md").read_text(encoding="utf-8"), re.M
        )


def test_the_site_has_six_sections() -> None:
    nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]
    assert [title for section in nav for title in section] == SECTIONS


@pytest.mark.parametrize("name", MAIN_PAGES)
def test_a_page_links_a_term_to_the_glossary_where_it_first_uses_it(name: str) -> None:
    text = plain(DOCS / f"{name}.md")
    for anchor, term in TERMS.items():
        use = first_use(text, term)
        if use is not None:
            link = re.match(rf"[^\]]*\]\([./]*glossary\.md#{anchor}\)", text[use.start() :])
            line = text[: use.start()].count("\n") + 1
            assert link, f"docs/{name}.md:{line}: link “{use.group()}” to glossary.md#{anchor}"


def test_links_to_the_glossary_resolve_and_its_terms_have_one_place() -> None:
    terms = re.findall(r"^### (.+)$", (DOCS / "glossary.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert len(terms) == len(set(terms)) >= 30
    known = anchors(DOCS / "glossary.md")
    assert TERMS.keys() <= known
    for page in [*DOCS.rglob("*.md"), ROOT / "README.md"]:
        for target in re.findall(r"glossary\.md#([\w-]+)", page.read_text(encoding="utf-8")):
            assert target in known, f"{page.name}: glossary.md#{target}"


def test_the_survey_is_up_to_date_and_has_a_row_for_every_system() -> None:
    script = runpy.run_path(str(ROOT / "scripts" / "survey.py"))
    assert script["PAGE"].read_text(encoding="utf-8") == script["page"](), "run `make docs`"
    facts = yaml.safe_load((ROOT / "src/saccade/models/systems.yaml").read_text(encoding="utf-8"))
    own = {e.name for e in entries() if e.model.__module__.startswith("saccade.") and not e.fine_tunes}
    assert own <= facts.keys()
    assert sorted(fact["number"] for fact in facts.values() if "number" in fact) == list(range(1, 26))
    survey = (DOCS / "systems" / "survey.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| ([\d–]+) \|.*\| (\*\*here\*\*|coming) \|$", survey, re.MULTILINE))
    listed = (DOCS / "systems" / "index.md").read_text(encoding="utf-8")
    assert rows.items() >= dict(re.findall(r"^\| (\d+) \|.*\| (\*\*here\*\*|coming) \|$", listed, re.MULTILINE)).items()


def test_the_house_is_up_to_date_and_has_every_room_in_its_order() -> None:
    script = runpy.run_path(str(ROOT / "scripts" / "house_picture.py"))
    assert script["PICTURE"].read_text(encoding="utf-8") == script["house"](), "run `make docs`"
    drawn = [name for _, rooms in script["STOREYS"] for name, *_ in rooms] + [script["ROOF"][0]]
    design = (DOCS / "design.md").read_text(encoding="utf-8").split("## The house")[1].split("\n## ")[0]
    listed = [
        name for row in re.findall(r"^\| (`.*?) \|", design, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)
    ]
    assert drawn == listed
    assert sorted(drawn) == sorted(path.parent.name for path in (ROOT / "src/saccade").glob("*/__init__.py"))


def test_the_quickstart_works_as_printed(tmp_path: Path, record_property: Callable[[str, object], None]) -> None:
    text = (DOCS / "quickstart.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```(bash|python)\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    assert blocks[0] == ("bash", 'pip install -e ".[photos]"\n')  # which the environment of the tests has done
    assert 'pip install -e ".[photos]"' in (DOCS / "index.md").read_text(encoding="utf-8")
    shutil.copytree(ROOT / "photos", tmp_path / "photos")
    said = ""
    for language, block in blocks[1:]:
        saccade = f'saccade() {{ "{sys.executable}" -m saccade "$@"; }}\nset -e\n'
        command = ["bash", "-c", saccade + block] if language == "bash" else [sys.executable, "-c", block]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "200"}
        result = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert result.returncode == 0, f"{block}\n{result.stdout}\n{result.stderr}"
        said += result.stdout
        record_property("steps of the quickstart run", block.split()[1] if language == "bash" else "from Python")
    assert {"why.png", "sheet.png", "why-toys.png", "toys", "runs"} <= {path.name for path in tmp_path.iterdir()}
    assert "rsum" in said
    assert [block.startswith("saccade train") for _, block in blocks].count(True) == 1


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_holds_what_it_shows(
    path: Path, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    def shown(notebook: dict[str, Any]) -> list[list[list[str]]]:
        return [
            [sorted(o.get("data", {"text": ""})) for o in c["outputs"]] for c in notebook["cells"] if "outputs" in c
        ]

    kept = json.loads(path.read_text(encoding="utf-8"))
    assert path.stat().st_size <= 300_000
    command = [sys.executable, ROOT / "scripts" / "run_notebooks.py", path, "-o", tmp_path / "run.ipynb"]
    result = subprocess.run(
        command, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    assert shown(json.loads((tmp_path / "run.ipynb").read_text(encoding="utf-8"))) == shown(kept)
    shows = [output["data"] for c in kept["cells"] for output in c.get("outputs", []) if "data" in output]
    assert shows
    for data in shows:
        if "text/html" in data:
            assert "data:image/jpeg;base64," in "".join(data["text/html"])
        else:
            assert base64.b64decode(data["image/jpeg"]).startswith(b"\xff\xd8")
    record_property("notebooks run", path.stem)


def test_there_are_four_notebooks() -> None:
    names = ["add-a-model", "search-an-index", "search-your-photos", "train-and-explain"]
    assert [path.stem for path in NOTEBOOKS] == names
