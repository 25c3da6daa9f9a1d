// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/tools/ckpt/conversion.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/errors.h"
#include "ddp_runtime/tools/ckpt/text.h"
#include "hdf5_ckpt/core/error.h"

namespace ddp::ckpt::tool {

Choice::Choice(const Conversion& conversion)
    : only_(parse_patterns(conversion.only)), skip_(parse_patterns(conversion.skip)) {}

bool Choice::takes(const std::string& name) const {
  return (only_.empty() || any_matches(only_, name)) && !any_matches(skip_, name);
}

void Choice::require_effect(const std::vector<std::string>& names) const {
  for (const auto& [option, patterns] : {std::pair("--only", &only_), {"--skip", &skip_}})
    for (const NamePattern& pattern : *patterns)
      if (std::none_of(names.begin(), names.end(),
                       [&](const std::string& name) { return pattern.matches(name); }))
        throw UsageError(fmt::format("{}: '{}' matches no array; ddp-ckpt inspect lists them",
                                     option, pattern.text()));
}

std::vector<ShortName> require_prefix(const std::string& prefix,
                                      std::span<const std::string_view> names,
                                      const std::filesystem::path& source) {
  std::vector<ShortName> chosen = without_prefix(prefix, names);
  if (chosen.empty())
    throw Error(
        fmt::format("'{}' has no array whose name starts with '{}'", source.string(), prefix));
  return chosen;
}

void write_arrays(const std::filesystem::path& to, TargetKind kind, const Arrays& arrays) {
  std::uint64_t total = 0;
  for (const ArrayHeader& array : arrays.headers)
    total += byte_count(array.dtype, array.shape).value();
  const Progress progress = terminal_progress(to.filename().string());
  Meter meter(progress, total);
  const auto give = [&](std::size_t index, const TakeBytes& take) {
    arrays.give(index, [&](std::span<const std::byte> bytes) {
      take(bytes);
      meter.add(bytes.size());
    });
  };
  (kind == TargetKind::safetensors ? write_safetensors : write_torch_file)(to, arrays.headers,
                                                                           give);
}

}  // namespace ddp::ckpt::tool
