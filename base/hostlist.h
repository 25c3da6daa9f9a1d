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

// Limits on the input. SLURM itself allows 65,536 nodes per cluster (MAX_SLURM_NODES).
inline constexpr std::size_t kMaxHosts = 65'536;
inline constexpr std::size_t kMaxListText = 131'072;  // one environment variable (MAX_ARG_STRLEN)

// Returns all names in the order of the list. This is SLURM's own order, so the index of a name is
// the SLURM_NODEID of its node.
//
//   list    = element {"," element}
//   element = {literal | "[" range {"," range} "]"}    at least one of them
//   range   = number ["-" number]                      padded with zeros to the width of the first
//
// The last bracket of an element varies fastest. An empty text is an empty list. Throws UsageError
// if the text does not match this grammar, or stands for more than kMaxHosts names; the names are
// counted before any is created.
std::vector<std::string> expand_hostlist(std::string_view text);

// Compresses the names without reordering them: consecutive numbers with the same prefix and the
// same width become a range, as in "n[1-3,7],login".
std::string compress_hostlist(std::span<const std::string> names);

}  // namespace ddp
