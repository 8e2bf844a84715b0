"""Bilinear RoI sampling: read a grid of features inside a box, differentiable in the features and in the box.

Max-pooled RoIs (Fast R-CNN) round the box to cells, so no gradient reaches its corners. DenseCap (Johnson, Karpathy,
Fei-Fei; CVPR 2016, after Jaderberg's spatial transformers) reads the map at `size` × `size` points inside the box
by bilinear interpolation instead: moving a corner moves the points, and the gradient says where to.

Two conventions on where the points lie:

`centres` (ours)
    The map covers the picture from 0 to 1, cell j of W has its centre at (j + ½)/W, and the box is cut into size × size
    equal bins that are read at their centres. Points off the map take the nearest edge cell. A box of k × k cells
    read at size k returns exactly those cells, at any resolution of the map.

`densecap`
    The released code. Boxes are (xc, yc, w, h) in 1-based pixels of an image of W × H, the points reach from edge to
    edge of the box (−1 and +1 included), and the affine map is x = (w/W)·u + (2xc − W − 1)/(W − 1): the scale divides
    by W and the offset by W − 1, so small boxes are read slightly off their place, the more the nearer to the border.
    The map's first and last cell centres sit at −1 and +1 (`align_corners=True`), outside is zero. Kept for checkpoints
    trained with it.

`roi_max` is the older way, for comparison.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

Convention = Literal["centres", "densecap"]
Padding = Literal["zeros", "border"]  # what a point off the map reads

Maps: TypeAlias = Float[Tensor, "image channel row column"]
Boxes: TypeAlias = Float[Tensor, "region 4"]
Regions: TypeAlias = Int[Tensor, " region"]  # the picture of each, or a cell
Points: TypeAlias = Float[Tensor, "region size size 2"]
Inside: TypeAlias = Float[Tensor, "region channel size size"]
Bins: TypeAlias = Int[Tensor, "region size"]


def roi_bilinear(
    maps: Maps,
    boxes: Boxes,
    image_index: Regions,
    size: int = 7,
    convention: Convention = "centres",
    image_size: tuple[int, int] | None = None,
) -> Inside:
    """Features inside each box (x1, y1, x2, y2 in 0..1) of picture `image_index[region]`.

    `image_size` (height, width in pixels) is needed by the `densecap` convention alone.
    """
    if convention == "densecap":
        if image_size is None:
            raise ValueError("the densecap convention needs image_size, (height, width) in pixels")
        points = densecap_points(densecap_theta(densecap_boxes(boxes, image_size), image_size), size).flip(-1)
        return sample(maps, points, image_index, padding="zeros", align_corners=True)
    return sample(maps, centre_points(boxes, size), image_index, padding="border", align_corners=False)


def centre_points(boxes: Boxes, size: int) -> Points:
    """The (x, y) centres of size × size equal bins of each box, from 0..1 to the −1..1 of `grid_sample`."""
    steps = (torch.arange(size, device=boxes.device, dtype=boxes.dtype) + 0.5) / size
    low, side = boxes[:, :2], boxes[:, 2:] - boxes[:, :2]
    x = low[:, :1] + side[:, :1] * steps  # [region, size]
    y = low[:, 1:] + side[:, 1:] * steps
    shape = (len(boxes), size, size)
    return torch.stack([x[:, None, :].expand(shape), y[:, :, None].expand(shape)], dim=-1) * 2 - 1


def densecap_boxes(boxes: Boxes, image_size: tuple[int, int]) -> Boxes:
    """x1, y1, x2, y2 in 0..1 to xc, yc, w, h in 1-based pixels: the whole picture has xc = (W + 1)/2 and w = W."""
    height, width = image_size
    scale = boxes.new_tensor([width, height])
    return torch.cat(
        [(boxes[:, :2] + boxes[:, 2:]) / 2 * scale + 0.5, (boxes[:, 2:] - boxes[:, :2]) * scale],
        dim=1,
    )


def densecap_theta(boxes: Boxes, image_size: tuple[int, int]) -> Float[Tensor, "region 2 3"]:
    """The affine maps of xc, yc, w, h boxes: rows give y and x, columns multiply (y, x, 1)."""
    height, width = image_size
    xc, yc, w, h = boxes.unbind(dim=1)
    zero = torch.zeros_like(xc)
    rows = [h / height, zero, (2 * yc - height - 1) / (height - 1), zero, w / width, (2 * xc - width - 1) / (width - 1)]
    return torch.stack(rows, dim=1).view(-1, 2, 3)


def densecap_points(theta: Float[Tensor, "region 2 3"], size: int) -> Points:
    """The (y, x) points at which each affine map reads, from a base grid that includes −1 and +1."""
    steps = torch.linspace(-1, 1, size, device=theta.device, dtype=theta.dtype)
    y, x = torch.meshgrid(steps, steps, indexing="ij")
    base = torch.stack([y, x, torch.ones_like(x)], dim=-1).view(-1, 3)
    return (base @ theta.transpose(1, 2)).view(-1, size, size, 2)


def sample(maps: Maps, points: Points, image_index: Regions, padding: Padding, align_corners: bool) -> Inside:
    """Read each region's (x, y) points from its picture's map.

    A map laid out channels last is a list of cells, and a point is the weighted sum of the four around it: each cell is
    read as one piece, nothing is padded, and the result is channels last as a convolution wants it. Where a gradient is
    needed, `grid_sample` has the quicker way back.
    """
    if torch.is_grad_enabled() and (maps.requires_grad or points.requires_grad):
        return sample_grid(maps, points, image_index, padding, align_corners)
    channels, rows, columns = maps.shape[1:]
    (x, along), (y, down) = (
        _neighbours(points[..., i], cells, padding, align_corners) for i, cells in ((0, columns), (1, rows))
    )
    cell = (image_index[:, None, None, None] * rows + y)[..., :, None] * columns + x[..., None, :]
    read = functional.embedding_bag(
        cell.view(-1, 4),
        maps.permute(0, 2, 3, 1).reshape(-1, channels),
        per_sample_weights=(down[..., :, None] * along[..., None, :]).view(-1, 4).to(maps.dtype),
        mode="sum",
    )
    return read.view(*points.shape[:3], channels).permute(0, 3, 1, 2)


def _neighbours(
    place: Float[Tensor, "region size size"], cells: int, padding: Padding, align_corners: bool
) -> tuple[Int[Tensor, "region size size 2"], Points]:
    """The two cells of an axis around each place in −1..1, and how near it is to each: 1 is on it, 0 a cell away."""
    at = (place + 1) / 2 * (cells - 1) if align_corners else (place + 1) / 2 * cells - 0.5
    if padding == "border":
        at = at.clamp(0, cells - 1)
    low = at.clamp(-1, cells).floor()  # a point farther off the map than a cell reads nothing, wherever it is
    both = torch.stack([low, low + 1], dim=-1)
    near = (1 - (at[..., None] - both).abs()).clamp(min=0) * ((both >= 0) & (both < cells))
    return both.clamp(0, cells - 1).nan_to_num(0).long(), near


def sample_grid(maps: Maps, points: Points, image_index: Regions, padding: Padding, align_corners: bool) -> Inside:
    """`sample` by PyTorch's own, which wants one grid a picture: its regions are laid below one another in a tall one.

    The maps are never copied, and pictures with fewer regions read some points in vain.
    """
    regions, size = points.shape[:2]
    if not regions:
        return maps.new_zeros(0, maps.shape[1], size, size)
    counts = torch.bincount(image_index, minlength=len(maps))
    order = image_index.argsort(stable=True)
    first = counts.cumsum(0) - counts
    slot = torch.empty_like(order)  # each region's place among those of its picture
    slot[order] = torch.arange(regions, device=order.device) - first[image_index[order]]
    tallest = int(counts.max())
    grid = points.new_zeros(len(maps), tallest, size, size, 2).index_put((image_index, slot), points)
    read = functional.grid_sample(
        maps, grid.view(len(maps), tallest * size, size, 2), padding_mode=padding, align_corners=align_corners
    )
    tall = read.view(len(maps), maps.shape[1], tallest, size, size)
    return tall.transpose(1, 2)[image_index, slot]


def roi_max(maps: Maps, boxes: Boxes, image_index: Regions, size: int = 7) -> Inside:
    """The largest value in each of size × size bins of a box that is first rounded to whole cells (Fast R-CNN).

    Rounding has no gradient, so none reaches the box. A bin's maximum over 2ᵏ cells or a few more is that of two
    overlapping windows of 2ᵏ (on each axis): the maxima of all windows are taken once, the bins only look them up.
    """
    rows, columns = maps.shape[-2:]
    corners = (boxes.detach() * boxes.new_tensor([columns, rows, columns, rows])).round().long()
    across, down = (_bins(corners[:, i], corners[:, i + 2], (columns, rows)[i], size) for i in (0, 1))
    longest = [int((high - low).max()) if len(boxes) else 1 for low, high in (down, across)]
    tall, wide = (length.bit_length() for length in longest)
    windows = []  # maxima of the window that begins at each cell; cells off the map count for nothing
    for height, width in ((1 << i, 1 << j) for i in range(tall) for j in range(wide)):
        padded = functional.pad(maps, (0, width - 1, 0, height - 1), value=-torch.inf)
        windows.append(functional.max_pool2d(padded, (height, width), stride=1).permute(0, 2, 3, 1))
    i, j = ((high - low).float().log2().floor().long() for low, high in (down, across))
    (top, bottom), (left, right) = ((low, high - 2**k) for (low, high), k in ((down, i), (across, j)))
    level = i[:, :, None] * wide + j[:, None, :]
    image = image_index[:, None, None].expand_as(level)
    table = torch.stack(windows)
    looked_up = [table[level, image, y[:, :, None], x[:, None, :]] for y in (top, bottom) for x in (left, right)]
    return torch.stack(looked_up).amax(dim=0).permute(0, 3, 1, 2)


def _bins(low: Regions, high: Regions, cells: int, size: int) -> tuple[Bins, Bins]:
    """Where each bin of a stretch of cells begins and ends (exclusive); they overlap where cells do not divide."""
    low = low.clamp(0, cells - 1)
    length = (high.clamp(max=cells) - low).clamp(min=1)
    step = torch.arange(size, device=low.device)
    begin = low[:, None] + length[:, None] * step // size
    return begin, low[:, None] - (-length[:, None] * (step + 1) // size)


def points_inside(
    maps: Float[Tensor, "image channel row column"], boxes: Float[Tensor, "image region 4"], size: int
) -> Float[Tensor, "image_region channel size size"]:
    """`roi_bilinear` for pictures with equally many regions: one call that never waits for the GPU."""
    images, regions = boxes.shape[:2]
    points, maps = centre_points(boxes.float().flatten(0, 1), size), maps.float()
    if not (torch.is_grad_enabled() and maps.requires_grad):
        picture = torch.arange(images, device=boxes.device)[:, None].expand(images, regions)
        return sample(maps, points, picture.reshape(-1), padding="border", align_corners=False)
    points = points.view(images, regions * size, size, 2)
    read = functional.grid_sample(maps, points, padding_mode="border", align_corners=False)
    return read.view(images, -1, regions, size, size).transpose(1, 2).flatten(0, 1)


def mean_under(
    maps: Float[Tensor, "image channel row column"], boxes: Float[Tensor, "image region 4"]
) -> Float[Tensor, "image region channel"]:
    """The mean of a map over each box, every cell weighted by how much of it the box covers."""
    boxes = boxes.float()
    rows = _covered(boxes[..., 1], boxes[..., 3], maps.shape[2])
    columns = _covered(boxes[..., 0], boxes[..., 2], maps.shape[3])
    weight = (rows[..., :, None] * columns[..., None, :]).flatten(2)  # [image, region, cell]
    return torch.bmm(weight.to(maps.dtype), maps.flatten(2).transpose(1, 2))


def _covered(
    low: Float[Tensor, "image region"], high: Float[Tensor, "image region"], cells: int
) -> Float[Tensor, "image region cell"]:
    """Each cell's share of the stretch from `low` to `high`; a stretch without length lies in one cell."""
    start = torch.arange(cells, device=low.device, dtype=low.dtype) / cells
    middle, half = (low + high) / 2, ((high - low) / 2).clamp(min=1e-3)
    middle = middle.clamp(1e-3, 1 - 1e-3)
    low, high = (middle - half)[..., None], (middle + half)[..., None]
    shared = (torch.minimum(high, start + 1 / cells) - torch.maximum(low, start)).clamp(min=0)
    return shared / shared.sum(dim=-1, keepdim=True)
