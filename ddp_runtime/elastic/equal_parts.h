// SPDX-License-Identifier: Apache-2.0
// Which numbers of nodes can divide a step of training into equal parts. No side effects.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ddp_runtime/elastic/settings.h"

namespace ddp::elastic {

// What the number of ranks must divide, and where that is said.
struct Divisible {
  std::size_t number = 1;
  std::string source;  // such as "--blocks 12 of ddp-train"
};

// The same from a command line of ddp-train: its --blocks, or the samples of its --global-batch.
// None if another program is started, or neither is given, or a pipeline divides the ranks first.
std::optional<Divisible> divisible_by_ranks(std::span<const std::string> program);

// The last value of an option on a command line of ddp-train, as `--option VALUE` or
// `--option=VALUE`. None if another program is started.
std::optional<std::string> option_of_ddp_train(std::span<const std::string> program,
                                               std::string_view option);

// The command line with `options` before those of ddp-train, which override them. Unchanged if
// another program is started.
std::vector<std::string> with_options_of_ddp_train(std::vector<std::string> program,
                                                   const std::vector<std::string>& options);

// The numbers of nodes from min_nodes to max_nodes whose ranks divide it. Throws UsageError if
// there is none.
std::vector<std::size_t> sizes_with_equal_parts(const Settings& settings,
                                                const Divisible& divisible);

}  // namespace ddp::elastic
