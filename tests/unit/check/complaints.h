// SPDX-License-Identifier: Apache-2.0
// Findings as text, for tests of what is reported about whom.
#pragma once

#include <string>
#include <vector>

#include "ddp_runtime/check/findings/finding.h"

namespace ddp::check {

// "check node/peer/device=SEVERITY, .." of all findings that are not OK, without empty parts.
inline std::string complaints(const std::vector<Finding>& findings) {
  std::string text;
  for (const auto& finding : findings) {
    if (finding.severity == Severity::ok) continue;
    text += (text.empty() ? "" : ", ") + finding.check;
    char before = ' ';
    for (const auto* part : {&finding.node, &finding.peer, &finding.device}) {
      if (part->empty()) continue;
      text += before + *part;
      before = '/';
    }
    text += "=" + std::string(name_of(finding.severity));
  }
  return text;
}

}  // namespace ddp::check
