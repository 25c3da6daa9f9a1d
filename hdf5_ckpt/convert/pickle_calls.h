// SPDX-License-Identifier: Apache-2.0
// The meaning of the names in a pickle: the containers of Python's standard library, the functions
// with which PyTorch rebuilds tensors, and nothing else.
#pragma once

#include <span>
#include <string>

#include "hdf5_ckpt/convert/pickle.h"

namespace ddp::ckpt {

// Throws the DamagedError of a pickle.
[[noreturn]] void fail_pickle(const std::string& problem);

// "collections.OrderedDict", for Python 2's names of modules, too.
std::string global_name(const std::string& module, const std::string& name);

// The result of calling `function` with `arguments`: a container, a tensor or a text where the name
// is known, otherwise an object with its name. Throws DamagedError if a tensor's arguments are not
// those of torch.save.
PickleValue called(PicklePointer function, std::span<const PicklePointer> arguments);

// The storage that a persistent id names.
PickleValue persistent(PicklePointer id);

}  // namespace ddp::ckpt
