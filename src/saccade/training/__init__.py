"""The trainer: precision, devices, schedules, checkpoints, exact resume, logs and the run folder."""

from saccade.training.config import TrainerConfig, differing_key
from saccade.training.folder import RunFolder
from saccade.training.optimiser import learning_rate
from saccade.training.seeds import seed_everything
from saccade.training.trainer import FitResult, Trainer

__all__ = ["FitResult", "RunFolder", "Trainer", "TrainerConfig", "differing_key", "learning_rate", "seed_everything"]
