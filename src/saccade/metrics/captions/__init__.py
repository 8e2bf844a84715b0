"""How good captions are: n-grams, METEOR, scene graphs and diversity (`reward` is training's, and needs PyTorch)."""
