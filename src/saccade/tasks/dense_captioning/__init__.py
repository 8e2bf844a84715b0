"""Dense captioning: find the regions of a picture that are worth a phrase, and say one of each."""
