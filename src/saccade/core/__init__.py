"""What everything stands on: errors, files, the cache, settings, safe arrays, weights, pickles, progress, threads."""
