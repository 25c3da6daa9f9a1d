// SPDX-License-Identifier: Apache-2.0
// The names that the tensors of another program have in a model of ours.
//
// Note [Format of a name map]
// One rule per line; '#' begins a comment.
//   prefix module.                        remove this from the beginning of names that have it
//   wte.weight -> tokens.weight           a tensor with another name
//   h.*.ln_1.* -> blocks.*.norm1.*        each '*' stands for any text, the same on both sides
//   h.*.fc.weight -> blocks.*.expand.weight transpose
//                                         a matrix stored with its dimensions exchanged
//   h.*.attn.bias -> -                    a tensor that the model does not need
// Prefixes are removed first, at most one from each name. Then the first line whose left side
// matches the whole name counts. A name that no line matches stays as it is.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hdf5_ckpt/convert/name_pattern.h"

namespace ddp::ckpt {

struct MappedName {
  std::optional<std::string> name;  // nullopt: the model does not need the tensor
  bool transposed = false;          // the file has the matrix with its dimensions exchanged
  bool by_rule = false;             // false: no line matched
};

class NameMap {
 public:
  // Keeps every name.
  NameMap() = default;

  // Parses the text of a map. `origin` is the name of the map for messages. Throws UsageError that
  // names the line.
  static NameMap parse(std::string_view text, const std::string& origin);

  // Returns the shipped map of this name (see shipped_maps.h); otherwise reads the file with this
  // path. Throws UsageError if there is none, and as parse() does.
  static NameMap open(const std::string& name_or_path);

  MappedName map(std::string_view theirs) const;

  // The name that the other program gives to a tensor of the model: the first for which map()
  // returns `ours`, without the prefixes. Throws UsageError if there is none.
  MappedName map_back(std::string_view ours) const;

  // The name of the map for messages; empty for the map that keeps every name.
  const std::string& origin() const noexcept { return origin_; }
  bool has_rules() const noexcept { return !rules_.empty(); }

 private:
  struct Rule {
    NamePattern theirs;
    std::optional<NamePattern> ours;  // nullopt: not needed
    bool transposed;
  };

  void add_line(std::string_view line);

  std::string origin_;
  std::vector<std::string> prefixes_;
  std::vector<Rule> rules_;
};

}  // namespace ddp::ckpt
