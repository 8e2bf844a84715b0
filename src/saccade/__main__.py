"""`python -m saccade` is `saccade`."""

from saccade.cli import run

if __name__ == "__main__":
    run()
