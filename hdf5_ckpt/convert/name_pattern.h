// SPDX-License-Identifier: Apache-2.0
// Patterns of names of tensors: `*` stands for any text, also an empty one and one with dots, and
// every other character for itself ("blocks.*.norm1.*").
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ddp::ckpt {

class NamePattern {
 public:
  // Throws UsageError if the text is empty or longer than a name can be.
  explicit NamePattern(std::string text);

  const std::string& text() const noexcept { return text_; }
  std::size_t stars() const noexcept { return pieces_.size() - 1; }

  // Returns the texts that the stars stand for, nullopt if the whole name does not match. Every
  // star but the last takes the shortest text that allows a match. The time is at most the product
  // of the two lengths.
  std::optional<std::vector<std::string_view>> match(std::string_view name) const;
  bool matches(std::string_view name) const { return match(name).has_value(); }

  // Replaces the stars by texts, in order; there must be stars() of them.
  std::string with(const std::vector<std::string_view>& texts) const;

 private:
  std::string text_;
  std::vector<std::string> pieces_;  // between the stars
};

// Parses "PATTERN,PATTERN,...". Throws UsageError if one is empty; an empty list has no patterns.
std::vector<NamePattern> parse_patterns(std::string_view list);

// Whether any of the patterns matches.
bool any_matches(const std::vector<NamePattern>& patterns, std::string_view name);

}  // namespace ddp::ckpt
