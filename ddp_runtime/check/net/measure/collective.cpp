// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/check/net/measure/collective.h"

#include <algorithm>

#include "base/errors.h"

namespace ddp::check {

std::string name_of(Collective collective) {
  switch (collective) {
    case Collective::all_reduce:
      return "all_reduce";
    case Collective::reduce_scatter:
      return "reduce_scatter";
    case Collective::all_gather:
      return "all_gather";
  }
  return {};
}

std::string title_of(Collective collective) {
  std::string title = name_of(collective);
  std::replace(title.begin(), title.end(), '_', '-');
  return title;
}

Collective collective_named(std::string_view name) {
  for (const Collective collective : kCollectives)
    if (name_of(collective) == name) return collective;
  throw RuntimeError("unknown collective '" + std::string(name) + "'");
}

double bus_factor(Collective collective, int ranks) {
  const double passes = collective == Collective::all_reduce ? 2 : 1;
  return passes * (ranks - 1) / ranks;
}

std::string bus_factor_text(Collective collective) {
  return collective == Collective::all_reduce ? "2(n-1)/n" : "(n-1)/n";
}

}  // namespace ddp::check
