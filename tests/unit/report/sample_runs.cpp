// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/report/sample_runs.h"

#include <algorithm>
#include <iterator>
#include <numeric>

namespace ddp::report::test {

nlohmann::json run_json(int world_size, double global_batch, const std::vector<double>& parts) {
  const char* const phases[] = {"data",      "forward",    "backward", "exposed_comm",
                                "optimizer", "checkpoint", "other"};
  nlohmann::json seconds;
  for (std::size_t i = 0; i < std::size(phases); ++i) seconds[phases[i]] = parts[i];
  const double mean = std::accumulate(parts.begin(), parts.end(), 0.0);
  seconds["p50"] = seconds["mean"] = mean;
  seconds["p95"] = 1.5 * mean;
  auto run = R"({"schema": "slurm-ddp/run/1",
                 "program": "ddp-train 0.1.0",
                 "command": "ddp-train --model mlp",
                 "started_unix": 1700000000.0,
                 "finished_unix": 1700000100.0,
                 "nodes": 1,
                 "backend": "mpi",
                 "device": "cpu",
                 "model": "mlp",
                 "data": "digits",
                 "parameters": 12345,
                 "steps": 500,
                 "epochs": 20,
                 "final": {"train_loss": 0.01, "eval_loss": 0.05, "eval_accuracy": 0.98},
                 "parameters_crc32c": "0x1234abcd",
                 "comm": {"bytes_per_step": 49380, "busbw_GBps": 2.5, "overlap_ratio": 0.75},
                 "ranks": [],
                 "environment": {"SLURM_JOB_ID": "4711"}})"_json;
  run["world_size"] = world_size;
  run["global_batch"] = global_batch;
  run["samples_per_second"] = global_batch / mean;
  run["step_seconds"] = seconds;
  for (int rank = 0; rank < world_size; ++rank) {
    run["ranks"].push_back({{"rank", rank}, {"node", "node1"}, {"step_seconds", seconds}});
  }
  if (world_size == 1) {
    run["backend"] = "self";
    run["comm"]["busbw_GBps"] = run["comm"]["overlap_ratio"] = nullptr;
  }
  return run;
}

RunRecord run_of(const nlohmann::json& json, const std::string& source) {
  return parse_run(json.dump(), source);
}

Section section_of(const Document& document, const std::string& id) {
  const auto found = std::ranges::find(document.sections, id, &Section::id);
  return found == document.sections.end() ? Section{} : *found;
}

}  // namespace ddp::report::test
