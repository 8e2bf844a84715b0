"""A hook of mkdocs: every notebook of notebooks/ becomes a page of the site, with its pictures and the file itself.

Links between pages and notebooks are written as they lead in the repository, and turned here.
"""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

NOTEBOOKS = Path(__file__).resolve().parent.parent / "notebooks"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        text, pictures = as_page(path)
        files.append(File.generated(config, f"notebooks/{path.stem}.md", content=text))
        files.append(File.generated(config, f"notebooks/{path.name}", content=path.read_text(encoding="utf-8")))
        for name, content in pictures.items():
            files.append(File.generated(config, f"notebooks/{name}", content=content))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    up = "../" * page.file.src_uri.count("/")
    return re.sub(r"\]\((?:\.\./)+notebooks/([\w-]+)\.ipynb\)", rf"]({up}notebooks/\1.md)", markdown)


def as_page(path: Path) -> tuple[str, dict[str, bytes]]:
    """The notebook as Markdown, and its pictures by file name."""
    pictures: dict[str, bytes] = {}
    parts: list[str] = []
    for number, cell in enumerate(json.loads(path.read_text(encoding="utf-8"))["cells"]):
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source.replace("](../docs/", "](../"))
            continue
        parts.append(f"```python\n{source}\n```")
        for output in cell["outputs"]:
            parts.append(shown(output, f"{path.stem}-{number}.jpg", pictures))
    note = f"*[`notebooks/{path.name}`]({path.name}), with the output of its last run.*"
    return "\n\n".join([parts[0], note, *parts[1:]]) + "\n", pictures


def shown(output: dict[str, Any], name: str, pictures: dict[str, bytes]) -> str:
    if output["output_type"] == "stream":
        return f"```text\n{''.join(output['text']).rstrip()}\n```"
    if "image/jpeg" in output["data"]:
        pictures[name] = base64.b64decode("".join(output["data"]["image/jpeg"]))
        return f"![what the cell shows]({name})"
    if "text/html" in output["data"]:
        return "".join(output["data"]["text/html"])
    return f"```text\n{''.join(output['data']['text/plain'])}\n```"
