"""One file per data set; `data/registry.py` lists them."""
