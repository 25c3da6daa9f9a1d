// SPDX-License-Identifier: Apache-2.0
// Records that earlier processes of the same run left in the report directory, for the process that
// resumes the run.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string_view>

namespace ddp::train {

// Lists the earlier processes, oldest first, from the run.json that the last of them wrote: the
// steps that each one covers, its outcome and its speed. An empty list if there is no run.json.
nlohmann::json earlier_processes(std::string_view run_json);

// The report of an earlier process that took the last of `steps` steps and did not end its run;
// null if it did, if its last step is another one, or if its run has other settings.
nlohmann::json unfinished_report(std::string_view run_json, std::int64_t steps,
                                 const nlohmann::json& settings);
// The same as the report of a run that has ended. `ending`: of the process that evaluated it.
nlohmann::json completed_report(nlohmann::json unfinished, const nlohmann::json& ending);

// What ddp-run has written to it about failures and restarts; null if nothing.
nlohmann::json resilience_of_earlier(std::string_view run_json);

// Chooses the lines of steps.csv to keep when a run resumes after `last_step`: complete lines, in
// order, of steps that will not be repeated. Rows of older versions lack the last two columns.
class KeptRows {
 public:
  explicit KeptRows(std::int64_t last_step) : last_step_(last_step) {}

  bool operator()(std::string_view line);
  std::int64_t count() const noexcept { return count_; }
  // The largest generation of a row that was kept; 0 without one.
  std::int64_t generation() const noexcept { return generation_; }

 private:
  std::int64_t last_step_;
  std::int64_t newest_ = 0;
  std::int64_t count_ = 0;
  std::int64_t generation_ = 0;
};

}  // namespace ddp::train
