"""A convolution with its batch normalisation: trained as two, used as one.

`fold` moves each normalisation, as it is in eval mode, into the convolution before it, which changes no output and
saves a pass over every map.
"""

from __future__ import annotations

from torch import nn
from torch.nn.utils.fusion import fuse_conv_bn_eval


class NormedConvolution(nn.Module):
    """What follows the two is the subclass's."""

    conv: nn.Conv2d
    norm: nn.Module

    def fold(self) -> None:
        if isinstance(self.norm, nn.BatchNorm2d):
            training, learns = self.training, self.conv.weight.requires_grad
            self.conv = fuse_conv_bn_eval(self.conv.eval(), self.norm.eval()).train(training)
            self.conv.requires_grad_(learns)  # PyTorch leaves the new bias out of training
            self.norm = nn.Identity()


def fold(module: nn.Module) -> None:
    """Fold every normalisation below `module`, in place."""
    for part in module.modules():
        if isinstance(part, NormedConvolution):
            part.fold()
