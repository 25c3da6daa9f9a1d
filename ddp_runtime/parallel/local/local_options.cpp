// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/parallel/local/local_options.h"

#include <fmt/format.h>

#include <cmath>

#include "base/errors.h"

namespace ddp {

Outer parse_outer(const std::string& name) {
  if (name == "average") return Outer::average;
  if (name == "nesterov") return Outer::nesterov;
  throw UsageError(fmt::format("--outer must be average or nesterov, not '{}'", name));
}

LocalWithin parse_local_within(const std::string& name) {
  if (name == "rank") return LocalWithin::rank;
  if (name == "node") return LocalWithin::node;
  throw UsageError(fmt::format("--local-within must be rank or node, not '{}'", name));
}

std::string outer_name(Outer outer) {
  return outer == Outer::average ? "average" : "nesterov";
}

std::string local_within_name(LocalWithin within) {
  return within == LocalWithin::rank ? "rank" : "node";
}

void require_valid(const LocalStepsOptions& options) {
  if (options.every < 1) {
    throw UsageError(fmt::format(
        "local steps need a number of steps between two averages that is 1 or more, not {}",
        options.every));
  }
  if (options.from < 0 || options.check_parameters_every < 0) {
    throw UsageError(fmt::format(
        "local steps cannot begin after {} steps or compare parameters every {} steps; use "
        "numbers that are 0 or more",
        options.from, options.check_parameters_every));
  }
  const auto& outer = options.outer;
  if (!std::isfinite(outer.learning_rate) || outer.learning_rate <= 0) {
    throw UsageError(
        fmt::format("the outer learning rate is {}; use a number greater than 0, such as 0.7",
                    outer.learning_rate));
  }
  if (!(outer.momentum >= 0 && outer.momentum < 1)) {
    throw UsageError(fmt::format("the outer momentum is {}; use a number from 0 to less than 1",
                                 outer.momentum));
  }
}

}  // namespace ddp
