// SPDX-License-Identifier: Apache-2.0
// The collectives that are measured over all tasks, and their bus bandwidth as nccl-tests defines
// it: bytes / seconds, multiplied by the fraction of the bytes that the best algorithm sends over
// each link. Bus bandwidth can be compared with the link's own speed at any number of ranks.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace ddp::check {

enum class Collective : std::uint8_t { all_reduce, reduce_scatter, all_gather };

inline constexpr std::array kCollectives{Collective::all_reduce, Collective::reduce_scatter,
                                         Collective::all_gather};

// The name in messages and reports, "all_reduce", and in text for people, "all-reduce".
std::string name_of(Collective collective);
std::string title_of(Collective collective);

// Parses a name such as "all_reduce". Throws RuntimeError if the name is unknown.
Collective collective_named(std::string_view name);

// 2 (n - 1) / n for all-reduce, (n - 1) / n for the others; as a number and as text.
double bus_factor(Collective collective, int ranks);
std::string bus_factor_text(Collective collective);

}  // namespace ddp::check
