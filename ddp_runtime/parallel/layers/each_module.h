// SPDX-License-Identifier: Apache-2.0
// Visits a module and all of its submodules.
#pragma once

#include <string>

namespace ddp {

// Calls visit(name, module) for `module`, as "the model", and for each of its submodules with its
// name. The root is visited separately, because modules() cannot list a module on the stack
// together with its submodules.
template <class Module, class Visit>
void for_each_module(Module& module, const Visit& visit) {
  visit(std::string("the model"), module);
  for (const auto& item : module.named_modules({}, /*include_self=*/false)) {
    visit(item.key(), *item.value());
  }
}

}  // namespace ddp
