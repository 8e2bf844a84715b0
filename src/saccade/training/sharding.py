"""Several devices that share out one model: every rank keeps a part of all weights and of what the optimiser remembers.

PyTorch's fully sharded data parallelism (FSDP2) under Lightning Fabric. A layer's weights are gathered when it is used
and given back afterwards. Evaluation and saving see the whole model: `Whole` gathers it.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from saccade.nn.transformer import Layer
from saccade.training.config import TrainerConfig

if TYPE_CHECKING:
    from lightning_fabric.strategies.strategy import Strategy
    from torch.distributed.device_mesh import DeviceMesh

FSDP = "fsdp"


def strategy_of(config: TrainerConfig) -> str | Strategy:
    """What Fabric is to be given."""
    if config.strategy != FSDP:
        return config.strategy
    from lightning_fabric.strategies.model_parallel import ModelParallelStrategy  # late: it takes seconds to import

    return ModelParallelStrategy(shard, config.devices * config.nodes, 1)


def shard(module: nn.Module, mesh: DeviceMesh) -> nn.Module:
    """Transformer layers by themselves, everything else together; all begin as rank zero does."""
    from torch.distributed.fsdp import fully_shard

    for weight in (*module.parameters(), *module.buffers()):
        torch.distributed.broadcast(weight.data, 0)
    ranks = mesh["data_parallel"]
    for layer in module.modules():
        if isinstance(layer, Layer):
            fully_shard(layer, mesh=ranks)
    fully_shard(module, mesh=ranks)
    return module


class Whole:
    """The whole of a sharded model, and of what its optimiser remembers. Every rank must ask, at the same time."""

    def __init__(self, model: nn.Module, device: torch.device) -> None:
        """Before the model is sharded."""
        self.model = copy.deepcopy(model).to(device).requires_grad_(False)

    def gather(self, sharded: nn.Module) -> nn.Module:
        """The model with the weights of now."""
        self.model.load_state_dict(full_weights(sharded))
        return self.model


def full_weights(sharded: nn.Module) -> dict[str, Tensor]:
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict

    found = get_model_state_dict(sharded, options=StateDictOptions(full_state_dict=True))
    return {name: weight for name, weight in found.items() if isinstance(weight, Tensor)}


def full_optimiser(sharded: nn.Module, optimiser: Optimizer) -> dict[str, Any]:
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_optimizer_state_dict

    return get_optimizer_state_dict(sharded, optimiser, options=StateDictOptions(full_state_dict=True))


def load_optimiser(sharded: nn.Module, optimiser: Optimizer, state: Mapping[str, Any]) -> None:
    from torch.distributed.checkpoint.state_dict import StateDictOptions, set_optimizer_state_dict

    set_optimizer_state_dict(sharded, optimiser, dict(state), options=StateDictOptions(full_state_dict=True))
