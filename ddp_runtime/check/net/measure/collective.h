// The collectives that are measured over all tasks, and what nccl-tests calls their bus bandwidth:
// bytes / seconds, times the part of them that the best algorithm sends over each link, so that it
// can be compared with the link's own speed at any number of ranks.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace ddp::check {

enum class Collective : std::uint8_t { all_reduce, reduce_scatter, all_gather };

inline constexpr std::array kCollectives{Collective::all_reduce, Collective::reduce_scatter,
                                         Collective::all_gather};

// As messages and reports name it: "all_reduce"; for people: "all-reduce".
std::string name_of(Collective collective);
std::string title_of(Collective collective);

// Of such a name. Throws RuntimeError for another one.
Collective collective_named(std::string_view name);

// 2 (n - 1) / n of an all-reduce, else (n - 1) / n; and as text.
double bus_factor(Collective collective, int ranks);
std::string bus_factor_text(Collective collective);

}  // namespace ddp::check
