// SPDX-License-Identifier: Apache-2.0
// SLURM's compressed lists of node names, e.g. "r[1-2]n[03,05-07],login". The plugin reads them
// itself because `scontrol show hostnames` is often missing where tasks run (containers).
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ddp {

// Bounds on what is accepted. SLURM's own limit of nodes per cluster is 65,536 (MAX_SLURM_NODES).
inline constexpr std::size_t kMaxHosts = 65'536;
inline constexpr std::size_t kMaxListText = 131'072;  // one environment variable (MAX_ARG_STRLEN)

// All names, in the order of the list: that is SLURM's order, and the index is a node's
// SLURM_NODEID.
//
//   list    = element {"," element}
//   element = {literal | "[" range {"," range} "]"}    at least one of them
//   range   = number ["-" number]                      padded with zeros to the width of the first
//
// The last bracket of an element varies fastest. An empty text is an empty list.
// Throws UsageError for anything else, and for more than kMaxHosts names, before it makes them.
std::vector<std::string> expand_hostlist(std::string_view text);

// The compressed form of the names, in their order: consecutive numbers of one width behind one
// prefix become a range, as in "n[1-3,7],login".
std::string compress_hostlist(std::span<const std::string> names);

}  // namespace ddp
