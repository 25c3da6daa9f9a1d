// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/check/net/measure/inject.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <string_view>

#include "base/errors.h"
#include "base/text.h"

namespace ddp::check {
namespace {

[[noreturn]] void refuse(std::string_view text) {
  throw UsageError(fmt::format(
      "--inject '{}' is not understood; use slow:NODE:FACTOR with a factor between 0 and 1, "
      "hang:NODE, hang:NODE:mpi, corrupt:NODE, missing:NODE, drop:NODE:PART, mtu:NODE:BYTES, "
      "skew:NODE:SECONDS or jump:NODE:SECONDS; slow, corrupt and drop accept NODE+NODE for faults "
      "between two nodes only",
      text));
}

double number_in(std::string_view text, std::string_view part, double least, double most) {
  double value = 0;
  const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), value);
  const bool whole = error == std::errc() && end == part.data() + part.size();
  if (!whole || !(value > least && value < most)) refuse(text);
  return value;
}

// "KIND:NODE:NUMBER"
Faults parse_measured(std::string_view text, std::string_view kind, std::string_view number) {
  constexpr double kDay = 86'400;
  Faults faults;
  if (kind == "slow") {
    faults.speed = number_in(text, number, 0, 1);
  } else if (kind == "drop") {
    faults.drop = number_in(text, number, 0, 1);
  } else if (kind == "mtu") {
    faults.mtu = static_cast<int>(number_in(text, number, 67, 65'536));
  } else if (kind == "skew") {
    faults.skew = number_in(text, number, -kDay, kDay);
  } else if (kind == "jump") {
    faults.jump = number_in(text, number, -kDay, kDay);
  } else {
    refuse(text);
  }
  return faults;
}

Faults parse_faults(std::string_view text, const std::vector<std::string_view>& parts) {
  const std::string_view kind = parts[0];
  Faults faults;
  if (kind == "hang" && parts.size() == 2) {
    faults.hang = TransportKind::tcp;
  } else if (kind == "hang" && parts.size() == 3 && parts[2] == "mpi") {
    faults.hang = TransportKind::mpi;
  } else if (kind == "corrupt" && parts.size() == 2) {
    faults.corrupt = true;
  } else if (kind == "missing" && parts.size() == 2) {
    faults.missing = true;
  } else if (parts.size() == 3) {
    return parse_measured(text, kind, parts[2]);
  } else {
    refuse(text);
  }
  return faults;
}

// Combines faults that are active at the same time.
void add_faults(const Faults& faults, Faults& all) {
  all.speed = std::min(all.speed, faults.speed);
  all.corrupt = all.corrupt || faults.corrupt;
  all.missing = all.missing || faults.missing;
  if (faults.hang) all.hang = faults.hang;
  all.drop = std::max(all.drop, faults.drop);
  if (faults.mtu > 0) all.mtu = faults.mtu;
  all.skew += faults.skew;
  all.jump += faults.jump;
}

// Parses one fault, of "NODE" or, if it affects only two nodes' exchanges, of "NODE+NODE".
Injection parse_injection(std::string_view text) {
  const auto parts = split(text, ':');
  if (parts.size() < 2) refuse(text);
  const auto nodes = split(parts[1], '+');
  const bool pair = nodes.size() == 2;
  const bool of_pairs = parts[0] == "slow" || parts[0] == "corrupt" || parts[0] == "drop";
  if (nodes.size() > 2 || nodes.front().empty() || nodes.back().empty() || (pair && !of_pairs))
    refuse(text);
  if (pair && nodes.front() == nodes.back()) {
    throw UsageError(fmt::format(
        "--inject '{}' names a link from a node to itself; name two different nodes", text));
  }
  return {std::string(nodes.front()), pair ? std::string(nodes.back()) : "",
          parse_faults(text, parts)};
}

}  // namespace

std::vector<Injection> parse_injections(const std::vector<std::string>& texts) {
  std::vector<Injection> injections;
  for (const auto& list : texts) {
    for (const auto text : split(list, ',')) injections.push_back(parse_injection(text));
  }
  return injections;
}

Faults faults_of(const std::string& node, std::span<const Injection> injections) {
  Faults all;
  for (const auto& [name, peer, faults] : injections)
    if (name == node && peer.empty()) add_faults(faults, all);
  return all;
}

Faults faults_between(const std::string& node, const std::string& peer,
                      std::span<const Injection> injections) {
  Faults all = faults_of(node, injections);
  for (const auto& [one, other, faults] : injections) {
    const bool theirs = (one == node && other == peer) || (one == peer && other == node);
    if (theirs && !other.empty()) add_faults(faults, all);
  }
  return all;
}

}  // namespace ddp::check
