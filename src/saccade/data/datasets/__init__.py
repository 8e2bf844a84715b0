"""Data sets, one file each, by what they hold; `data/registry.py` lists them."""
