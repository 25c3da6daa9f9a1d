# SPDX-License-Identifier: Apache-2.0
"""PyTorch's own ways to divide a training among the ranks, for the strategies of ddp-train --shard.

A strategy is "" (DistributedDataParallel alone), "optimizer" (ZeroRedundancyOptimizer), "parameters" (FSDP2), or
"gradients": FSDP2 that keeps the weights whole from forward to backward, which FSDP1 called SHARD_GRAD_OP.
"""

import python_models


def release(torch):
    return tuple(map(int, torch.__version__.split(".")[:2]))


def uses_fsdp2(shard):
    return shard in ("gradients", "parameters")


def why_not(torch, shard):
    """Returns why this PyTorch does not have the strategy, or nothing."""
    if uses_fsdp2(shard) and release(torch) < (2, 6):
        return f"PyTorch {torch.__version__} is too old for FSDP2, which needs 2.6"
    return ""


def wrap(torch, model, shard, ddp_arguments):
    """Collective. Returns what replaces the model in the step."""
    if not uses_fsdp2(shard):
        return torch.nn.parallel.DistributedDataParallel(model, **ddp_arguments)
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    device = next(model.parameters()).device.type
    mesh = init_device_mesh(device, (torch.distributed.get_world_size(),))
    for unit in python_models.units(model):
        fully_shard(unit, mesh=mesh, reshard_after_forward=shard == "parameters")
    # As with ShardedDataParallel, what no unit has is whole during the entire step.
    fully_shard(model, mesh=mesh, reshard_after_forward=False)
    return model


def make_optimizer(parameters, shard, kind, options):
    """Collective. kind(parameters, **options), whose parameters are those of what wrap() returned."""
    if shard != "optimizer":
        return kind(parameters, **options)
    from torch.distributed.optim import ZeroRedundancyOptimizer

    # In buckets, which is faster than parameter by parameter.
    return ZeroRedundancyOptimizer(
        parameters, optimizer_class=kind, overlap_with_ddp=False, parameters_as_bucket_view=True, **options)
