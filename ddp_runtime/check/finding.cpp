#include "ddp_runtime/check/finding.h"

#include <algorithm>
#include <array>
#include <tuple>
#include <utility>

namespace ddp::check {
namespace {

auto subject_of(const Finding& finding) {
  return std::tie(finding.check, finding.node, finding.peer, finding.device);
}

}  // namespace

std::string_view name_of(Severity severity) noexcept {
  constexpr std::array<std::string_view, 4> kNames{"OK", "WARNING", "UNKNOWN", "CRITICAL"};
  return kNames[static_cast<std::size_t>(severity)];
}

int exit_code_of(Severity severity) noexcept {
  constexpr std::array<int, 4> kCodes{0, 1, 3, 2};
  return kCodes[static_cast<std::size_t>(severity)];
}

void Findings::add(Finding finding) {
  const auto same = std::find_if(
      findings_.begin(), findings_.end(),
      [&finding](const Finding& other) { return subject_of(other) == subject_of(finding); });
  if (same == findings_.end()) {
    findings_.push_back(std::move(finding));
  } else if (finding.severity > same->severity) {
    *same = std::move(finding);
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
