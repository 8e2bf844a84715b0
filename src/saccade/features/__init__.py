"""Extraction: pictures → extractor → store. The only room that knows both `vision` and `data`."""
