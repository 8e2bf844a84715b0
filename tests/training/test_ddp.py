from __future__ import annotations

import os
import subprocess
import sys
from io import StringIO
from pathlib import Path

import torch
from ddp_script import Layered, Plain, Quiet
from rich.console import Console
from toy_training import same_weights, toy_config

from saccade.training import Trainer


def test_two_processes_train_as_one(tmp_path: Path) -> None:
    """Weights stay equal across ranks, match one process on the whole batch, and survive a resume bit by bit; they may
    be shared out among the ranks, or a batch taken in parts."""
    script = Path(__file__).with_name("ddp_script.py")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    for name in ("LOCAL_RANK", "NODE_RANK", "MASTER_PORT"):
        environment.pop(name, None)
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path)], env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    zero, one = (torch.load(tmp_path / f"rank{rank}.pt") for rank in range(2))

    for run in ("whole", "straight", "resumed"):
        assert same_weights(zero["weights"][run], one["weights"][run])
    assert same_weights(zero["weights"]["straight"], zero["weights"]["resumed"])
    assert not same_weights(zero["weights"]["straight"], zero["weights"]["whole"])

    alone = Plain(seed=1)
    Trainer(toy_config(), tmp_path / "alone", Console(file=StringIO())).fit(alone, Quiet())
    for name, weight in alone.state_dict().items():
        torch.testing.assert_close(zero["weights"]["whole"][name], weight, rtol=1e-4, atol=1e-5)

    added = torch.load(tmp_path / "accumulated" / "last" / "model.pt")
    for name, weight in alone.state_dict().items():
        torch.testing.assert_close(added[name], weight, rtol=1e-4, atol=1e-5)

    layered = Layered(seed=1)
    Trainer(toy_config(), tmp_path / "layered", Console(file=StringIO())).fit(layered, Quiet())
    sharded, resumed = (torch.load(tmp_path / run / "last" / "model.pt") for run in ("sharded", "sharded-resumed"))
    assert same_weights(sharded, resumed)
    for name, weight in layered.state_dict().items():
        if name == "layer.qkv.bias":  # a softmax is blind to keys' biases: Adam makes steps of what rounding leaves
            weight, sharded[name] = (torch.cat([bias[:8], bias[16:]]) for bias in (weight, sharded[name]))
        torch.testing.assert_close(sharded[name], weight, rtol=1e-4, atol=1e-5)

    assert zero["best"] == one["best"]
    assert "already holds a run" in zero["sentence"]  # and the other rank hears of it, rather than wait
    assert one["sentence"] == zero["sentence"]
