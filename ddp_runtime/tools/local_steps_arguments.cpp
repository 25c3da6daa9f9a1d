// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/tools/local_steps_arguments.h"

#include <CLI/CLI.hpp>

#include "base/errors.h"
#include "ddp_runtime/tools/validators.h"

namespace ddp::tools {
namespace {

constexpr std::uint64_t kMaxLocalSteps = 1'000'000'000'000'000;  // as of a training

}  // namespace

void add_local_steps_options(CLI::App& app, LocalStepsArguments& a) {
  app.add_option("--local-steps", a.every,
                 "For slow networks: each rank steps alone, and parameters are averaged every N "
                 "steps; 0 means that gradients are averaged in each step")
      ->check(whole_number(0, kMaxLocalSteps))
      ->capture_default_str();
  app.add_option("--local-from", a.from,
                 "Average gradients in this many steps before the first local one [0]")
      ->check(whole_number(0, kMaxLocalSteps));
  app.add_option("--local-within", a.within,
                 "node: in local steps, the ranks of a node average their gradients; rank: each "
                 "rank steps alone [rank]");
  app.add_option("--outer", a.outer,
                 "average: parameters become their mean; nesterov: the mean is the gradient of an "
                 "outer SGD step with Nesterov momentum (DiLoCo) [average]");
  app.add_option("--outer-lr", a.outer_learning_rate, "Learning rate of --outer nesterov [0.7]")
      ->check(positive());
  app.add_option("--outer-momentum", a.outer_momentum, "Momentum of --outer nesterov [0.9]")
      ->check(
          number_check("a number from 0 to less than 1", [](double v) { return v >= 0 && v < 1; }));
}

std::optional<LocalStepsOptions> local_steps_of(const LocalStepsArguments& a) {
  if (a.every == 0) {
    if (a.from || a.within || a.outer || a.outer_learning_rate || a.outer_momentum) {
      throw UsageError(
          "--local-from, --local-within, --outer, --outer-lr and --outer-momentum are about local "
          "steps; add --local-steps");
    }
    return std::nullopt;
  }
  LocalStepsOptions options;
  options.every = a.every;
  options.from = a.from.value_or(options.from);
  if (a.within) options.within = parse_local_within(*a.within);
  auto& outer = options.outer;
  if (a.outer) outer.kind = parse_outer(*a.outer);
  if (outer.kind == Outer::average && (a.outer_learning_rate || a.outer_momentum)) {
    throw UsageError("--outer-lr and --outer-momentum are for --outer nesterov; add it");
  }
  outer.learning_rate = a.outer_learning_rate.value_or(outer.learning_rate);
  outer.momentum = a.outer_momentum.value_or(outer.momentum);
  return options;
}

}  // namespace ddp::tools
