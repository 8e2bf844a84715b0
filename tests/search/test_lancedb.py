"""How LanceDB is imported: without the REST client of its namespaces, which nobody misses."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

CLIENT = "lance_namespace_urllib3_client"


def run(script: str, *places: Path) -> str:
    """What a script prints in a process of its own, with these folders first on its path."""
    places_and_path = [*map(str, places), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(places_and_path)}
    script = f"import sys\nfrom saccade.search.table import import_lancedb\n{script}"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_rest_client_comes_when_it_is_asked_for() -> None:
    told = run(f"""
lancedb = import_lancedb()
print("{CLIENT}.api" in sys.modules, "{CLIENT}" in sys.modules)
import {CLIENT} as client
print(client.ListTablesResponse is lancedb.db.ListTablesResponse, client.TableApi.__module__)
print(import_lancedb() is lancedb, sys.modules["{CLIENT}"] is client)
""")
    assert told.split() == ["False", "False", "True", f"{CLIENT}.api.table_api", "True", "True"]


def test_a_version_that_needs_the_rest_client_gets_it(tmp_path: Path) -> None:
    (tmp_path / "lancedb.py").write_text(f"from {CLIENT} import TableApi\n")
    assert run("print(import_lancedb().TableApi.__name__)", tmp_path) == "TableApi"


def test_without_lancedb_there_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "lancedb.py").write_text("import a_module_that_is_not_installed\n")
    assert "pip install 'saccade[search]'" in run(
        "try: import_lancedb()\nexcept Exception as error: print(error)", tmp_path
    )
