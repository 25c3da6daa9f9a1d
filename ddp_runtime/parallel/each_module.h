// SPDX-License-Identifier: Apache-2.0
// A module and all of its submodules.
#pragma once

#include <string>

namespace ddp {

// Calls visit(name, module) for `module`, as "the model", and for each of its submodules with its
// name. Separately, because a module on the stack cannot be listed together with its submodules by
// modules().
template <class Module, class Visit>
void for_each_module(Module& module, const Visit& visit) {
  visit(std::string("the model"), module);
  for (const auto& item : module.named_modules({}, /*include_self=*/false)) {
    visit(item.key(), *item.value());
  }
}

}  // namespace ddp
