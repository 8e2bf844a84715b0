"""Image–text matching: which pictures belong to which sentences, by a score for every pair."""
