"""Run the notebooks of notebooks/ as they stand, cell by cell, and keep what they show in them.

python scripts/run_notebooks.py                     all of them, in place
python scripts/run_notebooks.py NAME.ipynb -o FILE  one of them; the result goes to FILE

Jupyter runs them as well. This needs no more than the tests have: a cell's prints and its last value are what it shows,
Pillow's pictures (what has a `_repr_jpeg_`) as pictures, what has a `_repr_html_` as that. It runs in the folder of the
notebook.
"""

from __future__ import annotations

import argparse
import ast
import base64
import contextlib
import io
import json
import os
from pathlib import Path
from typing import Any

NOTEBOOKS = Path(__file__).resolve().parent.parent / "notebooks"


def run(notebook: dict[str, Any]) -> None:
    """Run every cell in one namespace and put what it shows into the notebook."""
    names: dict[str, Any] = {"__name__": "__main__"}
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    for count, cell in enumerate(code, 1):
        cell["execution_count"] = count
        cell["outputs"] = outputs("".join(cell["source"]), names, count)


def outputs(source: str, names: dict[str, Any], count: int) -> list[dict[str, Any]]:
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, f"cell {count}", "exec"), names)
        value = eval(compile(ast.Expression(last.value), f"cell {count}", "eval"), names) if last else None
    found: list[dict[str, Any]] = []
    if printed.getvalue():
        text = printed.getvalue().splitlines(keepends=True)
        found.append({"output_type": "stream", "name": "stdout", "text": text})
    if value is not None:
        data: dict[str, Any] = {"text/plain": [repr(value)]}
        if hasattr(value, "_repr_jpeg_"):
            data = {"image/jpeg": base64.b64encode(value._repr_jpeg_()).decode(), "text/plain": ["a picture"]}
        elif hasattr(value, "_repr_html_"):
            data = {"text/html": [value._repr_html_()], "text/plain": repr(value).splitlines(keepends=True)}
        found.append({"output_type": "execute_result", "execution_count": count, "metadata": {}, "data": data})
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("notebooks", nargs="*", type=Path, default=sorted(NOTEBOOKS.glob("*.ipynb")))
    parser.add_argument("-o", "--out", type=Path, help="where the result goes; if not given, over the notebook")
    given = parser.parse_args()
    for path in [path.resolve() for path in given.notebooks]:
        notebook = json.loads(path.read_text(encoding="utf-8"))
        out = given.out.resolve() if given.out else path
        os.chdir(path.parent)
        run(notebook)
        out.write_text(json.dumps(notebook, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
