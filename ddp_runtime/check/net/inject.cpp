#include "ddp_runtime/check/net/inject.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <string_view>

#include "ddp_runtime/comm/errors.h"

namespace ddp::check {
namespace {

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const std::size_t at = text.find(separator);
    parts.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
  }
}

[[noreturn]] void refuse(std::string_view text) {
  throw UsageError(fmt::format(
      "--inject '{}' is not understood; use slow:NODE:FACTOR with a factor between 0 and 1, "
      "hang:NODE, hang:NODE:mpi, corrupt:NODE or missing:NODE",
      text));
}

Faults parse_faults(std::string_view text, const std::vector<std::string_view>& parts) {
  const std::string_view kind = parts[0];
  Faults faults;
  if (kind == "slow" && parts.size() == 3) {
    const auto [end, error] =
        std::from_chars(parts[2].data(), parts[2].data() + parts[2].size(), faults.speed);
    const bool whole = error == std::errc() && end == parts[2].data() + parts[2].size();
    if (!whole || !(faults.speed > 0 && faults.speed < 1)) refuse(text);
  } else if (kind == "hang" && parts.size() == 2) {
    faults.hang = Stage::tcp;
  } else if (kind == "hang" && parts.size() == 3 && parts[2] == "mpi") {
    faults.hang = Stage::mpi;
  } else if (kind == "corrupt" && parts.size() == 2) {
    faults.corrupt = true;
  } else if (kind == "missing" && parts.size() == 2) {
    faults.missing = true;
  } else {
    refuse(text);
  }
  return faults;
}

}  // namespace

std::vector<Injection> parse_injections(const std::vector<std::string>& texts) {
  std::vector<Injection> injections;
  for (const auto& list : texts) {
    for (const auto text : split(list, ',')) {
      const auto parts = split(text, ':');
      if (parts.size() < 2 || parts[1].empty()) refuse(text);
      injections.push_back({std::string(parts[1]), parse_faults(text, parts)});
    }
  }
  return injections;
}

Faults faults_of(const std::string& node, std::span<const Injection> injections) {
  Faults all;
  for (const auto& [name, faults] : injections) {
    if (name != node) continue;
    all.speed = std::min(all.speed, faults.speed);
    all.corrupt = all.corrupt || faults.corrupt;
    all.missing = all.missing || faults.missing;
    if (faults.hang) all.hang = faults.hang;
  }
  return all;
}

}  // namespace ddp::check
