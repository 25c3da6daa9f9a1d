# SPDX-License-Identifier: Apache-2.0
"""The training runs that ours.cpp and theirs.py both make: every optimizer with every type that a user can choose.

A case is a dictionary:
  name           of the row
  ranks, micro_batches
  optimizer      sgd, adam, adamw, rmsprop or adagrad
  options        of the class in torch.optim, by the names of both languages
  like_ddp_train whether the optimizer is that of ddp-train's options. Otherwise it is made as in a loop of one's own,
                 with a learning rate of the biases that is twice that of the matrices. Biases never decay.
  type           fp32 and fp64: of everything. bf16 and fp16: autocast, with parameters in fp32, and for fp16 a loss
                 scale. bf16_weights: autocast, with matrices in bf16 and masters of them in fp32.
"""

# Values are far from the defaults, so that an option that is not passed on changes the result.
OWN_OPTIMIZERS = {
    "sgd": ("sgd", {"lr": 0.1, "weight_decay": 0.02}),
    "sgd momentum": ("sgd", {"lr": 0.05, "momentum": 0.9, "weight_decay": 0.02}),
    "sgd dampening": ("sgd", {"lr": 0.1, "momentum": 0.9, "dampening": 0.4, "weight_decay": 0.02}),
    "sgd nesterov": ("sgd", {"lr": 0.05, "momentum": 0.9, "weight_decay": 0.02, "nesterov": True}),
    "adam": ("adam", {"lr": 3e-3, "weight_decay": 0.05}),
    "adam betas eps": ("adam", {"lr": 3e-3, "betas": [0.8, 0.95], "eps": 1e-3}),
    "adam amsgrad": ("adam", {"lr": 3e-3, "betas": [0.9, 0.9], "weight_decay": 0.05, "amsgrad": True}),
    "adamw": ("adamw", {"lr": 3e-3, "weight_decay": 0.5}),
    "adamw betas eps": ("adamw", {"lr": 3e-3, "betas": [0.8, 0.95], "eps": 1e-3, "weight_decay": 0.5}),
    "adamw amsgrad": ("adamw", {"lr": 3e-3, "betas": [0.9, 0.9], "weight_decay": 0.5, "amsgrad": True}),
    "rmsprop": ("rmsprop", {"lr": 1e-3, "alpha": 0.9, "eps": 1e-6, "weight_decay": 0.05}),
    "rmsprop centered momentum": ("rmsprop", {"lr": 1e-3, "eps": 1e-4, "momentum": 0.5, "centered": True}),
    # Without initial_accumulator_value, which belongs to the whole optimizer and not to a group.
    "adagrad": ("adagrad", {"lr": 0.02, "lr_decay": 0.01, "weight_decay": 0.05, "eps": 1e-6}),
}
DDP_TRAIN_OPTIMIZERS = {
    "--optimizer sgd": ("sgd", {"lr": 0.05, "momentum": 0.8, "weight_decay": 0.05}),
    "--optimizer adam": ("adam", {"lr": 3e-3, "weight_decay": 0.1}),
    "--optimizer adamw": ("adamw", {"lr": 3e-3, "weight_decay": 1.0}),
}
TYPES = ["fp32", "fp64", "bf16", "bf16_weights", "fp16"]


def can_train(optimizer, type_, like_ddp_train):
    """Masters need an optimizer of ddp::optim, and ddp-train has no fp64."""
    if type_ == "bf16_weights":
        return optimizer in ("sgd", "adam", "adamw")
    return type_ != "fp64" or not like_ddp_train


def rows(types):
    """Returns the cases of the table: two ranks."""
    return [{"name": f"{name}, {type_}", "ranks": 2, "micro_batches": 1, "optimizer": optimizer, "options": options,
             "like_ddp_train": like_ddp_train, "type": type_}
            for type_ in types
            for like_ddp_train, table in ((False, OWN_OPTIMIZERS), (True, DDP_TRAIN_OPTIMIZERS))
            for name, (optimizer, options) in table.items() if can_train(optimizer, type_, like_ddp_train)]


def four_ranks():
    optimizer, options = OWN_OPTIMIZERS["sgd momentum"]
    return [{"name": f"four ranks, {micro_batches} micro-batches", "ranks": 4, "micro_batches": micro_batches,
             "optimizer": optimizer, "options": options, "like_ddp_train": False, "type": "fp32"}
            for micro_batches in (1, 2)]


MODELS = {  # with sizes that two ranks cannot divide evenly
    "mlp": {"model": "mlp", "input": [13], "width": 31, "layers": 3, "heads": 0, "classes": 5, "tokens": False},
    "gpt": {"model": "gpt", "input": [9], "width": 20, "layers": 2, "heads": 4, "classes": 37, "tokens": True},
}
SHARDS = ["optimizer", "gradients", "parameters"]  # of ddp-train --shard


def sharded():
    """Returns the runs of sharded_ours.cpp and sharded_theirs.py, each of which is made with every way to divide it.

    The bias of a transformer's keys changes no output, so its gradient is rounding alone. With the default eps of 1e-8,
    AdamW makes whole steps of that in fp32, and no two programs that round differently agree. In fp64, the gradient is
    far below eps. SGD shows a gradient that is a sum instead of a mean, which AdamW would hide.
    """
    return [{"name": f"{model}, {name}, {type_}", "model": options_of_model, "optimizer": optimizer, "options": options,
             "like_ddp_train": False, "type": type_}
            for model, options_of_model in MODELS.items()
            for name, type_ in (("adamw", "fp64"), ("adamw betas eps", "fp32"), ("sgd momentum", "fp32"))
            for optimizer, options in [OWN_OPTIMIZERS[name]]]
