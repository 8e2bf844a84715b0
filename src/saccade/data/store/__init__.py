"""Region features on disk, in memory-mapped Arrow files, and parts of them."""
