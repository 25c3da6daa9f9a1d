// A module and all that are in it.
#pragma once

#include <string>

namespace ddp {

// Calls visit(name, module) for `module`, as "the model", and for every module in it by its name. A
// module that lives on the stack cannot be listed together with those in it, as modules() would.
template <class Module, class Visit>
void for_each_module(Module& module, const Visit& visit) {
  visit(std::string("the model"), module);
  for (const auto& item : module.named_modules({}, /*include_self=*/false)) {
    visit(item.key(), *item.value());
  }
}

}  // namespace ddp
