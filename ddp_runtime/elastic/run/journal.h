// SPDX-License-Identifier: Apache-2.0
// The record of a run: events.jsonl while it runs, and a summary of its time at the end. A failure
// to write it never stops the run; it is reported once.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "base/deadline.h"
#include "ddp_runtime/elastic/accounting/run_account.h"
#include "ddp_runtime/elastic/run/event_log.h"
#include "ddp_runtime/elastic/run/messages.h"
#include "ddp_runtime/elastic/run/thinning.h"

namespace ddp::elastic {

struct JournalPlan {
  std::string events_file = {};  // empty: events.jsonl in the report directory, or none
  std::filesystem::path report_directory = {};  // of the program; empty: none
  std::string job = {};                         // SLURM's number
  int restart = 0;                              // how often the job was requeued
};

class Journal {
 public:
  // Throws UsageError if an events file that was asked for cannot be opened. `messages` gets the
  // warnings, and must outlive the journal.
  Journal(JournalPlan plan, Messages& messages);

  // An event or an action, which gets the time, and to which run it belongs.
  void note(nlohmann::json entry);
  // Call it now and then.
  void tick();
  // Writes where the time went so far. Only while no process of the program is left.
  void report();
  // The same as a sentence; empty if it is not known.
  std::string sentence() const;

 private:
  void open_log();
  void write(const nlohmann::json& line);
  void warn(std::string_view text);
  std::filesystem::path directory() const;

  JournalPlan plan_;
  Messages& messages_;
  std::optional<Clock::time_point> begun_;  // time of the first entry
  nlohmann::json fields_;
  EventLog log_;
  Thinning thinning_;
  RunAccount account_;
  bool has_report_ = false;  // this run has written one
  bool warned_ = false;
};

}  // namespace ddp::elastic
