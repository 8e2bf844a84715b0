"""Questions about pictures, one file per data set."""
