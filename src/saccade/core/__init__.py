"""What everything stands on: errors, atomic files, settings, safe weights and pickles, progress, threads."""
