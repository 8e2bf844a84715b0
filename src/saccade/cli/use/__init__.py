"""Verbs that use a trained model: what it says of photos, videos and items, and search with it."""
