// SPDX-License-Identifier: Apache-2.0
// Decides which parameters are gathered together. No side effects: names in, lists of indices out,
// the same on all ranks.
//
// Note [Units]
// A unit is a module whose parameters are whole only while it computes: a transformer's block, for
// example. The whole model is unit 0, the root, with the parameters that no other unit has; it is
// whole during the entire step. A parameter belongs to the innermost unit around it.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace ddp {

// A place in the model that has a parameter. A shared one has several.
struct ParameterUse {
  std::string name;           // "blocks.0.norm.weight"
  std::size_t parameter = 0;  // index in the list of parameters
};

struct Unit {
  std::string name;                     // of its module, "blocks.0"; empty: the root
  std::vector<std::size_t> parameters;  // ascending
};

// `modules` has the names of all modules but the root, in registration order, which is that of the
// units. A pattern is a module's name in which '*' stands for any characters but a dot: "blocks.*".
// Modules without parameters do not become units. Throws UsageError for a pattern that names no
// module with parameters, and for a parameter in two units; the root may share its own with others.
std::vector<Unit> plan_units(std::span<const std::string> modules,
                             std::span<const ParameterUse> uses,
                             std::span<const std::string> patterns);

}  // namespace ddp
