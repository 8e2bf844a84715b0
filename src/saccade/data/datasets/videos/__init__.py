"""Videos with sentences, whole or of moments."""
