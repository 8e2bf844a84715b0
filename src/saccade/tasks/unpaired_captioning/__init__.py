"""Captioning without pairs: pictures of some, sentences of others, and a detector that names things."""
