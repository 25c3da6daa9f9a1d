// SPDX-License-Identifier: Apache-2.0
// events.jsonl: what happened and what was done about it, one JSON object per line. Appended, so
// that a requeued job continues in it.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "base/file_descriptor.h"

namespace ddp::elastic {

inline constexpr const char* kEventsSchema = "slurm-ddp/events/1";

class EventLog {
 public:
  EventLog() = default;  // writes nothing
  // Throws RuntimeError with the reason if the file cannot be opened. `follow`: also through a
  // symbolic link, such as /dev/stdout.
  EventLog(const std::string& path, bool follow);

  // Returns false if another living process has claimed the file, which must be a regular one.
  bool claim() noexcept;
  // Returns why the line could not be written, which ends the log; else nothing.
  std::string write(const nlohmann::json& line);

 private:
  std::string path_;
  FileDescriptor file_;
};

}  // namespace ddp::elastic
