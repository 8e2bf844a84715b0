"""The settings of the world that these tests look at."""

from saccade.world import WorldConfig

SMALL = WorldConfig(pictures=150, seed=3, size=64, hard_groups=16, novel=30)
