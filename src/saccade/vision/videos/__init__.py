"""Videos: files decoded to frames at chosen times, and extractors that see frames or clips of them."""

from saccade.vision.videos.files import read_frames, write_video
from saccade.vision.videos.footage import Footage, Sampling

__all__ = ["Footage", "Sampling", "read_frames", "write_video"]
