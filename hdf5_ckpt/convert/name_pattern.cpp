// SPDX-License-Identifier: Apache-2.0
#include "hdf5_ckpt/convert/name_pattern.h"

#include <algorithm>
#include <utility>

#include "base/errors.h"
#include "base/text.h"
#include "hdf5_ckpt/core/manifest.h"

namespace ddp::ckpt {

NamePattern::NamePattern(std::string text) : text_(std::move(text)) {
  if (text_.empty()) throw UsageError("a pattern of names is empty; '*' matches all names");
  if (text_.size() > kMaxNameBytes) {
    throw UsageError("the pattern " + quote_for_display(text_) + " is longer than " +
                     std::to_string(kMaxNameBytes) + " bytes, the limit for names");
  }
  for (const auto piece : split(text_, '*')) pieces_.emplace_back(piece);
}

// A star that took a longer text than necessary would leave less for the pieces after it, so each
// piece is searched for as far to the left as possible, and only the last one has a fixed place.
std::optional<std::vector<std::string_view>> NamePattern::match(std::string_view name) const {
  if (stars() == 0) {
    if (name != text_) return std::nullopt;
    return std::vector<std::string_view>{};
  }
  if (!name.starts_with(pieces_.front())) return std::nullopt;
  std::vector<std::string_view> texts;
  auto rest = name.substr(pieces_.front().size());
  for (std::size_t i = 1; i + 1 < pieces_.size(); ++i) {
    const auto at = rest.find(pieces_[i]);
    if (at == std::string_view::npos) return std::nullopt;
    texts.push_back(rest.substr(0, at));
    rest.remove_prefix(at + pieces_[i].size());
  }
  if (!rest.ends_with(pieces_.back())) return std::nullopt;
  texts.push_back(rest.substr(0, rest.size() - pieces_.back().size()));
  return texts;
}

std::string NamePattern::with(const std::vector<std::string_view>& texts) const {
  std::string name = pieces_.front();
  for (std::size_t i = 0; i < stars(); ++i) {
    name += texts.at(i);
    name += pieces_[i + 1];
  }
  return name;
}

std::vector<NamePattern> parse_patterns(std::string_view list) {
  std::vector<NamePattern> patterns;
  if (trimmed(list).empty()) return patterns;
  for (const auto piece : split(list, ',')) patterns.emplace_back(std::string(trimmed(piece)));
  return patterns;
}

bool any_matches(const std::vector<NamePattern>& patterns, std::string_view name) {
  return std::any_of(patterns.begin(), patterns.end(),
                     [&](const NamePattern& pattern) { return pattern.matches(name); });
}

}  // namespace ddp::ckpt
