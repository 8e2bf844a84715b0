#!/usr/bin/env bash
# Write a lock file: everything that running, testing, linting and documenting Saccade needs, pinned exactly.
# Usage: bash scripts/lock.sh PYTHON TORCH OUT      (`make lock` calls it)
set -euo pipefail
cd "$(dirname "$0")/.."
python=$1 torch=$2 out=$3

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
"$python" -m venv "$scratch/venv"
pip="$scratch/venv/bin/python -m pip --disable-pip-version-check -qq"

# PyTorch first and alone: everything else then has to fit this version, and none can bring another.
$pip install "$torch"
$pip install "setuptools>=77" -e ".[dev,photos,formats,heic,video,hf,parse,search,serve,engines,scale]"

# Drop local versions (+cpu, +cu126) and the GPU libraries that come with PyTorch's own wheel: the lock is for any machine.
{
    cat <<HEAD
# Exact versions of all that running, testing, linting and documenting Saccade needs. Made by \`make lock\`
# with $("$python" --version): $torch is installed first, then pyproject.toml's dependencies and its extras "dev", "photos", "formats",
# "heic", "video", "hf", "parse", "search", "serve", "engines" and "scale",
# and pip freeze names what came. The extras "vectors", "wordnet" and "tune" are not in it. Do not edit by hand.
HEAD
    $pip freeze --all --exclude-editable --exclude pip |
        sed -E 's/\+[a-z0-9.]+$//' | grep -vE '^(nvidia|cuda|triton)|@|^-' | LC_ALL=C sort -f
} >"$scratch/lock"
mv "$scratch/lock" "$out"
