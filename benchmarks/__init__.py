"""How fast Saccade is: each row against the official algorithm and against the hardware's floor, in one run."""
