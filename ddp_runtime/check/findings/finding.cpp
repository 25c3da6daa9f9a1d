// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/check/findings/finding.h"

#include <algorithm>
#include <array>
#include <utility>

namespace ddp::check {
std::string_view name_of(Severity severity) noexcept {
  constexpr std::array<std::string_view, 4> kNames{"OK", "WARNING", "UNKNOWN", "CRITICAL"};
  return kNames[static_cast<std::size_t>(severity)];
}

int exit_code_of(Severity severity) noexcept {
  constexpr std::array<int, 4> kCodes{0, 1, 3, 2};
  return kCodes[static_cast<std::size_t>(severity)];
}

void Findings::add(Finding finding) {
  const auto [place, is_new] = places_.emplace(
      std::array{finding.check, finding.node, finding.peer, finding.device}, findings_.size());
  if (is_new) {
    findings_.push_back(std::move(finding));
  } else if (Finding& same = findings_[place->second]; finding.severity > same.severity) {
    same = std::move(finding);
  }
}

void Findings::add(std::vector<Finding> findings) {
  for (auto& finding : findings) add(std::move(finding));
}

Severity Findings::severity() const noexcept {
  if (findings_.empty()) return Severity::unknown;
  return std::max_element(
             findings_.begin(), findings_.end(),
             [](const Finding& a, const Finding& b) { return a.severity < b.severity; })
      ->severity;
}

}  // namespace ddp::check
