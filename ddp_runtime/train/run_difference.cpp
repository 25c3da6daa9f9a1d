#include "ddp_runtime/train/run_difference.h"

#include <fmt/format.h>

namespace ddp::train {
namespace {

std::string shown(const nlohmann::json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

bool differs(const nlohmann::json& saved, const nlohmann::json& now, const char* name) {
  return saved.contains(name) && now.contains(name) && saved.at(name) != now.at(name);
}

// By what the data holds where both say so: the folder may have another name here.
bool other_data(const nlohmann::json& saved, const nlohmann::json& now) {
  const bool known = saved.contains("data_crc32c") && now.contains("data_crc32c");
  return known ? differs(saved, now, "data_crc32c") || differs(saved, now, "samples")
               : differs(saved, now, "data");
}

}  // namespace

RunDifferences run_differences(const nlohmann::json& saved, const nlohmann::json& now,
                               bool mid_epoch) {
  RunDifferences found;
  if (!saved.is_object()) return found;
  for (const auto& [name, value] : now.items()) {
    if (!differs(saved, now, name.c_str())) continue;
    found.lines.push_back(fmt::format("{} was {} when it was saved and is {} now", name,
                                      shown(saved.at(name)), shown(value)));
  }
  if (!mid_epoch) return found;
  const bool seed = differs(saved, now, "seed");
  const bool data = other_data(saved, now);
  if (!seed && !data) return found;
  found.refusal = fmt::format(
      "the checkpoint is of the middle of an epoch, and the {} differ{} from the run that saved "
      "it: "
      "some samples would be seen twice and some never; give what it was made with, or "
      "--resume-changed",
      seed && data ? "seed and the data"
      : seed       ? "seed"
                   : "data",
      seed && !data ? "s" : "");
  return found;
}

}  // namespace ddp::train
